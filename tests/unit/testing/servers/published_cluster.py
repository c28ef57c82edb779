"""Simulated brokers that offer and do what a row of :mod:`.published_brokers` says."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from aiokafka.record.default_records import DefaultRecordBatch
from msgspec.structs import replace

from asyncrevoke.client.core.io.effects import Failed, FailureKind, Node, Replied
from asyncrevoke.client.model import Record, TopicPartition
from asyncrevoke.client.producing.requests import ProduceRequest, produce_response, produced_batches
from asyncrevoke.client.protocol import codec
from asyncrevoke.client.protocol.messages import (
    BrokerMetadata,
    ErrorCode,
    FetchedPartition,
    FetchResponse,
    FindCoordinatorResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    ListedOffset,
    OffsetCommitResponse,
    OffsetFetchResponse,
    PartitionMetadata,
)
from asyncrevoke.testing import TestConsumer
from asyncrevoke.testing.cluster import Cluster, WrittenLog
from asyncrevoke.testing.connections import Connections
from asyncrevoke.testing.fake_kafka.brokers import PORT
from asyncrevoke.testing.fake_kafka.partition_leaders import Leaders

if TYPE_CHECKING:
    from kio.schema.produce.v8.response import ProduceResponse
    from unit.testing.servers.published_brokers import PublishedBroker

    from asyncrevoke.client.core.io.effects import Send
    from asyncrevoke.client.protocol.messages import (
        FetchPartition,
        FetchRequest,
        OffsetCommitRequest,
        OffsetFetchRequest,
        OffsetQuery,
        Request,
        TopicMetadata,
    )
    from asyncrevoke.testing.fake_kafka.clock import Clock
    from asyncrevoke.testing.fake_kafka.group_state import Reply
    from asyncrevoke.testing.virtual_time import VirtualTime

_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
_ELSEWHERE = 99
NO_EPOCH = -1


class _Leaders(Leaders[WrittenLog]):
    def __init__(self, clock: Clock, cluster: PublishedCluster) -> None:
        super().__init__(clock, cluster.topics)
        self._fetches = itertools.count(1)
        self._cluster = cluster

    def _led(
        self, broker: int, partition: TopicPartition, epoch: int
    ) -> tuple[WrittenLog | None, ErrorCode]:
        if self._cluster.kind.any_agent_leads:
            log = self._topics.log(partition)
            missing = ErrorCode.unknown_topic_or_partition
            return log, missing if log is None else ErrorCode.none
        return super()._led(broker, partition, epoch)

    def _list_offset(self, broker: int, query: OffsetQuery) -> ListedOffset:
        listed = super()._list_offset(broker, query)
        too_low = self._cluster.kind.approximate_by
        if query.timestamp < 0 or listed.offset < too_low:
            return listed
        return replace(listed, offset=listed.offset - too_low)

    def _read(
        self, broker: int, entry: FetchPartition, ids: dict[str, bytes] | None
    ) -> FetchedPartition:
        found = super()._read(broker, entry, ids)
        log = self._topics.log(entry.partition)
        if self._cluster.kind.reads_inside_batches or log is None or not found.records:
            return found
        begins = any(batch.base == entry.offset for batch in log._batches)
        return found if begins else replace(found, records=b"")

    def fetch(self, broker: int, message: FetchRequest, reply: Reply) -> None:
        every = self._cluster.kind.throttles_every
        if every and next(self._fetches) % every == 0:
            throttle_time = self._cluster.kind.throttle_time
            reply(FetchResponse(error=ErrorCode.none, throttle_time=throttle_time))
        else:
            super().fetch(broker, message, reply)


class PublishedCluster(Cluster):
    """Brokers of one kind. ``commits`` are the metadata of all commits, ``reads_of_offsets``
    counts OffsetFetches, ``rejects`` is the error of every Produce,
    ``rejects_commits`` that of every OffsetCommit."""

    def __init__(self, kind: PublishedBroker, clock: Clock, *given: object) -> None:
        self.kind = kind
        self.commits: list[str] = []
        self.reads_of_offsets = 0
        self.rejects = ErrorCode.none
        self.rejects_commits = ErrorCode.none
        self._moves = 0
        super().__init__(clock, *given)  # type: ignore[arg-type]
        self._leaders = _Leaders(clock, self)
        if kind.leaders_move_every:
            clock.after(kind.leaders_move_every, self._move)

    # -- ranges -----------------------------------------------------------------------------------

    def refused(self, message: Request) -> str | None:
        """Why the client cannot send this request to these brokers."""
        ranges: dict[int, tuple[int, int]] = {codec.api_key(type(message)): (0, 99)}
        for kind, offered in self.kind.ranges.items():
            if offered == (0, -1):
                ranges.pop(codec.api_key(kind), None)
            else:
                ranges[codec.api_key(kind)] = offered
        try:
            codec.encode_frame(message, ranges, 1, "test")
        except (codec.UnsupportedVersion, ValueError) as error:
            return str(error)
        return None

    # -- brokers ----------------------------------------------------------------------------------

    def bootstrap(self) -> list[Node]:
        return [Node(-1, "agent-0", PORT)]

    def resolve(self, node: Node) -> int | None:
        if node.host == "elsewhere":
            return _ELSEWHERE
        name, _, number = node.host.partition("-")
        return int(number) if name == "agent" else None

    def _addresses(self) -> tuple[BrokerMetadata, ...]:
        return tuple(
            BrokerMetadata(node_id=number, host=f"agent-{number}", port=PORT)
            for number in range(self.kind.agents)
        )

    def _describe(self, name: str) -> TopicMetadata:
        found = self._describe_anew(name)
        return found if self.kind.has_topic_ids else replace(found, topic_id=bytes(16))

    def _describe_partition(self, number: int, log: WrittenLog) -> PartitionMetadata:
        if self.kind.any_agent_leads:
            self._moves += 1
            leader = self._moves % self.kind.agents
            found = super()._describe_partition(number, log)
            return replace(found, leader_id=leader, replicas=(leader,))
        return super()._describe_partition(number, log)

    def create_topic(self, name: str, partitions: int) -> None:
        super().create_topic(name, partitions)
        for number, log in enumerate(self.topics[name]):
            log.leader_id = number % self.kind.agents
            if not self.kind.has_leader_epochs:
                log.leader_epoch = NO_EPOCH

    def _move(self) -> None:
        """All partitions get another leader."""
        self._clock.after(self.kind.leaders_move_every, self._move)
        for partition in self.topics.partitions():
            log = self.topics.log(partition)
            assert log is not None
            log.leader_id = (log.leader_id + 1) % self.kind.agents
            log.wake()

    # -- the group --------------------------------------------------------------------------------

    def _find_coordinator(self) -> FindCoordinatorResponse:
        if self.kind.metadata_lists_coordinator:
            node_id, host = 0, "agent-0"
        else:
            node_id, host = _ELSEWHERE, "elsewhere"
        return FindCoordinatorResponse(error=ErrorCode.none, node_id=node_id, host=host, port=PORT)

    def _coordinate(self, broker: int, client: int, message: Request, reply: Reply) -> None:
        shortest, longest = self.kind.session_timeouts
        expected = 0 if self.kind.metadata_lists_coordinator else _ELSEWHERE
        assert broker == expected, "a request to the group goes to a broker that has no groups"
        if isinstance(message, JoinGroupRequest) and not (
            shortest <= message.session_timeout <= longest
        ):
            reply(JoinGroupResponse(error=ErrorCode.invalid_session_timeout, member_id=""))
        else:
            super()._coordinate(broker, client, message, reply)

    def _commit(self, message: OffsetCommitRequest) -> OffsetCommitResponse:
        longest = self.kind.longest_commit_metadata
        self.commits += [entry.metadata for entry in message.entries]
        if (error := self.rejects_commits) is not ErrorCode.none:
            rejected = tuple((entry.partition, error) for entry in message.entries)
            return OffsetCommitResponse(errors=rejected)
        too_long = [entry for entry in message.entries if len(entry.metadata) > longest]
        kept = tuple(entry for entry in message.entries if entry not in too_long)
        if not self.kind.keeps_commit_metadata:
            kept = tuple(replace(entry, metadata="") for entry in kept)
        response = super()._commit(replace(message, entries=kept))
        refused = ErrorCode.offset_metadata_too_large
        return replace(
            response,
            errors=(*response.errors, *((entry.partition, refused) for entry in too_long)),
        )

    def _committed(self, message: OffsetFetchRequest) -> OffsetFetchResponse:
        self.reads_of_offsets += 1
        response = super()._committed(message)
        if not self.kind.offsets_stay_unstable or not message.require_stable:
            return response
        unstable = ErrorCode.unstable_offset_commit
        return replace(
            response, offsets=tuple(replace(offset, error=unstable) for offset in response.offsets)
        )

    # -- writing ----------------------------------------------------------------------------------

    def _produce(self, message: ProduceRequest) -> ProduceResponse:
        for partition, records in produced_batches(message):
            if self.rejects is not ErrorCode.none:
                return produce_response({partition: self.rejects})
            compression = _COMPRESSIONS[DefaultRecordBatch(records).compression_type]
            if compression not in self.kind.compressions:
                return produce_response({partition: ErrorCode.unsupported_compression_type})
        return super()._produce(message)

    def write_batch(self, topic: str, values: list[bytes]) -> None:
        """Append a batch of several records to partition 0."""
        log = self.topics[topic][0]
        for number, value in enumerate(values):
            offset = log.end + number
            log.records.append(Record(topic, 0, offset, 0, 0, None, value, ()))
        log.append(len(values))


class _PublishedConnections(Connections):
    """Rejects requests that the brokers do not offer in a version of this client."""

    def __init__(self, cluster: PublishedCluster, client: int) -> None:
        super().__init__(cluster, client)
        self._brokers = cluster
        self.refused: list[str] = []

    async def request(self, send: Send) -> Replied | Failed:
        why = self._brokers.refused(send.message)
        if why is not None:
            self.refused.append(why)
            detail = f"{send.node.host}:{send.node.port}: {why}"
            return Failed(send.request_id, FailureKind.UNSUPPORTED, detail)
        return await super().request(send)


class PublishedConsumer(TestConsumer):
    """A consumer under test with brokers of one kind."""

    __test__ = False

    def __init__(self, kind: PublishedBroker, consumer: object, **options: object) -> None:
        super().__init__(consumer, **options)  # type: ignore[arg-type]
        self.kind = kind

    def _new_cluster(self, passing: VirtualTime, offset: float) -> PublishedCluster:
        protocol = self.consumer.config.group_protocol
        protocol = "classic" if protocol == "auto" else protocol
        return PublishedCluster(
            self.kind, passing.clock, offset, self._partitions, self._topics, protocol
        )

    def _connect(self) -> Connections:
        return _PublishedConnections(self.brokers, next(self._clients))

    @property
    def brokers(self) -> PublishedCluster:
        """The simulated brokers."""
        cluster = self._cluster
        assert isinstance(cluster, PublishedCluster)
        return cluster
