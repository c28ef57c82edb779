"""A digest of all that decides how a run goes on: cores, brokers, messages in flight, applications
and oracles.

From states of one world with equal fingerprints the same follows. Times are in it as they are: the
records of a small world and the end of its bounds have fixed times, so that nothing equal follows
from states at different times. They count to the nanosecond.
"""

from __future__ import annotations

import enum
import hashlib
import marshal
from collections import deque
from functools import partial
from random import Random
from types import CellType, FunctionType, MethodType
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
    "OracleState": frozenset(("trace", "counts", "duplicates", "digest", "strict", "lossy")),
    "Schedule": frozenset(("disturbance",)),
    "SimulationClock": frozenset(("happened", "_order", "_at_once", "_queue")),
}


def fingerprint(cluster: SimulatedCluster) -> bytes:
    """The digest of a run between two alarms. Raises TypeError if something is in it that cannot be
    compared."""
    form = _Form()
    for alarm in cluster.clock.pending():
        form.add(alarm)
    form.add(cluster)
    return hashlib.blake2b(marshal.dumps(form.parts, 2), digest_size=16).digest()


class _Form:
    """What a state consists of, in an order that depends neither on addresses nor on hashes. An
    object that was met before is the number of its first meeting."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self._numbers: dict[int, int] = {}
        # Bound methods and other objects that exist only while they are met: their addresses must
        # not be used again.
        self._met: list[object] = []

    def add(self, what: Any) -> None:
        """Add an object, and all that it refers to."""
        kind = _kind(what)
        if kind is float:
            self.parts.append(round(what, _NANOSECONDS))
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
        elif kind is bytearray:
            self.parts.append(bytes(what))
        elif kind is ConsumerConfig:
            # That of this member in each run of its world.
            self.parts.append(kind.__qualname__)
        elif kind is Alarm and what.action is None:
            self.parts.append("an alarm that is over")
        else:
            self._add_object(kind, what)

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
            own.add(part)
            forms.append(marshal.dumps(own.parts, 2))
        self.parts += (kind, *sorted(forms))

    def _add_object(self, kind: type[Any], what: Any) -> None:
        if kind.__module__ in _NOT_COMPARED:
            raise TypeError(f"{kind.__qualname__} of {kind.__module__} cannot be compared")
        names = _ATTRIBUTES.get(kind)
        if names is None:
            names = _ATTRIBUTES[kind] = _attributes(kind)
        left_out = _LEFT_OUT.get(kind.__qualname__, frozenset())
        self.parts.append(kind.__qualname__)
        for name in (*names, *getattr(what, "__dict__", ())):
            if name not in left_out:
                self.parts.append(name)
                self.add(getattr(what, name, None))
        self.parts.append("end")


_PLAIN: Final = frozenset((type(None), bool, int, str, bytes))
_NOT_COMPARED: Final = frozenset(
    ("_random", "random", "builtins", "_weakref", "weakref", "itertools", "_io")
)
_ATTRIBUTES: dict[type, tuple[str, ...]] = {}


def _kind(what: object) -> type[Any]:
    return type(what)


def _contents(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return "empty"


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
