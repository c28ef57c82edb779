"""What a fetch brought, partition by partition: records, or an error and what it means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.core.fetch.cursor import FIRST_BACKOFF, LONGEST_BACKOFF, LONGEST_FAULT_BACKOFF
from asyncrevoke.core.partition.instance import State
from asyncrevoke.errors import CorruptRecordError, PartitionsError, TopicAuthorizationError
from asyncrevoke.protocol.messages import ErrorCode
from asyncrevoke.protocol.records import CorruptBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.fetch.broker_fetches import Flight
    from asyncrevoke.core.fetch.cursor import FetchSource
    from asyncrevoke.core.io.effects import Node
    from asyncrevoke.core.io.wait_log import WaitLog
    from asyncrevoke.core.metadata.cluster import Cluster
    from asyncrevoke.core.partition.instance import PartitionInstance
    from asyncrevoke.core.partition.record_buffer import RecordBuffer
    from asyncrevoke.model import TopicPartition
    from asyncrevoke.protocol.messages import FetchedPartition, FetchResponse
    from asyncrevoke.protocol.records import RecordDecoder

_SLOW = 10.0
# Codes that Kafka does not call retriable, and that pass nevertheless.
_PASSING = frozenset((ErrorCode.unknown_server_error, ErrorCode.broker_not_available))


class FetchAnswers:
    """Takes answers in. ``on_appended(source)`` is called for each buffer that has changed,
    ``on_log_end(now, instance)`` for the first answer about an unchecked instance."""

    def __init__(
        self, config: ConsumerConfig, cluster: Cluster, decode: RecordDecoder, log: WaitLog
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._decode = decode
        self._log = log
        self._read_committed = config.isolation_level == "read_committed"
        # Whose corruption was reported since the last poll.
        self._reported: dict[FetchSource, None] = {}
        # Of the present answer: one error tells of all of them.
        self._unauthorized: list[TopicPartition] = []
        self.on_appended: Callable[[FetchSource], None] = lambda _source: None
        self.on_out_of_range: Callable[[float, PartitionInstance], None] = lambda _now, _instance: (
            None
        )
        self.on_log_end: Callable[[float, PartitionInstance], None] = lambda _now, _instance: None
        self.on_error: Callable[[float, Exception], None] = lambda _now, _error: None

    def polled(self) -> None:
        """A poll begins: what is still corrupt may be reported again."""
        self._reported.clear()

    def take_in(
        self, now: float, flight: Flight, reply: FetchResponse
    ) -> tuple[dict[FetchSource, None], bool]:
        """Buffer what came: the sources that it brought further, and whether it was no use."""
        served: dict[FetchSource, None] = {}
        fruitless = True
        answered: set[TopicPartition] = set()
        node = flight.node
        self._unauthorized.clear()
        for fetched in reply.partitions:
            asked = flight.asked.get(fetched.partition)
            if asked is None or fetched.partition in answered:
                continue
            answered.add(fetched.partition)
            source, instance = asked.source, asked.source.instance
            if source.removed:
                continue
            if fetched.error is ErrorCode.none:
                instance.high_watermark = fetched.high_watermark
                instance.last_stable_offset = fetched.last_stable_offset
                instance.log_start = fetched.log_start_offset
                if instance.unchecked:
                    self.on_log_end(now, instance)
            if (
                instance.buffer is not asked.buffer
                or instance.state is not State.ACTIVE
                or asked.buffer.fetch_position != asked.offset
            ):
                # Sought elsewhere, being revoked, or discarded: it is not wanted any more.
                fruitless = False
            elif fetched.error is not ErrorCode.none:
                fruitless = False
                self._refused(now, node, source, asked.buffer, fetched.error)
            elif fetched.preferred_read_replica >= 0 and not fetched.records:
                fruitless = False
                self._redirected(now, node, source, fetched.preferred_read_replica)
            else:
                if source.replica.served(node.node_id):
                    self._replica_serves(now, node.node_id)
                if self._append(now, source, asked.buffer, fetched):
                    served[source] = None
        if self._unauthorized:
            self.on_error(now, TopicAuthorizationError(self._unauthorized))
        for partition, asked in flight.asked.items():
            if not flight.partial and partition not in answered and not asked.source.removed:
                self._wait(now, asked.source, "the answer leaves it out")
        return served, fruitless and not served

    def _append(
        self, now: float, source: FetchSource, buffer: RecordBuffer, fetched: FetchedPartition
    ) -> bool:
        """Whether the answer brought the partition further."""
        try:
            batches = self._decode(fetched, self._read_committed) if fetched.records else ()
        except CorruptBatch as error:
            self._corrupt(now, source, buffer, str(error))
            return False
        before = buffer.fetch_position
        buffer.append(batches)
        self.on_appended(source)
        source.complained = False
        # A corrupt batch may split well and show itself only when it is decoded.
        if source.backoff != FIRST_BACKOFF and source.corrupt is None:
            self.healed(now, source)
        return buffer.fetch_position > before

    def healed(self, now: float, source: FetchSource) -> None:
        """What was wrong with it is over."""
        source.corrupt = None
        source.backoff = FIRST_BACKOFF
        self._log.over(now, source.name, "fetching again", partition=source.name)

    def spoiled(self, now: float, source: FetchSource, error: CorruptRecordError) -> None:
        """Its next batch cannot be decoded: report it, and fetch it again in a while, because it
        may be whole then."""
        self.on_error(now, error)
        self._wait(now, source, str(error), LONGEST_FAULT_BACKOFF)

    def _corrupt(self, now: float, source: FetchSource, buffer: RecordBuffer, detail: str) -> None:
        """The next batch to buffer is corrupt: what is before it is delivered first."""
        if not buffer.buffered and source not in self._reported:
            self._reported[source] = None
            partition = source.instance.partition
            self.on_error(now, CorruptRecordError(partition, buffer.position, detail))
        self._wait(now, source, detail, LONGEST_FAULT_BACKOFF)

    def _redirected(self, now: float, node: Node, source: FetchSource, replica: int) -> None:
        """The broker gives no records, and names a replica to read from."""
        why = f"broker {node.node_id} sends us there, and is not its leader"
        awaited = -1
        if source.is_led_by(node):
            if replica != node.node_id and self._cluster.node(replica) is not None:
                source.replica.prefer(replica, now + self._config.metadata_max_age)
                return
            why = "its leader names itself"
            if replica != node.node_id:
                why, awaited = "the metadata does not list this broker", replica
        self._read_from_leader(now, source, replica, why, awaited)

    def _replica_serves(self, now: float, replica: int) -> None:
        self._log.over(
            now,
            _replica_key(replica),
            "reading from the nearest replica again",
            replica=replica,
        )

    def _read_from_leader(
        self, now: float, source: FetchSource, replica: int, why: str, awaited: int = -1
    ) -> None:
        """The replica cannot be used: the leader is asked for records meanwhile."""
        self._cluster.refresh(now, f"fetch {source.name} from replica {replica}: {why}")
        if not source.replica.fall_back(now, awaited=awaited):
            # It does so even for those that have no rack.
            self._wait(now, source, f"replica {replica}: {why}", LONGEST_FAULT_BACKOFF)
            return
        self._log.waiting(
            now,
            _replica_key(replica),
            "reading from the leader: the nearest replica cannot be used",
            partition=source.name,
            replica=replica,
            reason=why,
        )

    def _refused(
        self, now: float, node: Node, source: FetchSource, buffer: RecordBuffer, error: ErrorCode
    ) -> None:
        if source.leader is not None and not source.is_led_by(node):
            # Whatever a follower refuses, the leader is asked next.
            self._read_from_leader(now, source, node.node_id, error.name)
        elif error is ErrorCode.offset_out_of_range:
            source.out_of_range = buffer
            if not buffer.buffered:
                self.on_out_of_range(now, source.instance)
        elif error is ErrorCode.corrupt_message:
            self._corrupt(now, source, buffer, "the broker finds it corrupt")
        elif error.retriable or error in _PASSING:
            self._cluster.refresh(now, f"fetch {source.name}: {error.name}")
            if source.backoff == FIRST_BACKOFF:
                # A leader that moves is nothing to warn of, a partition that stays without is.
                source.delay(now)
            else:
                self._wait(now, source, error.name)
        else:
            self._forbidden(now, source, error)

    def _forbidden(self, now: float, source: FetchSource, error: ErrorCode) -> None:
        if not source.complained:
            source.complained = True
            partition = source.instance.partition
            if error is ErrorCode.topic_authorization_failed:
                self._unauthorized.append(partition)
            else:
                message = f"{source.name}: the broker refuses to serve it: {error.name}"
                self.on_error(now, PartitionsError([partition], message))
        self._wait(now, source, error.name)
        source.not_before = now + _SLOW

    def _wait(
        self, now: float, source: FetchSource, why: str, longest: float = LONGEST_BACKOFF
    ) -> None:
        source.delay(now, longest)
        self._log.waiting(now, source.name, "waiting to fetch", partition=source.name, reason=why)


def _replica_key(node_id: int) -> str:
    return f"replica {node_id}"
