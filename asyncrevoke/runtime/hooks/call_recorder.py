"""Who writes down calls of handlers, in a world made for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from asyncrevoke.model import Record

# What becomes of a record whose call has failed.
Decision: TypeAlias = Literal[
    "retried", "dead_lettered", "skipped", "paused", "stopped", "abandoned"
]


class CallLog(Protocol):
    """Makes calls and remembers them."""

    def call(
        self,
        name: str,
        function: object,
        records: Sequence[Record],
        attempt: int,
        call: Callable[[], Awaitable[object]],
        /,
    ) -> Awaitable[object]:
        """Make this call of a handler, and write it down."""
        ...

    def first(
        self, call: Callable[[Record], Awaitable[object]], /
    ) -> Callable[[Record], Awaitable[object]] | None:
        """What makes and writes down the first call of records that nothing goes around, in a
        shorter way than :meth:`call`; None if there is no shorter one. ``call`` makes it."""
        ...

    def decided(self, record: Record, decision: Decision, error: BaseException, /) -> None:
        """This becomes of a record whose call has failed, or whose value does not decode."""
        ...
