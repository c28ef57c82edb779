"""Handles fetch responses, partition by partition: records, or an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from asyncrevoke.client import log_events
from asyncrevoke.client.core.fetch.cursor import LONGEST_BACKOFF, LONGEST_FAULT_BACKOFF
from asyncrevoke.client.core.partition.instance import InstanceState
from asyncrevoke.client.errors import CorruptRecordError, PartitionsError, TopicAuthorizationError
from asyncrevoke.client.protocol.messages import ErrorCode
from asyncrevoke.client.protocol.records import CorruptBatch, limited

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.fetch.broker_fetches import FetchTarget, InFlightFetch
    from asyncrevoke.client.core.fetch.cursor import PartitionCursor
    from asyncrevoke.client.core.fetch.fetcher import Fetcher
    from asyncrevoke.client.core.fetch.reactions import FetchReactions
    from asyncrevoke.client.core.io.effects import Node
    from asyncrevoke.client.core.io.wait_log import WaitLog
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.core.partition.record_buffer import RecordBuffer
    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.client.protocol.messages import BrokerMetadata, FetchedPartition, FetchResponse
    from asyncrevoke.client.protocol.records import RecordDecoder

_SLOW = 10.0
_LARGE = 1024 * 1024
# Splitting so many takes about 30 ms.
_BATCHES_AT_ONCE = 10_000
# With these a broker may name the leader (KIP-951).
_LEADER_ERRORS = frozenset((ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch))
# Codes that Kafka does not call retriable, but that pass.
_PASSING = frozenset((ErrorCode.unknown_server_error, ErrorCode.broker_not_available))


class HandledResponse:
    """A response that is handled in parts. ``served``: the cursors that got records. ``fruitless``:
    no partition had records or an error."""

    def __init__(self, fetch: InFlightFetch, response: FetchResponse) -> None:
        self.fetch = fetch
        self.response = response
        self.left = iter(response.partitions)
        self.received: set[TopicPartition] = set()
        self.served: dict[PartitionCursor, None] = {}
        self.fruitless = True

    def next_partitions(self) -> Iterator[tuple[FetchedPartition, FetchTarget]]:
        """The partitions of the response that are not handled yet and were asked for."""
        for fetched in self.left:
            asked = self.fetch.targets.get(fetched.partition)
            if asked is not None and fetched.partition not in self.received:
                self.received.add(fetched.partition)
                yield fetched, asked

    def left_out(self) -> Iterator[FetchTarget]:
        """What was asked for and is not in the response."""
        for partition, asked in self.fetch.targets.items():
            if partition not in self.received:
                yield asked

    def records_buffered(self, cursor: PartitionCursor) -> None:
        """This cursor got records."""
        self.served[cursor] = None

    def ask_again(self) -> None:
        """The next fetch may follow at once, although there were no records."""
        self.fruitless = False

    @property
    def is_large(self) -> bool:
        """Whether the next fetch does not wait for a poll, and two fetches are in flight: the
        broker prepares the next response meanwhile."""
        buffer = self.response.buffer
        return buffer is not None and len(buffer) >= _LARGE

    @property
    def is_within_limit(self) -> bool:
        """Whether it has no more bytes than were reserved: no batch exceeds the limit (KIP-74)."""
        size = sum(len(fetched.records) for fetched in self.response.partitions)
        return size <= self.fetch.reserved


class FetchResponses:
    """Appends fetched records to the buffers, and handles errors."""

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: ClusterMetadata,
        decode: RecordDecoder,
        log: WaitLog,
        fetcher: Fetcher,
        reactions: FetchReactions,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._decode = decode
        self._log = log
        self._fetcher = fetcher
        self._reactions = reactions
        self._read_committed = config.isolation_level == "read_committed"
        # Partitions whose corruption was reported since the last poll.
        self._reported: dict[PartitionCursor, None] = {}
        # Of the present response: one error names all of them.
        self._unauthorized: list[TopicPartition] = []
        # Of the present part of a response.
        self._batches = 0

    def polled(self) -> None:
        """A poll begins: corruption may be reported again."""
        self._reported.clear()

    def handle(self, now: float, handled: HandledResponse) -> bool:
        """Buffer the records of the next partitions; returns whether all partitions are handled.

        Stops after ``_BATCHES_AT_ONCE`` batches, so that the caller can let the event loop run.
        """
        addresses = {broker.node_id: broker for broker in handled.response.leaders}
        self._unauthorized.clear()
        self._batches = 0
        complete = False
        for fetched, asked in handled.next_partitions():
            if not asked.cursor.removed:
                self._handle_partition(now, handled, asked, fetched, addresses)
            if self._batches > _BATCHES_AT_ONCE:
                break
        else:
            complete = True
        if self._unauthorized:
            self._reactions.failed(now, TopicAuthorizationError(self._unauthorized))
        # With a throttle time there are no partitions at all (KIP-219).
        whole = not handled.fetch.partial and not handled.response.throttle_time
        if complete and whole:
            for asked in handled.left_out():
                if not asked.cursor.removed:
                    self._wait(now, asked.cursor, "the response leaves it out")
        return complete

    def _handle_partition(
        self,
        now: float,
        handled: HandledResponse,
        asked: FetchTarget,
        fetched: FetchedPartition,
        addresses: Mapping[int, BrokerMetadata],
    ) -> None:
        """Buffer the records of one partition, or handle its error."""
        node = handled.fetch.node
        cursor, instance = asked.cursor, asked.cursor.instance
        if fetched.error is ErrorCode.none:
            instance.set_log(
                fetched.log_start_offset,
                fetched.last_stable_offset,
                fetched.high_watermark,
                read_committed=self._read_committed,
            )
            if instance.map_unverified:
                self._reactions.log_end_known(now, instance)
        if (
            instance.buffer is not asked.buffer
            or instance.state is not InstanceState.ACTIVE
            or asked.buffer.fetch_position != asked.offset
        ):
            # Sought, being revoked, or discarded: the response is ignored.
            handled.ask_again()
        elif fetched.error is not ErrorCode.none:
            handled.ask_again()
            moved = self._learn_leader(fetched, addresses)
            self._partition_error(
                now, node, cursor, asked.buffer, fetched.error, leader_moved=moved
            )
        elif fetched.preferred_read_replica >= 0 and not fetched.records:
            handled.ask_again()
            self._redirected(now, node, cursor, fetched.preferred_read_replica)
        else:
            if cursor.replica.served(node.node_id):
                self._log.over(
                    now,
                    _replica_key(node.node_id),
                    log_events.READING_FROM_NEAREST,
                    replica=node.node_id,
                )
            if self._append(now, cursor, asked.buffer, fetched):
                handled.records_buffered(cursor)

    def _append(
        self, now: float, cursor: PartitionCursor, buffer: RecordBuffer, fetched: FetchedPartition
    ) -> bool:
        """Whether the fetch position has moved."""
        most = self._config.max_partition_fetch_bytes
        if len(fetched.records) > most:
            fetched = structs.replace(fetched, records=limited(fetched.records, most))
        try:
            batches = self._decode(fetched, self._read_committed) if fetched.records else ()
        except CorruptBatch as error:
            self._corrupt(now, cursor, buffer, str(error))
            return False
        self._batches += len(batches)
        before, position = buffer.fetch_position, buffer.position
        buffer.append(batches)
        end = fetched.last_stable_offset if self._read_committed else fetched.high_watermark
        if buffer.fetch_position == before < end:
            self._nothing_fetched(now, cursor, buffer, end)
        elif cursor.nothing_fetched:
            self._log.over(
                now, _stall_key(cursor), log_events.FETCHING_AGAIN, partition=cursor.name
            )
            cursor.set_nothing_fetched(False)
        self._fetcher.buffer_appended(cursor)
        if buffer.position > position:
            # Past control batches and aborted transactions: no poll takes anything of them.
            self._reactions.position_passed(now, cursor.instance)
        cursor.end_error()
        # A corrupt batch may be noticed only when it is decoded.
        if cursor.backoff.has_failed and cursor.corrupt_record is None:
            self.recovered(now, cursor)
        return buffer.fetch_position > before

    def _nothing_fetched(
        self, now: float, cursor: PartitionCursor, buffer: RecordBuffer, end: int
    ) -> None:
        """The broker returns no records, although the log goes on: logged if that lasts."""
        if cursor.nothing_fetched:
            return
        cursor.set_nothing_fetched(True)
        offset = buffer.fetch_position

        def fields() -> dict[str, object] | None:
            current = cursor.instance.buffer
            if current is None or current.fetch_position != offset or not cursor.is_active:
                return None
            return {
                "partition": cursor.name,
                "reason": f"the broker returns no records from offset {offset}, and its log goes on"
                f" to {end}: seek() to another offset, such as the first of a record batch",
            }

        self._log.watch(now, _stall_key(cursor), log_events.WAITING_TO_FETCH, fields)

    def decode_by(self, decode: RecordDecoder) -> None:
        """Decode records of responses from now on by ``decode``."""
        self._decode = decode

    def forget(self, cursor: PartitionCursor) -> None:
        """It is no longer fetched."""
        if cursor.nothing_fetched:
            self._log.forget(_stall_key(cursor))

    def recovered(self, now: float, cursor: PartitionCursor) -> None:
        """Its error is over."""
        cursor.recover()
        self._log.over(now, cursor.name, log_events.FETCHING_AGAIN, partition=cursor.name)

    def report_corrupt(
        self, now: float, cursor: PartitionCursor, error: CorruptRecordError
    ) -> None:
        """Report that its next batch cannot be decoded, and fetch it again later."""
        self._reactions.failed(now, error)
        self._wait(now, cursor, str(error), LONGEST_FAULT_BACKOFF)

    def _corrupt(
        self, now: float, cursor: PartitionCursor, buffer: RecordBuffer, detail: str
    ) -> None:
        """The next batch to buffer is corrupt: deliver what is before it first."""
        if not buffer.buffered and cursor not in self._reported:
            self._reported[cursor] = None
            partition = cursor.instance.partition
            self._reactions.failed(now, CorruptRecordError(partition, buffer.position, detail))
        self._wait(now, cursor, detail, LONGEST_FAULT_BACKOFF)

    def _redirected(self, now: float, node: Node, cursor: PartitionCursor, replica: int) -> None:
        """The broker names a preferred replica instead of records."""
        why = f"broker {node.node_id} names that replica, and is not its leader"
        awaited = -1
        if cursor.is_led_by(node):
            if replica != node.node_id and self._cluster.brokers.node(replica) is not None:
                cursor.replica.prefer(replica, now + self._config.metadata_max_age)
                return
            why = "its leader names itself"
            if replica != node.node_id:
                why, awaited = "the metadata does not list this broker", replica
        self._read_from_leader(now, cursor, replica, why, awaited)

    def _read_from_leader(
        self, now: float, cursor: PartitionCursor, replica: int, why: str, awaited: int = -1
    ) -> None:
        """The replica cannot be used: read from the leader meanwhile."""
        self._cluster.refresh(now, f"fetch {cursor.name} from replica {replica}: {why}")
        if not cursor.replica.fall_back(now, awaited=awaited):
            # It redirects even requests without a rack.
            self._wait(now, cursor, f"replica {replica}: {why}", LONGEST_FAULT_BACKOFF)
            return
        self._log.waiting(
            now,
            _replica_key(replica),
            log_events.READING_FROM_LEADER,
            partition=cursor.name,
            replica=replica,
            reason=why,
        )

    def _learn_leader(
        self, fetched: FetchedPartition, addresses: Mapping[int, BrokerMetadata]
    ) -> bool:
        """Whether the response names a leader with a newer epoch than the known one."""
        return fetched.error in _LEADER_ERRORS and self._cluster.learn_leader(
            fetched.partition, fetched.leader_id, fetched.leader_epoch, addresses
        )

    def _partition_error(
        self,
        now: float,
        node: Node,
        cursor: PartitionCursor,
        buffer: RecordBuffer,
        error: ErrorCode,
        *,
        leader_moved: bool,
    ) -> None:
        if cursor.leader is not None and not cursor.is_led_by(node):
            # Ask the leader after any error of a follower.
            self._read_from_leader(now, cursor, node.node_id, error.name)
        elif error is ErrorCode.offset_out_of_range:
            cursor.set_out_of_range(buffer)
            if not buffer.buffered:
                self._reactions.position_out_of_range(now, cursor.instance)
        elif error is ErrorCode.corrupt_message:
            self._corrupt(now, cursor, buffer, "the broker finds it corrupt")
        elif error.retriable or error in _PASSING:
            self._cluster.refresh(now, f"fetch {cursor.name}: {error.name}")
            if cursor.backoff.has_failed:
                self._wait(now, cursor, error.name)
            elif leader_moved:
                # The named leader is asked at once. If it refuses as well, there is a delay.
                cursor.backoff.failed()
            else:
                # A leader that moves is not a reason to warn; a missing one is.
                cursor.delay(now)
        else:
            self._permanent_error(now, cursor, error)

    def _permanent_error(self, now: float, cursor: PartitionCursor, error: ErrorCode) -> None:
        if cursor.report_error():
            partition = cursor.instance.partition
            if error is ErrorCode.topic_authorization_failed:
                self._unauthorized.append(partition)
            else:
                message = f"{cursor.name}: the broker rejects its fetches: {error.name}"
                self._reactions.failed(now, PartitionsError([partition], message))
        self._wait(now, cursor, error.name)
        cursor.wait_until(now + _SLOW)

    def _wait(
        self, now: float, cursor: PartitionCursor, why: str, longest: float = LONGEST_BACKOFF
    ) -> None:
        cursor.delay(now, longest)
        self._log.waiting(
            now, cursor.name, log_events.WAITING_TO_FETCH, partition=cursor.name, reason=why
        )


def _stall_key(cursor: PartitionCursor) -> str:
    return f"nothing fetched of {cursor.name}"


def _replica_key(node_id: int) -> str:
    return f"replica {node_id}"
