"""One call of a function in a worker process or interpreter, pickled both ways.

A worker imports this module, so it imports nothing that an interpreter of Python cannot load.
"""

from __future__ import annotations

import pickle
import signal
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, cast

from asyncrevoke.client.errors import HandlerProcessError
from asyncrevoke.client.printable import error_text, named_error
from asyncrevoke.client.runtime.hooks.application_traceback import application_traceback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

# Where a call runs that is pickled.
Worker: TypeAlias = Literal["process", "interpreter"]

# Both ask the parent to end. The parent lets its calls end first, and kills its workers then.
_SIGNALS_OF_PARENT = (signal.SIGINT, signal.SIGTERM)


def pickle_call(
    worker: Worker,
    name: str,
    function: Callable[..., object],
    args: Sequence[object],
    named: Mapping[str, object],
) -> bytes:
    """Pickle a call. HandlerProcessError names the argument that cannot be pickled."""
    try:
        return pickle.dumps((function, args, named), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        parts: dict[str, object] = {"the function itself": function}
        parts |= {f"argument {number}": value for number, value in enumerate(args, 1)}
        parts |= {f"argument {key}": value for key, value in named.items()}
        wrong = (part for part, value in parts.items() if not _is_picklable(value))
        raise HandlerProcessError(
            f"{name} runs in another {worker}, and {next(wrong, 'the call')} cannot be pickled: "
            f"{type(error).__name__}"
        ) from error


def run_in_process(name: str, call: bytes) -> bytes:
    """Make the call, in a worker process, and return its pickled result: see :func:`result_of`.

    Raises HandlerProcessError if the call cannot be imported, or if the result or the exception
    cannot be pickled.
    """
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS_OF_PARENT:
            signal.signal(number, signal.SIG_IGN)
    return _run("process", name, call)


def run_in_interpreter(path: list[str], name: str, call: bytes) -> bytes:
    """Do the same in an interpreter, which imports from ``path``.

    A new interpreter lacks what this process has added to ``sys.path``.
    """
    if not set(path) <= set(sys.path):
        sys.path[:] = path
    return _run("interpreter", name, call)


def listed(function: Callable[..., object], *args: object, **named: object) -> object:
    """Call a generator function, and return all its results."""
    return list(cast("Iterable[object]", function(*args, **named)))


def _run(worker: Worker, name: str, call: bytes) -> bytes:
    try:
        function, args, named = pickle.loads(call)  # noqa: S301 - made by the parent process
    except Exception as error:  # noqa: BLE001 - any error of a user's module
        fix = ""
        if worker == "interpreter":
            fix = ': use run_in="process", or a module that imports only what interpreters can load'
        raise HandlerProcessError(
            f"{name} runs in another {worker}, which cannot import the function or its arguments "
            f"({named_error(error)}){fix}"
        ) from None
    try:
        result = cast("Callable[..., object]", function)(*args, **named)
    except Exception as error:  # noqa: BLE001 - raised by result_of()
        lines = traceback.format_exception(type(error), error, application_traceback(error))
        trace = f"in the worker {worker}:\n{''.join(lines)}"
        for raised in (_Raised(error, trace), _RaisedParts.of(error, trace)):
            if _is_picklable(raised):
                return pickle.dumps(raised, pickle.HIGHEST_PROTOCOL)
        raise HandlerProcessError(
            f"{name} raised {type(error).__name__}, which cannot be pickled: {error_text(error)}"
        ) from None
    try:
        return pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001 - any error of a user's class
        raise HandlerProcessError(
            f"{name} runs in another {worker}, and the {type(result).__name__} that it returned "
            f"cannot be pickled: {type(error).__name__}"
        ) from None


class WorkerTraceback(Exception):  # noqa: N818 - the cause of an error, as in concurrent.futures
    """The traceback of an exception in a worker, as text."""


class _Raised(NamedTuple):
    error: Exception
    trace: str


class _RaisedParts:
    """An exception that cannot be pickled itself, because its class forbids attributes or takes
    other arguments than ``args``: it is made again without its constructor."""

    def __init__(
        self, kind: type[Exception], args: tuple[object, ...], state: dict[str, object], trace: str
    ) -> None:
        self.trace = trace
        self._parts = kind, args, state

    @classmethod
    def of(cls, error: Exception, trace: str) -> _RaisedParts:
        """The parts of an exception."""
        kind = type(error)
        slots = [name for base in kind.__mro__ for name in _slots(base) if hasattr(error, name)]
        state = {name: cast("object", getattr(error, name)) for name in slots}
        return cls(kind, error.args, {**vars(error), **state}, trace)

    def __reduce__(self) -> tuple[type[_RaisedParts], tuple[object, ...]]:
        self.error()  # it is not pickled if it cannot be made again
        return _RaisedParts, (*self._parts, self.trace)

    def error(self) -> Exception:
        """Make the exception."""
        kind, args, state = self._parts
        built_in = next(base for base in kind.__mro__ if base.__module__ == "builtins")
        made = cast("type[Exception]", built_in).__new__(kind, *args)
        for name, value in state.items():
            object.__setattr__(made, name, value)
        return made


def _slots(kind: type) -> Sequence[str]:
    slots = cast("str | Sequence[str]", vars(kind).get("__slots__", ()))
    return (slots,) if isinstance(slots, str) else slots


def result_of(pickled: bytes) -> object:
    """The result of a call. Raises the function's exception, with its traceback as the cause."""
    result: object = pickle.loads(pickled)  # noqa: S301 - of a worker of this process
    if isinstance(result, _Raised):
        raise result.error from WorkerTraceback(result.trace)
    if isinstance(result, _RaisedParts):
        raise result.error() from WorkerTraceback(result.trace)
    return result


def _is_picklable(value: object) -> bool:
    try:
        pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))  # noqa: S301 - its own bytes
    except Exception:  # noqa: BLE001 - any error of a user's class
        return False
    return True
