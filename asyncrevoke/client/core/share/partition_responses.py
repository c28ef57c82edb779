"""What brokers respond for each partition of a share session: records, and whether acknowledgements
are applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.core.share.acquired_records import (
    offsets_without_records,
    read_acquired,
)
from asyncrevoke.client.core.share.error_table import (
    AcknowledgeErrorAction,
    PartitionErrorAction,
    acknowledge_error_action,
    partition_error_action,
)
from asyncrevoke.client.core.share.partition_delays import PartitionDelays
from asyncrevoke.client.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncrevoke.client.core.io.effects import Node
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.share.acknowledgements import AcknowledgedRange, Acknowledgements
    from asyncrevoke.client.core.share.held_records import HeldRecords
    from asyncrevoke.client.core.share.reactions import ShareReactions
    from asyncrevoke.client.protocol.records import RecordDecoder
    from asyncrevoke.client.protocol.share_messages import ShareFetchedPartition, TopicIdPartition


class PartitionResponses:
    """Of one session. ``names`` has the topics of partitions that were ever fetched; those that are
    ``delayed`` are not fetched for a time."""

    def __init__(
        self,
        outbox: Outbox,
        node: Node,
        held: HeldRecords,
        acknowledgements: Acknowledgements,
        decode: RecordDecoder,
        reactions: ShareReactions,
    ) -> None:
        self._outbox = outbox
        self._node = node
        self._held = held
        self._acknowledgements = acknowledgements
        self._decode = decode
        self._reactions = reactions
        self.names: dict[TopicIdPartition, str] = {}
        self.delayed = PartitionDelays()

    def acknowledged(
        self,
        now: float,
        sent_at: float,
        sent: Mapping[TopicIdPartition, Sequence[AcknowledgedRange]],
        errors: Mapping[TopicIdPartition, ErrorCode],
        lock_timeout: float,
    ) -> None:
        """The response to what was ``sent`` has these errors."""
        for partition, ranges in sent.items():
            error = errors.get(partition, ErrorCode.unknown_server_error)
            if error is ErrorCode.none:
                self._acknowledgements.applied(ranges, sent_at, lock_timeout)
                continue
            match acknowledge_error_action(error):
                case AcknowledgeErrorAction.SPLIT:
                    self._acknowledgements.refused(partition, ranges)
                case AcknowledgeErrorAction.LEADER_MOVED:
                    self._leader_moved(now, partition, error)
                case AcknowledgeErrorAction.LOSE:
                    self._acknowledgements.no_response(ranges)

    def fetched(
        self, now: float, sent_at: float, lock_timeout: float, fetched: ShareFetchedPartition
    ) -> None:
        """A fetch that was sent then has this response for one partition."""
        partition = fetched.partition
        if fetched.error is ErrorCode.none:
            if fetched.acquired:
                self._acquired(now, sent_at, lock_timeout, fetched)
            self.delayed.served(partition)
            return
        match partition_error_action(fetched.error):
            case PartitionErrorAction.LEADER_MOVED:
                self._leader_moved(now, partition, fetched.error)
            case PartitionErrorAction.NO_ACCESS:
                self.delayed.delay(now, partition)
                self._reactions.partition_denied(self.names.get(partition, ""))
            case PartitionErrorAction.RETRY:
                self.delayed.delay(now, partition)
                self._outbox.emit(
                    log_events.SHARE_PARTITION_RETRIED,
                    topic=self.names.get(partition, ""),
                    partition=partition.partition,
                    error=fetched.error.name,
                )

    def _leader_moved(self, now: float, partition: TopicIdPartition, error: ErrorCode) -> None:
        """Locks are not stored: the new leader delivers what was not acknowledged."""
        self._acknowledgements.drop(partition)
        self._held.lose_partition(partition, self._node, f"the broker responds {error.name}")
        self.delayed.delay(now, partition)
        self._reactions.leader_unknown(now, f"ShareFetch: {error.name}")

    def _acquired(
        self, now: float, sent_at: float, lock_timeout: float, fetched: ShareFetchedPartition
    ) -> None:
        partition = fetched.partition
        topic = self.names.get(partition)
        if topic is None:
            return  # it was not requested
        acquisition = self._held.acquire(topic, partition, self._node, sent_at, lock_timeout)
        found = read_acquired(self._decode, topic, fetched)
        if found.corrupt:
            self.delayed.delay(now, partition)
            self._outbox.emit(
                log_events.SHARE_BATCH_CORRUPT,
                topic=topic,
                partition=partition.partition,
                offset=found.end,
                reason=found.corrupt,
            )
        ranges = fetched.acquired
        self._held.counts.bytes_received += len(fetched.records)
        held = self._held.add(acquisition, found.records, ranges, sent_at + lock_timeout)
        for first, last in offsets_without_records(ranges, held, found.end):
            self._acknowledgements.gap(partition, first, last)
        if held:
            self._reactions.records_acquired(now, held)
