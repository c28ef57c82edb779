"""Writes replayed dead letters in transactions, and finds out how those of a killed replay ended.

A transaction has the records, and for a group that only this journal has, the offset after the last
dead letter of each partition. Its number is in the metadata of these offsets:

    journal: the dead letters of transaction 7 (on disk)
    Produce, TxnOffsetCommit with "ID:7", EndTxn
    journal: transaction 7 is committed (on disk)

After a crash in between, InitProducerId ends what is open. Then the committed metadata say it:
"ID:7" if the transaction was committed, the number of an earlier one if it was aborted (KIP-98,
KIP-447).
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, Self

from asyncrevoke.client import log_events
from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.errors import AsyncRevokeError, IllegalStateError
from asyncrevoke.client.groups.changes.deletion import delete_group
from asyncrevoke.client.groups.cluster import GroupsClient, check
from asyncrevoke.client.groups.errors import (
    BrokerUnavailableError,
    CoordinatorUnavailableError,
    NoGroupError,
)
from asyncrevoke.client.model import GroupMetadata, TopicPartition
from asyncrevoke.client.producing.publishing.producer import ProducerWithOwnConnections
from asyncrevoke.client.producing.transactions.group_offsets import GroupOffsets
from asyncrevoke.client.producing.transactions.transaction import RecordsRefusedError
from asyncrevoke.client.protocol.messages import (
    CommitEntry,
    ErrorCode,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.dead_letters.errors import DeadLettersError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.producing.message import PublishedRecord
    from asyncrevoke.client.producing.record_producer import RecordProducer
    from asyncrevoke.client.protocol.messages import FetchedOffset
    from asyncrevoke.dead_letters.replay_journal import ReplayJournal

_PREFIX: Final = "asyncrevoke-replay-"
# Seconds after which the coordinator aborts a transaction; it looks every 10 s.
_TRANSACTION_TIMEOUT: Final = 10.0
_SETTLED_WITHIN: Final = 30.0
_LONGEST_NUMBER: Final = 19


class ReplayTransactions:
    """The transactions of one replay of ``topic``, used inside ``async with``.

    ``config`` has the connection options. Entering it finds out how the transactions ended of which
    the journal does not have the end. Raises DeadLettersError if a coordinator cannot be asked.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        topic: str,
        ranges: Mapping[TopicPartition, range],
        journal: ReplayJournal,
    ) -> None:
        self._config = config
        self._topic = topic
        self._ranges = ranges
        self._journal = journal
        self._id = ""
        self._stack = AsyncExitStack()
        self._producer: RecordProducer | None = None
        # The committed offset of each partition.
        self._offsets: dict[int, int] = {}

    async def __aenter__(self) -> Self:
        journal = self._journal
        known = journal.transactional_id
        self._id = known or f"{_PREFIX}{uuid.uuid4().hex}"
        if known is None:
            journal.begin_transactions(self._id)
        connections = ProducerWithOwnConnections(
            self._config, transactional_id=self._id, transaction_timeout=_TRANSACTION_TIMEOUT
        )
        try:
            self._producer = await self._stack.enter_async_context(connections)
            await self._begin(self._producer)
        except BaseException as error:
            await self._stack.aclose()
            if isinstance(error, AsyncRevokeError) and not isinstance(error, DeadLettersError):
                raise DeadLettersError(str(error)) from error
            raise
        return self

    async def __aexit__(self, kind: object, _error: object, _trace: object) -> None:
        self._producer = None
        await self._stack.aclose()
        if kind is None and not self._journal.unended_transactions():
            await self._delete_group()

    async def _delete_group(self) -> None:
        """Delete the group of the journal, which has the end of each transaction: the next replay
        does not read these offsets, and commits others."""
        try:
            # The coordinator has written the marker of the last transaction when this returns.
            await self._committed_offsets()
            async with GroupsClient(self._config) as brokers:
                await delete_group(brokers, self._id)
        except NoGroupError:
            pass  # offsets have expired
        except AsyncRevokeError as error:
            log_events.REPLAY_GROUP_STAYS.write_to(EventLog(), group=self._id, reason=str(error))

    async def write(
        self, places: Sequence[tuple[int, int]], records: Sequence[PublishedRecord]
    ) -> None:
        """Commit the records of these dead letters (partition and offset) in one transaction.

        Raises RecordsRefusedError, when nothing of it is visible. After any other error the journal
        does not have its end: the next replay finds it out.
        """
        number = self._journal.begin_transaction(places)
        after: dict[int, int] = {}
        for partition, offset in places:
            after[partition] = max(after.get(partition, -1), offset + 1)
        await self._commit(number, records, after)

    async def _commit(
        self, number: int, records: Sequence[PublishedRecord], after: Mapping[int, int]
    ) -> None:
        if self._producer is None:
            raise IllegalStateError("the transactions of a replay are used inside `async with`")
        offsets = {part: max(at, self._offsets.get(part, -1)) for part, at in after.items()}
        entries = tuple(
            CommitEntry(
                partition=TopicPartition(self._topic, partition),
                offset=offset,
                metadata=f"{self._id}:{number}",
            )
            for partition, offset in offsets.items()
        )
        try:
            await self._producer.commit_transaction(
                records, GroupOffsets(GroupMetadata(self._id), entries)
            )
        except RecordsRefusedError:
            self._journal.transaction_ended(number, committed=False)
            raise
        self._offsets |= offsets
        self._journal.transaction_ended(number, committed=True)

    # --- what a former replay has left -----------------------------------------------------------

    async def _begin(self, producer: RecordProducer) -> None:
        await producer.transaction_settled()
        found = await self._committed_offsets()
        numbers: dict[int, int] = {}
        for partition, committed in found.items():
            self._offsets[partition] = committed.offset
            if (number := self._number_in(committed.metadata)) is not None:
                numbers[partition] = number
        for number, partitions in self._journal.unended_transactions().items():
            last = [numbers.get(partition, number + 1) for partition in partitions]
            if number in last:
                self._journal.transaction_ended(number, committed=True)
            elif all(each < number for each in last):
                self._journal.transaction_ended(number, committed=False)
            else:
                # The offsets have expired or were deleted (offsets.retention.minutes).
                self._journal.transaction_unknown(number)
        # So that a partition whose transaction is aborted has the number of an earlier one.
        starts = {tp.partition: offsets.start for tp, offsets in self._ranges.items()}
        first = {part: start for part, start in starts.items() if part not in numbers}
        if first:
            await self._commit(self._journal.begin_transaction(), (), first)

    def _number_in(self, metadata: str) -> int | None:
        """The number of the transaction of this journal that has committed an offset."""
        name, _, number = metadata.rpartition(":")
        is_number = number.isascii() and number.isdecimal() and len(number) <= _LONGEST_NUMBER
        return int(number) if name == self._id and is_number else None

    async def _committed_offsets(self) -> dict[int, FetchedOffset]:
        """The committed offsets by partition, when no transaction is open any more."""
        loop = asyncio.get_running_loop()
        give_up_at, backoff = loop.time() + _SETTLED_WITHIN, Backoff(0.05, 1.0)
        async with GroupsClient(self._config) as brokers:
            while True:
                try:
                    return await self._ask(brokers)
                except (BrokerUnavailableError, CoordinatorUnavailableError) as error:
                    if loop.time() >= give_up_at:
                        raise DeadLettersError(
                            "it is not known which transactions of a former replay were "
                            f"committed: {error}"
                        ) from error
                await asyncio.sleep(backoff.failed())

    async def _ask(self, brokers: GroupsClient) -> dict[int, FetchedOffset]:
        what = f"the offsets of group {self._id!r}"
        partitions: Collection[TopicPartition] = self._ranges.keys()
        request = OffsetFetchRequest(group_id=self._id, partitions=tuple(partitions))
        node = await brokers.coordinator(self._id)
        response = await brokers.send(node, request, OffsetFetchResponse)
        if response.error is ErrorCode.group_id_not_found:
            return {}
        for error in (response.error, *(found.error for found in response.offsets)):
            if error is ErrorCode.unstable_offset_commit:
                raise CoordinatorUnavailableError(f"{what}: the broker returned {error.name}")
            check(error, what)
        return {
            found.partition.partition: found
            for found in response.offsets
            if found.offset >= 0 and found.partition in self._ranges
        }
