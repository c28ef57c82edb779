"""What a handler may know beside the value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, cast

from typing_extensions import TypeVar

from asyncrevoke.handlers.policy.log import BoundLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.handlers.policy.log import Log
    from asyncrevoke.model import Record

StateT = TypeVar("StateT", default=object)
WorkerT = TypeVar("WorkerT", default=object)


class HandlerContext(Generic[StateT, WorkerT]):
    """A parameter annotated ``HandlerContext`` receives this, made anew for each call.

    ``record`` is the record; of a batch it is the first one. ``attempt`` counts the calls for it,
    from 1; after a restart or a rebalance it begins again, but not for a record that has come back
    from a retry topic. ``handler`` is the handler's name in logs: its module and qualified name.
    ``state`` is what ``Consumer(resources=...)`` has opened, None without, and ``worker_state``
    what ``worker_resources`` has, which no other call has at the same time;
    ``HandlerContext[Database, Session]`` gives them their types.
    """

    __slots__ = ("_log", "_records", "attempt", "handler", "record", "state", "worker_state")

    def __init__(
        self,
        record: Record,
        attempt: int,
        state: StateT,
        log: Log,
        handler: str = "",
        records: Sequence[Record] | None = None,
        worker_state: WorkerT = cast("WorkerT", None),  # noqa: B008 - it is None
    ) -> None:
        self.record = record
        self.attempt = attempt
        self.handler = handler
        self.state = state
        self.worker_state = worker_state
        self._log = log
        self._records = records

    @property
    def records(self) -> Sequence[Record]:
        """All records of the call: those of a batch, in offset order, or the one."""
        return (self.record,) if self._records is None else self._records

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
