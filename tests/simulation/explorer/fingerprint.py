"""A digest of all that decides how a run goes on: cores, brokers, messages in flight, applications
and oracles.

From states of one world with equal fingerprints the same follows. Times are in it as they are: the
records of a small world and the end of its bounds have fixed times, so that nothing equal follows
from states at different times. They count to the nanosecond.

What a coroutine waits for is in the digest too: where it stands, its variables, what it holds
meanwhile (as an iterator of a loop, or a lock), and the future that ends the wait.
"""

from __future__ import annotations

import asyncio
import enum
import gc
import hashlib
import inspect
import marshal
import re
from array import array
from collections import deque
from contextvars import Context
from datetime import timedelta
from functools import partial
from itertools import count
from random import Random
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import TYPE_CHECKING, Any, Final, cast

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.testing.fake_kafka.clock import Alarm

if TYPE_CHECKING:
    from collections.abc import Iterable

    from simulation.cluster.simulated_cluster import SimulatedCluster

_NANOSECONDS: Final = 9
# What only counts or describes what has happened, and what follows from the whole path: whether it
# is calm, and the numbers of its points.
_LEFT_OUT: Final[dict[str, frozenset[str]]] = {
    "Application": frozenset(("patient",)),
    "Branches": frozenset(
        ("points", "further", "longer_wait", "states", "_left", "_last", "_first_at")
    ),
    "ExploredCluster": frozenset(("_path",)),
    "ExploredTransactionalCluster": frozenset(("_path",)),
    # Only their ends are of interest, which close them.
    "MemberLoop": frozenset(("_coroutines",)),
    "OracleState": frozenset(("trace", "counts", "duplicates", "digest", "strict", "lossy")),
    "Schedule": frozenset(("disturbance",)),
    "SimulationClock": frozenset(("happened", "_order", "_at_once", "_queue")),
}


def fingerprint(cluster: SimulatedCluster) -> bytes:
    """The digest of a run between two alarms. Raises TypeError if something is in it that cannot be
    compared."""
    return digest_of(*cluster.clock.pending(), cluster)


def digest_of(*what: object) -> bytes:
    """The digest of objects, and of all that they refer to. Raises TypeError if something is in
    them that cannot be compared."""
    form = _Form()
    for each in what:
        form.add(each)
    return hashlib.blake2b(marshal.dumps(form.parts, 2), digest_size=16).digest()


