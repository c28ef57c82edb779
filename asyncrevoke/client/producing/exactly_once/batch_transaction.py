"""A transaction for the last batch of a loop of the user's own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from asyncrevoke.client.errors import IllegalStateError, PartitionLostError, PublishError
from asyncrevoke.client.producing.encoding import encode_record
from asyncrevoke.client.producing.exactly_once.transaction_limit import MOST_BYTES
from asyncrevoke.client.producing.record_batch import record_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.client.model import Record, TopicPartition
    from asyncrevoke.client.producing.exactly_once.record_transactions import RecordTransactions
    from asyncrevoke.client.producing.message import Headers, ResultOfRecord
    from asyncrevoke.client.runtime.session.session import Session


class BatchTransaction:
    """Results of the last batch, which readers with ``read_committed`` see together with its
    offsets, or not at all; an async context manager.

    Results are kept until the block ends, and are then written and committed. If the block raises
    an exception, nothing is written, and the next step returns the batch again. ``lost``: the
    partitions of the batch that this member had lost when the transaction was committed, without
    their results.
    """

    def __init__(self, session: Session, transactions: RecordTransactions) -> None:
        self._session = session
        self._transactions = transactions
        self._results: list[ResultOfRecord] = []
        self._size = 0
        self._batch: dict[TopicPartition, int] = {}
        self._state = "not entered"
        # How many transactions of it were not written in time.
        self.timed_out = 0
        self.lost: frozenset[TopicPartition] = frozenset()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Self:
        if self._state != "not entered":
            raise IllegalStateError("a transaction is entered once: call transaction() again")
        self._transactions.open_batch(self)
        self._state = "open"
        self._batch = {
            instance.partition: offset
            for instance, offset in self._session.core.returned_records.last_batch().items()
        }
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        self._state = "ended"
        try:
            if kind is None:
                await self._transactions.commit_batch(self)
        except BaseException:
            if not self.is_committed:
                self._go_back()
            raise
        finally:
            self._transactions.close_batch()
        if kind is not None:
            self._go_back()

    def publish(
        self,
        topic: str,
        value: object,
        *,
        record: Record | None = None,
        key: bytes | str | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Add a result, which is written when the block ends; of ``record``, if it is given.

        If the partition of ``record`` is lost before the commit, the result is left out. Results
        without a ``record`` cannot be told apart: if any partition of the batch is lost, the
        transaction then fails with PartitionLostError. The other arguments are those of
        :meth:`Producer.publish`. Raises PublishError if the value cannot be encoded, or the
        transaction would have more than 32 MiB, and IllegalStateError outside the block.
        """
        if self._state != "open":
            raise IllegalStateError(f"the transaction is {self._state}: publish inside its block")
        result = encode_record(topic, value, key, headers, partition, timestamp)
        size = self._size + record_bytes(result.key, result.value, result.headers)
        if size > MOST_BYTES:
            why = f"a transaction takes at most {MOST_BYTES} bytes: lower max_poll_records"
            raise PublishError(topic, why)
        self._size = size
        self._results.append((result, record))

    def results_without(self, lost: Iterable[TopicPartition]) -> list[ResultOfRecord]:
        """The results to write if these partitions of the batch are lost.

        Raises PartitionLostError.
        """
        self.lost = frozenset(lost)
        if self.lost and any(record is None for _, record in self._results):
            raise PartitionLostError(sorted(self.lost))
        return [
            (result, record)
            for result, record in self._results
            if record is None or record.topic_partition not in self.lost
        ]

    @property
    def is_committed(self) -> bool:
        """Whether its results are visible."""
        return self.ended.done() and self.ended.exception() is None

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions of the batch."""
        return frozenset(self._batch)

    @property
    def count(self) -> int:
        """The records of the batch."""
        return self._session.core.returned_records.last_batch_count

    def _go_back(self) -> None:
        """The next step returns the batch again, as far as its partitions are still assigned."""
        session = self._session
        if session.closed or session.has_failed:
            return
        for partition, offset in self._batch.items():
            session.drop_after(partition, offset - 1)
