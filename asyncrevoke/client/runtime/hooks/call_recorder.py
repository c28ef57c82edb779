"""Records the calls of handlers, in tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from asyncrevoke.client.model import Record

# What happens to a record whose handler has failed.
FailureDecision: TypeAlias = Literal[
    "retried",
    "sent_to_retry_topic",
    "dead_lettered",
    "skipped",
    "paused",
    "stopped",
    "abandoned",
]


class CallRecorder(Protocol):
    """Makes the calls of handlers and records them.

    Implemented by :class:`Calls` of asyncrevoke.testing, in a replay by :class:`ResultRows`.
    """

    def call(
        self,
        name: str,
        function: object,
        records: Sequence[Record],
        attempt: int,
        call: Callable[[], Awaitable[object]],
        /,
    ) -> Awaitable[object]:
        """Make this call of a handler, and record it."""
        ...

    def first_call(
        self, call: Callable[[Record], Awaitable[object]], /
    ) -> Callable[[Record], Awaitable[object]] | None:
        """A faster way than :meth:`call` to make and record the first call for a record, where
        there is no middleware; None if there is none. ``call`` makes the call."""
        ...

    def failure_decided(
        self, record: Record, decision: FailureDecision, error: BaseException, /
    ) -> None:
        """What happens to a record whose handler has failed, or whose value does not decode."""
