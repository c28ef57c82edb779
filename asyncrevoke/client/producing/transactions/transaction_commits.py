"""Commits the transactions of a producer, one after another."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from asyncrevoke.client.errors import ConsumerClosedError, PublishError, TransactionError
from asyncrevoke.client.producing.queueing.result_topics import PartitionsUnknownError
from asyncrevoke.client.producing.transactions.transaction import (
    RecordsRefusedError,
    Transaction,
    TransactionTimedOutError,
    transaction_batches,
)
from asyncrevoke.client.producing.transactions.transaction_core import TransactionCore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.client.producing.message import RecordFields
    from asyncrevoke.client.producing.queueing.result_topics import OutputPartitions, ResultTopics
    from asyncrevoke.client.producing.record_batch import ResultBatch
    from asyncrevoke.client.producing.transactions.group_offsets import GroupOffsets
    from asyncrevoke.client.producing.transactions.transaction import PlacedRecord

# A transaction fails after this many times ``request_timeout``.
_ATTEMPTS: Final = 3


class Sender(Protocol):
    """Sends the requests of the core. Implemented by :class:`RecordProducer`."""

    async def partitions(self, topic: str) -> OutputPartitions:
        """The partitions of a topic. Raises PublishError."""
        ...

    def begin_turn(self) -> int:
        """Send requests at the end of this iteration of the event loop. Returns the timestamp of
        its records, in milliseconds."""
        ...

    def send_now(self) -> None:
        """Send the requests that are due."""

    async def change(self) -> None:
        """Wait until a response is processed."""


class _Unreported:
    """Records of a transaction are not reported: its end is."""

    def results_acknowledged(
        self, tokens: Sequence[object], partition: TopicPartition, offset: int, /
    ) -> None:
        """The transaction is committed."""

    def results_failed(self, tokens: Sequence[object], error: Exception, /) -> None:
        """The transaction has failed."""


class TransactionCommits:
    """``core`` has the present transaction. ``compression`` is the number in the attributes of a
    record batch, ``request_timeout`` is in seconds."""

    def __init__(
        self,
        sender: Sender,
        topics: ResultTopics,
        transactional_id: str,
        *,
        timeout: float,
        request_timeout: float,
        metadata_max_age: float,
        compression: int,
    ) -> None:
        self._sender = sender
        self._topics = topics
        self._request_timeout = request_timeout
        self._compression = compression
        self.core = TransactionCore(
            topics,
            transactional_id,
            timeout=timeout,
            request_timeout=request_timeout,
            metadata_max_age=metadata_max_age,
            ended=self._transaction_ended,
        )
        self._turn = asyncio.Lock()
        self._no_transaction = asyncio.Event()
        self._no_transaction.set()
        # The batches of the next one are made, unless it is aborted for this reason.
        self._preparing: asyncio.Task[list[tuple[TopicPartition, ResultBatch]]] | None = None
        self._abort_reason: Exception | None = None

    async def commit(
        self,
        records: Sequence[RecordFields],
        offsets: GroupOffsets | None = None,
        written: Callable[[Iterable[PlacedRecord]], None] | None = None,
    ) -> None:
        """See :meth:`RecordProducer.commit_transaction`."""
        if offsets is not None and not offsets.entries:
            offsets = None
        if not records and offsets is None:
            return
        async with self._turn:
            await self._write(await self._prepare(records), offsets, written)

    async def _prepare(
        self, records: Sequence[RecordFields]
    ) -> list[tuple[TopicPartition, ResultBatch]]:
        """The batches of a transaction, when it may begin; :meth:`abort` ends this."""
        preparing = asyncio.create_task(self._batches(records), name="asyncrevoke transaction")
        self._preparing = preparing
        batches: list[tuple[TopicPartition, ResultBatch]] = []
        task = asyncio.current_task()
        assert task is not None
        try:
            batches = await preparing
        except asyncio.CancelledError:
            if self._abort_reason is None or task.cancelling():
                raise
        finally:
            reason, self._abort_reason, self._preparing = self._abort_reason, None, None
        if reason is not None:
            raise reason
        return batches

    async def _batches(
        self, records: Sequence[RecordFields]
    ) -> list[tuple[TopicPartition, ResultBatch]]:
        for topic in dict.fromkeys(record[0] for record in records):
            try:
                await self._sender.partitions(topic)
            except PartitionsUnknownError as error:
                raise TransactionTimedOutError(str(error)) from error
            except PublishError as error:
                refused = [record for record in records if record[0] == topic]
                raise RecordsRefusedError(topic, error.reason, refused) from error
        batches = transaction_batches(
            self._topics, records, self._compression, self._sender.begin_turn(), _Unreported()
        )
        for _, batch in batches:
            if batch.is_slow_to_compress:
                await asyncio.get_running_loop().run_in_executor(None, batch.compress)
        # The one before may still be aborted, because its commit was cancelled.
        await self._no_transaction.wait()
        return batches

    async def _write(
        self,
        batches: list[tuple[TopicPartition, ResultBatch]],
        offsets: GroupOffsets | None,
        written: Callable[[Iterable[PlacedRecord]], None] | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._sender.begin_turn()
        self._no_transaction.clear()
        outcome: asyncio.Future[Exception | None] = loop.create_future()

        def ended(error: Exception | None) -> None:
            if not outcome.done():
                outcome.set_result(error)

        give_up_at = loop.time() + _ATTEMPTS * self._request_timeout
        self.core.begin(Transaction(batches, give_up_at, offsets, ended, written))
        try:
            error = await outcome
        except asyncio.CancelledError:
            self.abort(TransactionError("the commit was cancelled"))
            raise
        if error is not None:
            raise error

    def abort(self, error: Exception) -> bool:
        """See :meth:`RecordProducer.abort_transaction`."""
        if self._preparing is not None:
            self._abort_reason = error
            self._preparing.cancel()
            return True
        if not self.core.cancel(asyncio.get_running_loop().time(), error):
            return False
        self._sender.send_now()
        return True

    async def settled(self) -> None:
        """See :meth:`RecordProducer.transaction_settled`."""
        try:
            async with asyncio.timeout(_ATTEMPTS * self._request_timeout):
                while not self.core.settle():
                    if self.core.fatal is not None:
                        raise self.core.fatal
                    self._sender.begin_turn()
                    await self._sender.change()
        except TimeoutError:
            why = f"it is not known how the last transaction ended: {self.core.last_failure}"
            raise TransactionError(why, in_doubt=True) from None

    async def aclose(self) -> None:
        """Abort a transaction whose commit was not sent, and wait for the end for at most
        ``request_timeout``."""
        if self.core.is_free:
            return
        self.abort(ConsumerClosedError("the producer was closed before the commit"))
        with suppress(TimeoutError):
            async with asyncio.timeout(self._request_timeout):
                await self._no_transaction.wait()

    def _transaction_ended(self) -> None:
        self._no_transaction.set()
