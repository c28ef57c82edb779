"""A session whose partition A has finished records, and a producer that the test scripts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from unit.core.commit.scripted_commits import A
from unit.core.commit.test_transactional_committer import TransactionalGroup

from asyncrevoke.client.core.io.effects import TransactionDue
from asyncrevoke.client.core.partition.record_buffer import RecordBuffer
from asyncrevoke.client.model import OffsetAndMetadata, Record
from asyncrevoke.client.producing.exactly_once import transactional_producer
from asyncrevoke.client.producing.exactly_once.batch_transaction import BatchTransaction
from asyncrevoke.client.producing.exactly_once.record_transactions import RecordTransactions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest

    from asyncrevoke.client.core.partition.instance import PartitionInstance
    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.client.producing.message import RecordFields
    from asyncrevoke.client.producing.transactions.group_offsets import GroupOffsets
    from asyncrevoke.client.runtime.session.session import Session


class _NoLog:
    def write(self, _level: str, _event: str, _fields: object) -> None:
        pass


class ScriptedProducer:
    """Commits raise the next error of ``commits``, and succeed without one."""

    def __init__(self) -> None:
        self.commits: list[Exception] = []
        self.settles: list[Exception] = []
        self.written: list[list[bytes | None]] = []
        self.offsets: list[dict[TopicPartition, int]] = []
        self.fatal_error: Exception | None = None
        self.closed = False
        self.is_held = asyncio.Event()
        self.let_go = asyncio.Event()
        self.let_go.set()

    async def commit_transaction(
        self, records: Sequence[RecordFields], offsets: GroupOffsets, _written: object = None
    ) -> None:
        self.is_held.set()
        await self.let_go.wait()
        self.written.append([value for _, _, _, value, _, _ in records])
        self.offsets.append({entry.partition: entry.offset for entry in offsets.entries})
        if self.commits:
            raise self.commits.pop(0)

    async def transaction_settled(self) -> None:
        if self.settles:
            raise self.settles.pop(0)
        if self.fatal_error is not None:
            raise self.fatal_error

    def abort_transaction(self, _error: Exception) -> bool:
        return False

    async def aclose(self) -> None:
        self.closed = True


class ScriptedSession(TransactionalGroup):
    """Carries out the effects of the committer, and is the core of the session, too."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int, **options: Any) -> None:
        super().__init__(count, **options)
        self.core = self
        self.returned_records = self.returned
        self.log = _NoLog()
        self.observers = self.requests = self.bootstrap = self.wall_clock = None
        self.recorder = None
        self.uses_threads = self.closed = False
        self.failure: BaseException | None = None
        self.abandoned: list[int] = []
        self.rewound: list[int] = []
        # What the broker holds.
        self.held, self.held_metadata = 0, ""
        self.turns = 0
        self.loop = asyncio.get_running_loop()
        self.producers: list[ScriptedProducer] = [ScriptedProducer()]
        self._made = 0
        monkeypatch.setattr(transactional_producer, "RecordProducer", self._make_producer)
        self.transactions = RecordTransactions(cast("Session", self))

    def _make_producer(self, *_arguments: object, **_options: object) -> ScriptedProducer:
        self._made += 1
        if self._made > len(self.producers):
            self.producers.append(ScriptedProducer())
        return self.producers[self._made - 1]

    @property
    def has_failed(self) -> bool:
        return self.failure is not None

    def fail(self, error: BaseException) -> None:
        self.failure = error

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        try:
            return function(1.0, *arguments, **options)
        finally:
            self.carry_out()

    def carry_out(self) -> None:
        for effect in self.outbox.take():
            if isinstance(effect, TransactionDue):
                self.turns += 1
                self.transactions.transaction_due()

    async def ask(self, _function: object, partitions: list[TopicPartition]) -> object:
        await asyncio.sleep(0)
        return dict.fromkeys(partitions, OffsetAndMetadata(self.held, self.held_metadata))

    def abandon_all(self, records: Sequence[Record]) -> None:
        self.abandoned += [record.offset for record in records]

    def return_batch(self, instance: PartitionInstance, count: int) -> BatchTransaction:
        """A poll returns a batch of one partition, for the block of a transaction."""
        tracker = instance.tracker
        assert tracker is not None
        records = [
            Record(*instance.partition, offset, 0, 0, None, None, (), tracker.tracker_id)
            for offset in range(tracker.position, tracker.position + count)
        ]
        instance.set_buffer(
            RecordBuffer(instance.partition, tracker.tracker_id, records[-1].offset + 1, None, 0)
        )
        self.returned.deliver(instance.partition, records)
        return BatchTransaction(cast("Session", self), self.transactions)

    def drop_after(self, _partition: TopicPartition, offset: int) -> None:
        self.rewound.append(offset + 1)

    def record(self, offset: int) -> Record:
        return Record(*A, offset, 0, 0, None, None, (), self.tracker.tracker_id)

    async def end(self) -> None:
        await self.transactions.aclose()