class _Form:
    """What a state consists of, in an order that depends neither on addresses nor on hashes. An
    object that was met before is the number of its first meeting."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._random_ids: dict[str, int] = {}
        # Bound methods and other objects that exist only while they are met: their addresses must
        # not be used again.
        self._met: list[object] = []

    def add(self, what: Any) -> None:
        """Add an object, and all that it refers to."""
        kind = _kind(what)
        if kind is float:
            self.parts.append(round(what, _NANOSECONDS))
        elif kind is str:
            self.parts.append(self._without_random_ids(what))
        elif kind in _PLAIN:
            self.parts.append(what)
        elif issubclass(kind, tuple):
            self._add_all(kind.__qualname__, what)
        elif issubclass(kind, (frozenset, set)):
            self._add_unordered(kind.__qualname__, what)
        elif issubclass(kind, enum.Enum):
            self.parts += (kind.__qualname__, what.name)
        elif issubclass(kind, type):
            self.parts += ("type", what.__module__, what.__qualname__)
        elif id(what) in self._numbers:
            self.parts += ("known", self._numbers[id(what)])
        else:
            self._numbers[id(what)] = len(self._met)
            self._met.append(what)
            self._add_new(kind, what)

    def _add_new(self, kind: type[Any], what: Any) -> None:
        if issubclass(kind, (list, deque)):
            self._add_all(kind.__qualname__, what)
        elif issubclass(kind, dict):
            self._add_all(kind.__qualname__, (part for item in what.items() for part in item))
        elif kind is FunctionType:
            self.parts += (what.__module__, what.__qualname__, what.__code__.co_firstlineno)
            self._add_all(kind.__qualname__, what.__closure__ or ())
            self.add(what.__defaults__)
            self.add(what.__kwdefaults__)
        elif kind is CellType:
            self.add(_contents(what))
        elif kind is MethodType:
            self.add(what.__func__)
            self.add(what.__self__)
        elif kind is partial:
            self._add_all(kind.__qualname__, (what.func, what.args, what.keywords))
        elif issubclass(kind, Random) and kind is not Random:
            # It always draws the same.
            self.parts += (kind.__qualname__, what.random())
        elif kind in _NAMED_ALONE:
            self.parts.append(kind.__qualname__)
        elif kind in _WRITTEN_OUT or issubclass(kind, (int, str, bytes)):
            self.parts += (kind.__qualname__, repr(what))
        elif issubclass(kind, _OF_COROUTINES) or kind.__name__ in _OF_ASYNCIO:
            self._add_of_coroutine(kind, what)
        elif kind is Alarm and what.action is None:
            self.parts.append("an alarm that is over")
        else:
            self._add_object(kind, what)

    def _without_random_ids(self, text: str) -> str:
        """Transactional ids by the order in which they were met."""
        if len(text) < _SHORTEST_ID or _RANDOM_ID.search(text) is None:
            return text
        return f"id {self._random_ids.setdefault(text, len(self._random_ids))}"

    def _add_of_coroutine(self, kind: type[Any], what: Any) -> None:
        """Add a future, a task, a coroutine, or what calls or awaits one."""
        name, parts = kind.__qualname__, list[Any]()
        if issubclass(kind, asyncio.Future):
            callbacks = [callback for callback, _ in what._callbacks or ()]
            done = () if what._state != "FINISHED" else (what._result, what._exception)
            parts = [what._state, done, callbacks]
            if issubclass(kind, asyncio.Task):
                parts += (what.get_coro(), what._fut_waiter, what._must_cancel, what.cancelling())
        elif kind in (CoroutineType, GeneratorType):
            parts = _suspended(what)
        elif issubclass(kind, BaseException):
            parts = [what.args, what.__dict__]
        elif kind is BuiltinFunctionType:
            owner = what.__self__
            parts = [what.__qualname__, owner.__name__ if isinstance(owner, ModuleType) else owner]
        elif kind in _ITERATORS:
            parts = [*what.__reduce__()[1:]]
        else:
            parts = gc.get_referents(what)
        self._add_all(name, parts)

    def _add_all(self, kind: str, parts: Iterable[Any]) -> None:
        self.parts.append(kind)
        for part in parts:
            self.add(part)
        self.parts.append("end")

    def _add_unordered(self, kind: str, parts: Iterable[Any]) -> None:
        forms: list[bytes] = []
        for part in parts:
            own = _Form()
            own._numbers, own._met = self._numbers, self._met
            own._random_ids = self._random_ids
            own.add(part)
            forms.append(marshal.dumps(own.parts, 2))
        self.parts += (kind, *sorted(forms))

    def _add_object(self, kind: type[Any], what: Any) -> None:
        if kind.__module__ in _NOT_COMPARED:
            raise TypeError(f"{kind.__qualname__} of {kind.__module__} cannot be compared")
        names = _ATTRIBUTES.get(kind)
        if names is None:
            names = _ATTRIBUTES[kind] = _attributes(kind)
        if not (names or hasattr(what, "__dict__") or _has_slots(kind)):
            raise TypeError(
                f"{kind.__qualname__} of {kind.__module__} has no attributes to compare"
            )
        left_out = _LEFT_OUT.get(kind.__qualname__, frozenset())
        self.parts.append(kind.__qualname__)
        for name in (*names, *getattr(what, "__dict__", ())):
            if name not in left_out:
                self.parts.append(name)
                self.add(getattr(what, name, None))
        self.parts.append("end")


_PLAIN: Final = frozenset((type(None), bool, int, bytes))
# The configuration is that of this member in each run of its world; nothing uses contexts.
_NAMED_ALONE: Final = frozenset((ConsumerConfig, Context))
_WRITTEN_OUT: Final = frozenset((array, bytearray, count, range, timedelta))
_RANDOM_ID: Final = re.compile("-[0-9a-f]{32}$")
_SHORTEST_ID: Final = 33


_ITERATORS: Final[tuple[type[Any], ...]] = tuple(
    type(iter(each))
    for each in (list[int](), tuple[int](), dict[int, int](), dict[int, int]().items())
)
_OF_COROUTINES: Final[tuple[type[Any], ...]] = (
    asyncio.Future,
    CoroutineType,
    GeneratorType,
    BaseException,
    BuiltinFunctionType,
    *_ITERATORS,
)
# What awaits a future, and what lets a task take its next step: their types have no public names.
_OF_ASYNCIO: Final = frozenset(("FutureIter", "TaskStepMethWrapper"))
_NOT_COMPARED: Final = frozenset(
    ("_random", "random", "builtins", "_weakref", "weakref", "itertools", "_io")
)
_ATTRIBUTES: dict[type, tuple[str, ...]] = {}


def _kind(what: object) -> type[Any]:
    return type(what)


def _suspended(what: Any) -> list[object]:
    """Where a coroutine or a generator stands, its variables, and what else it holds: the referents
    of its frame that are no variables of it."""
    is_coroutine = _kind(what) is CoroutineType
    frame: FrameType | None = what.cr_frame if is_coroutine else what.gi_frame
    if frame is None:
        return [what.__qualname__, "over"]
    state = inspect.getcoroutinestate(what) if is_coroutine else inspect.getgeneratorstate(what)
    variables = frame.f_locals
    known = {*map(id, variables.values()), id(frame.f_globals), id(frame.f_builtins)}
    held = [
        each
        for each in gc.get_referents(what)
        if id(each) not in known and not isinstance(each, (FrameType, CodeType, FunctionType))
    ]
    return [what.__qualname__, state, frame.f_lasti, variables, held]


def _contents(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return "empty"


def _has_slots(kind: type) -> bool:
    return any("__slots__" in base.__dict__ for base in kind.__mro__)


def _attributes(kind: type) -> tuple[str, ...]:
    """The names of its slots, and those of its fields if it is a ``msgspec.Struct``."""
    names: dict[str, None] = {}
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            private = name.startswith("__") and not name.endswith("__")
            names[f"_{base.__name__.lstrip('_')}{name}" if private else name] = None
    fields = getattr(kind, "__struct_fields__", ())
    names.update(dict.fromkeys(cast("tuple[str, ...]", fields if type(fields) is tuple else ())))
    for name in ("__dict__", "__weakref__"):
        names.pop(name, None)
    return tuple(names)
