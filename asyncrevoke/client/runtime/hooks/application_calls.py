"""Knows which code of the application has led to a call of the consumer."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING

from asyncrevoke.client.errors import IllegalStateError

if TYPE_CHECKING:
    from collections.abc import Generator


class _Call:
    """A call of the application's code, for which closing the consumer of ``owner`` waits."""

    __slots__ = ("owner", "running")

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.running = True


# The calls that have led to the current task: a task that a handler creates has those of the
# handler. Set once in the context of the workers, not for each record.
_calls: ContextVar[tuple[_Call, ...]] = ContextVar("calls", default=())


def run_handlers_of(owner: object, context: Context) -> None:
    """Tasks with this context run handlers of this owner."""
    context.run(_calls.set, (*_calls.get(), _Call(owner)))


@contextmanager
def calling(owner: object) -> Generator[None]:
    """Inside, the current task calls a callback of this owner."""
    call = _Call(owner)
    token = _calls.set((*_calls.get(), call))
    try:
        yield
    finally:
        call.running = False
        _calls.reset(token)


def is_called_by(*owners: object) -> bool:
    """Whether the current task, or the one that has created it, runs a handler or a callback of one
    of these owners."""
    return any(call.running and call.owner in owners for call in _calls.get())


def would_wait(method: str, instead: str) -> IllegalStateError:
    """The error of a method that waits for the code that calls it."""
    return IllegalStateError(
        f"{method} would wait for the handler, task of a task group, partition lifespan or "
        f"callback of a listener that calls it: {instead}"
    )
