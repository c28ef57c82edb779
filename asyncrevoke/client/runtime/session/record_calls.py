"""Methods of a consumer about records: iterating, completing, committing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from asyncrevoke.client.errors import ConfigError, ConsumerClosedError, PartitionLostError
from asyncrevoke.client.model import OffsetAndMetadata, PollResult, Record, TopicPartition
from asyncrevoke.client.protocol.dependencies import parser
from asyncrevoke.client.runtime.session.partition_calls import (
    Partition,
    SessionCalls,
    to_offsets,
    to_partitions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.runtime.arrow.arrow_steps import ArrowBatch, ArrowIterator
    from asyncrevoke.client.runtime.session.record_iterator import RecordIterator
    from asyncrevoke.client.runtime.session.session import Session


class RecordCalls(SessionCalls):
    """Methods of a consumer about records."""

    _config: ConsumerConfig

    def _load_parser(self) -> None:
        """Import what parses records, so that the event loop does not wait for it later."""
        parser.load()

    def _reading(self) -> Session:
        raise NotImplementedError

    def _needs_group(self, call: str) -> None:
        raise NotImplementedError

    def __aiter__(self) -> Self:
        self._reading()
        return self

    async def __anext__(self) -> PollResult:
        """The next step: waits for records, a revocation or a loss.

        The result has no records when a position has moved past offsets without any: transaction
        markers, aborted transactions, records that a former owner completed. So a loop that reads
        up to an offset reaches it.

        Cancelling it never loses records or ``lost``: the next call returns them.
        """
        return await self._reading().poll()

    async def poll(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - a result, not an error, ends it
        max_records: int | None = None,
    ) -> PollResult:
        """One step; an empty result after ``timeout`` seconds (None: no timeout, as in a loop).

        Calling this completes the previous batch. Returns at most ``max_records``, by default
        ``max_poll_records``. Raises ConsumerClosedError while the consumer is stopping, errors of
        partitions once, and a FatalError each time. Cancelling it loses no record: the next call
        returns them.
        """
        if max_records is not None and max_records < 1:
            raise ConfigError(f"max_records={max_records}: at least 1, or None for the default")
        result = await self._reading().step(timeout, max_records)
        if result is None:
            raise ConsumerClosedError("the consumer is stopping: there are no further records")
        return result

    def records(self) -> RecordIterator:
        """Iterate over single records (``async for record in ...``): asking for the next one
        completes the last one.

        Records that the iterator has not returned yet do not count as delivered: a seek, pause,
        stop, close, unsubscribe, revocation or loss applies to them. Asking for a record restarts
        ``max_poll_interval``. Cancelling a step loses none. After a loop that was left early, the
        next one (over records or batches) continues after the last returned record, and completes
        it.
        """
        return self._reading().records()

    def arrow_batches(
        self,
        columns: Sequence[str] | None = None,
        max_records: int | None = None,
        max_wait: float = 0.0,
    ) -> ArrowIterator:
        """Iterate over records in columns: each step returns an :class:`ArrowBatch`.

        ::

            async for batch in consumer.arrow_batches(["key", "value"], max_wait=1.0):
                store(batch.records)

        ``columns`` are, in this order: ``key``, ``value`` (binary, null if the record has none),
        ``headers`` (list of structs of ``key`` and ``value``), ``topic``, ``partition`` (int32),
        ``offset`` (int64), ``timestamp`` (microseconds, UTC), ``timestamp_type`` (int32, as in
        :class:`Record`); by default all of them. ``headers`` makes an object of each record in
        batches in which a record has some.

        A step returns up to ``max_records`` (65,536 by default), or about 256 MiB, of all
        partitions, in offset order for each. It waits for so many up to ``max_wait`` seconds after
        the first were fetched, unless a partition is revoked or lost, or its buffer is full. By
        default it returns what was fetched. The Arrow batch owns its memory.

        Requesting the next batch completes the last one, as in a loop over the consumer; revocation
        and commits are the same. A record that cannot be read, or whose timestamp has no
        microseconds in Arrow, raises UnreadableRecordError after the records before it.

        Needs the extra ``arrow``: raises ConfigError without it, and for a wrong option. With the
        extra ``numba`` it takes less processor time. Cancelling a step loses no record.
        """
        from asyncrevoke.client.runtime.arrow.arrow_options import ArrowOptions
        from asyncrevoke.client.runtime.arrow.arrow_steps import ArrowIterator

        options = ArrowOptions(columns, max_records, max_wait)
        return ArrowIterator(self._reading(), options)

    def delay_revoke(self, partitions: Iterable[Partition]) -> bool:
        """Keep partitions whose revocation was announced, at least until the next step (KIP-983).

        True if all of them are kept (or their revocation was withdrawn). False if one was lost or
        released since the announcement; the others are kept. Raises ValueError, and keeps none,
        for a partition that no result has announced.
        """
        session = self._entered()
        wanted = to_partitions(partitions)
        return session.call(session.core.delay_revoke, wanted)

    def ack(self, record: Record | ArrowBatch) -> bool:
        """Complete one record, or all of an Arrow batch, in any order. Needs ``commit_mode="ack"``.

        True also if it was completed before. False if its partition is lost or released: then
        nothing happens. Raises ValueError for a record of another consumer. For an Arrow batch:
        records of partitions that are lost or released are ignored, and False if those are all.
        """
        session = self._session
        if session is None or self._config.commit_mode != "ack":
            session = self._entered_once()
            raise ConfigError(
                f'ack() needs commit_mode="ack", this consumer has "{self._config.commit_mode}"'
            )
        session.check_thread()
        if not isinstance(record, Record):
            return session.complete_slices(record.slices)
        return session.complete(record)

    async def commit(
        self,
        what: Record
        | Mapping[TopicPartition, int | OffsetAndMetadata]
        | Mapping[tuple[str, int], int | OffsetAndMetadata]
        | None = None,
    ) -> None:
        """Commit, and return when the broker has acknowledged it.

        Without an argument, commits completed records; in ``"manual"`` mode all delivered records,
        the current batch included. In that mode it also takes a record (commits its offset + 1), or
        the next offset to read for each partition, which may be lower than the committed one. If
        the position of a partition is not known yet, the partition then starts at that offset.

        In a handler it commits the records that are completed: not the one that it handles, which
        is completed when the handler has returned.

        Raises PartitionsError if the broker rejects the commit (TopicAuthorizationError without
        access). Completed records are committed again automatically, an argument is not. Raises
        PartitionLostError if a partition is not assigned any more (then nothing is sent), or is
        lost before the commit is acknowledged; ConsumerClosedError if the consumer closes first;
        ConfigError for an argument in another mode, or without a group. Waits as long as no
        coordinator responds; if cancelled, the commit goes on without being waited for.
        """
        session = self._entered()
        self._needs_group("commit")
        offsets = None if what is None else to_offsets(what, self._config.commit_mode)
        if isinstance(what, Record) and not session.core.owns(what):
            raise PartitionLostError([what.topic_partition])
        if (writer := session.transactions.writer) is not None:
            await writer.commit()
        await session.ask(session.core.commit, offsets)
