"""What a handler may know beside the value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from typing_extensions import TypeVar

from asyncrevoke.handlers.log import BoundLog

if TYPE_CHECKING:
    from asyncrevoke.handlers.log import Log
    from asyncrevoke.model import Record

StateT = TypeVar("StateT", default=object)


class HandlerContext(Generic[StateT]):
    """A parameter annotated ``HandlerContext`` receives this, made anew for each call.

    ``record`` is the record; of a batch it is the first one. ``attempt`` counts the calls for it,
    from 1; after a restart or a rebalance it begins again, but not for a record that has come back
    from a retry topic. ``state`` is what
    ``Consumer(resources=...)`` has opened, None without; ``HandlerContext[Database]`` gives it
    its type.
    """

    __slots__ = ("_log", "attempt", "record", "state")

    def __init__(self, record: Record, attempt: int, state: StateT, log: Log) -> None:
        self.record = record
        self.attempt = attempt
        self.state = state
        self._log = log

    @property
    def idempotency_key(self) -> tuple[str, int, int]:
        """Topic, partition and offset: the same for each call for this record, in any process.

        Store it beside the result, under a unique constraint, and doing it again does nothing.
        """
        return self.record.topic, self.record.partition, self.record.offset

    @property
    def log(self) -> BoundLog:
        """The consumer's logger, whose lines name the record and the attempt."""
        record = self.record
        return BoundLog(
            self._log,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            attempt=self.attempt,
        )
