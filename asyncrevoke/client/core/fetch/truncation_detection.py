"""Whether a partition's new leader still has what was read from an older one (KIP-320).

An unclean leader election truncates the log: what was read after that point is gone, and its
offsets are given to other records, which a reader at its old position would skip. So, before the
first fetch from a leader of a later epoch, it is asked where the epoch of the last record that was
read ends. Nothing is checked where that epoch is unknown (an offset that was sought, or committed
without it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.core.io.effects import Channel, Failed, FailureKind, Node
from asyncrevoke.client.core.io.fatal_error import fatal_error
from asyncrevoke.client.errors import PartitionsError, TopicAuthorizationError
from asyncrevoke.client.model import Value
from asyncrevoke.client.protocol.messages import (
    EpochQuery,
    ErrorCode,
    OffsetsForLeaderEpochRequest,
    OffsetsForLeaderEpochResponse,
)

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.fetch.cursor import PartitionCursor
    from asyncrevoke.client.core.fetch.fetcher import Fetcher
    from asyncrevoke.client.core.fetch.reactions import FetchReactions
    from asyncrevoke.client.core.io.outbox import Outbox, Reply
    from asyncrevoke.client.core.io.wait_log import WaitLog
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.core.partition.record_buffer import RecordBuffer
    from asyncrevoke.client.protocol.messages import EpochEnd

_SLOW = 10.0
# Metadata lags no longer than this; a topic that was recreated has lower epochs for ever.
_TRIES_FOR_METADATA = 4
_PASSING = frozenset((ErrorCode.unknown_server_error, ErrorCode.broker_not_available))


class EpochCheck(Value, frozen=True):
    """What was asked for one cursor; the response counts only if all of it still holds."""

    buffer: RecordBuffer
    position: int
    # Up to where the log was read; beyond ``position`` while abandoned records are read again.
    read_to: int
    epoch: int
    leader: Node
    leader_epoch: int


class TruncationDetection:
    """Sends OffsetForLeaderEpoch. ``checking`` has the cursors that wait for the response."""

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        cluster: ClusterMetadata,
        log: WaitLog,
        fetcher: Fetcher,
        reactions: FetchReactions,
    ) -> None:
        self._outbox = outbox
        self._config = config
        self._cluster = cluster
        self._log = log
        self._fetcher = fetcher
        self._reactions = reactions
        self.checking: dict[PartitionCursor, None] = {}
        self._asked: dict[PartitionCursor, EpochCheck] = {}
        self._due: dict[PartitionCursor, None] = {}

    def must_check(self, now: float, cursor: PartitionCursor, buffer: RecordBuffer) -> bool:
        """Whether this cursor must not be fetched yet: it is checked here, or waits."""
        if cursor.leader is None or buffer.checked_epoch >= cursor.leader[1]:
            return False
        node, leader_epoch = cursor.leader
        # If records are read again, the log may have been truncated after them.
        tracker = cursor.instance.tracker
        position, epoch = buffer.fetch_position, buffer.fetch_epoch
        if tracker is not None and tracker.rereads and tracker.position > position:
            position, epoch = tracker.position, tracker.position_epoch
        if epoch < 0 or epoch == leader_epoch:
            # All that is fetched from now on is in the log of this leader.
            buffer.set_checked_epoch(leader_epoch)
            return False
        if epoch > leader_epoch:
            return self._awaits_metadata(now, cursor, epoch, leader_epoch)
        query = EpochCheck(buffer, buffer.fetch_position, position, epoch, node, leader_epoch)
        if cursor.queue is not self.checking or self._asked.get(cursor) != query:
            cursor.move_to(self.checking)
            self._asked[cursor] = query
            self._due[cursor] = None
        return True

    def _awaits_metadata(
        self, now: float, cursor: PartitionCursor, epoch: int, leader_epoch: int
    ) -> bool:
        """The known leader is older than what was read: its log may be shorter."""
        if cursor.metadata_tries >= _TRIES_FOR_METADATA:
            return False
        cursor.count_metadata_try()
        why = f"what was read is of leader epoch {epoch}, and its leader of {leader_epoch}"
        self._cluster.refresh(now, f"{cursor.name}: {why}")
        self._check_later(now, cursor, why)
        return True

    def run(self) -> None:
        """Ask about all cursors that were added."""
        if not self._due:
            return
        by_node: dict[Node, dict[PartitionCursor, EpochCheck]] = {}
        for cursor in self._due:
            query = self._asked.get(cursor)
            if query is not None and cursor.queue is self.checking:
                by_node.setdefault(query.leader, {})[cursor] = query
            else:
                self._asked.pop(cursor, None)
        self._due.clear()
        for node, asked in by_node.items():
            self._ask(node, asked)

    def _ask(self, node: Node, asked: dict[PartitionCursor, EpochCheck]) -> None:
        self._outbox.send(
            OffsetsForLeaderEpochRequest(
                queries=tuple(
                    EpochQuery(
                        partition=cursor.instance.partition,
                        epoch=query.epoch,
                        leader_epoch=query.leader_epoch,
                    )
                    for cursor, query in asked.items()
                )
            ),
            node,
            Channel.METADATA,
            self._config.request_timeout,
            lambda now, reply: self._epochs_response_received(now, node, asked, reply),
        )

    def _epochs_response_received(
        self, now: float, node: Node, asked: dict[PartitionCursor, EpochCheck], reply: Reply
    ) -> None:
        current: dict[PartitionCursor, EpochCheck] = {}
        for cursor, query in asked.items():
            if self._asked.get(cursor) is not query:
                continue
            del self._asked[cursor]
            if cursor.queue is self.checking:
                current[cursor] = query
        match reply:
            case OffsetsForLeaderEpochResponse(ends=ends):
                found = {end.partition: end for end in ends}
                for cursor, query in current.items():
                    self._compare(now, cursor, query, found.get(cursor.instance.partition))
            case Failed(kind=FailureKind.UNSUPPORTED):
                # The broker cannot tell: assume that nothing was truncated.
                for cursor, query in current.items():
                    self._passed(now, cursor, query)
            case _:
                why = f"unexpected {type(reply).__name__}"
                if isinstance(reply, Failed):
                    why = reply.detail or reply.kind.value
                    self._cluster.brokers.note_failure(node)
                    if reply.kind is FailureKind.AUTHENTICATION:
                        self._reactions.failed(now, fatal_error(reply))
                self._cluster.refresh(now, f"leader epochs from broker {node.node_id}: {why}")
                for cursor in current:
                    self._check_later(now, cursor, why)

    def _compare(
        self, now: float, cursor: PartitionCursor, query: EpochCheck, found: EpochEnd | None
    ) -> None:
        buffer = query.buffer
        if cursor.instance.buffer is not buffer or buffer.fetch_position != query.position:
            # Sought, or discarded.
            self._fetcher.place(now, cursor)
        elif found is None:
            self._check_later(now, cursor, "the response leaves it out")
        elif found.error is not ErrorCode.none:
            self._partition_error(now, cursor, found.error)
        elif found.epoch < 0 or found.offset < 0:
            self._fetcher.position_diverged(now, cursor, None, -1)
        else:
            offset = buffer.diverges_at(found.epoch, found.offset)
            tracker = cursor.instance.tracker
            if tracker is not None and query.read_to > query.position:
                offset = min(offset, tracker.diverges_at(found.epoch))
            if offset < query.read_to:
                self._fetcher.position_diverged(now, cursor, offset, found.epoch)
            else:
                self._passed(now, cursor, query)

    def _passed(self, now: float, cursor: PartitionCursor, query: EpochCheck) -> None:
        query.buffer.set_checked_epoch(query.leader_epoch)
        cursor.position_checked()
        self._log.over(now, cursor.name, log_events.FETCHING_AGAIN, partition=cursor.name)
        self._fetcher.place(now, cursor)

    def _partition_error(self, now: float, cursor: PartitionCursor, error: ErrorCode) -> None:
        if error.retriable or error in _PASSING:
            self._cluster.refresh(now, f"leader epochs of {cursor.name}: {error.name}")
            self._check_later(now, cursor, error.name)
            return
        if cursor.report_error():
            partition = cursor.instance.partition
            if error is ErrorCode.topic_authorization_failed:
                self._reactions.failed(now, TopicAuthorizationError([partition]))
            else:
                message = (
                    f"{cursor.name}: the broker rejects the check of its position: {error.name}"
                )
                self._reactions.failed(now, PartitionsError([partition], message))
        self._check_later(now, cursor, error.name)
        cursor.wait_until(now + _SLOW)

    def _check_later(self, now: float, cursor: PartitionCursor, why: str) -> None:
        # A leader that moves is not a reason to warn.
        if cursor.backoff.has_failed:
            self._log.waiting(
                now,
                cursor.name,
                log_events.WAITING_FOR_VALIDATION,
                partition=cursor.name,
                reason=why,
            )
        cursor.delay(now)
        self._fetcher.place(now, cursor)
