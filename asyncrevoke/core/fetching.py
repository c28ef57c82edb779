"""Which partitions to fetch from which broker, how much memory that may take, and the fair drain.

Every instance that may be fetched for stands in exactly one place: *hungry* or *full* at its
leader's lane, in the flight of that lane, *parked* while it may not flow (paused, blocked, being
revoked) or *delayed* after an error. So neither a poll nor an event costs a step per partition,
but only one per partition that moved.

A lane has one fetch in flight. While it is parked at the broker for partitions without new data,
others of that lane may run dry; so while some are full, the broker waits shorter, and adapts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.core.buffer import RecordBuffer
from asyncrevoke.core.effects import Channel, Failed, FailureKind, Node
from asyncrevoke.core.fair_share import FairShare
from asyncrevoke.core.fetch_source import FIRST_BACKOFF, LONGEST_BACKOFF, FetchSource
from asyncrevoke.core.partition import State
from asyncrevoke.core.waiting import WaitLog
from asyncrevoke.errors import (
    AuthenticationError,
    CorruptRecordError,
    PartitionsError,
    TopicAuthorizationError,
    UnsupportedVersionError,
)
from asyncrevoke.model import Record, TopicPartition
from asyncrevoke.protocol.messages import ErrorCode, FetchRequest, FetchResponse
from asyncrevoke.protocol.records import CorruptBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.cluster import Cluster
    from asyncrevoke.core.outbox import Outbox, Reply
    from asyncrevoke.core.partition import PartitionInstance
    from asyncrevoke.protocol.messages import FetchedPartition, FetchPartition
    from asyncrevoke.protocol.records import RecordDecoder

_TIMER = "fetching"
# Polls whose records are to be there before they are asked for (KIP-41, heuristic 2).
_PREFETCH = 2
# Less than this is not worth a request, unless it is all there is.
_SMALLEST_FETCH = 64 * 1024
_SHORTEST_WAIT = 0.005
_FIRST_WAIT = 0.01
# Nobody tells us when a partition may flow again, so we look; not at every event.
_LOOK_EVERY = 0.01
_SLOW = 10.0
_UNLIMITED = 2**62


class _Asked(NamedTuple):
    source: FetchSource
    buffer: RecordBuffer
    offset: int


class _Flight(NamedTuple):
    node: Node
    sent_at: float
    max_wait: float
    reserved: int
    others_full: bool
    entries: dict[TopicPartition, _Asked]


class _Lane:
    """The fetches from one broker."""

    __slots__ = (
        "backoff",
        "flight",
        "fruitless",
        "full",
        "hungry",
        "node_id",
        "not_before",
        "starved",
        "wait",
    )

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        # In the order in which they are asked for: brokers fill an answer in this order.
        self.hungry: dict[FetchSource, None] = {}
        self.full: dict[FetchSource, None] = {}
        self.flight: _Flight | None = None
        # Whether a partition ran dry while the flight was waiting for others.
        self.starved = False
        self.wait = _FIRST_WAIT
        self.not_before = 0.0
        self.backoff = FIRST_BACKOFF
        self.fruitless = 0


class Fetching:
    """Plans fetches and hands out what they bring.

    The composer sets ``blocked(instance)`` (nothing of it may be delivered or fetched now),
    ``room(instance)`` (how many records it may deliver now), ``on_out_of_range(now, instance)``
    and ``on_error(now, error)``, and calls :meth:`add` also after a new buffer was put in place.
    """

    def __init__(
        self, outbox: Outbox, config: ConsumerConfig, cluster: Cluster, decode: RecordDecoder
    ) -> None:
        self._outbox = outbox
        self._config = config
        self._cluster = cluster
        self._decode = decode
        self._log = WaitLog(outbox)
        self._read_committed = config.isolation_level == "read_committed"
        self.blocked: Callable[[PartitionInstance], bool] = lambda _instance: False
        self.room: Callable[[PartitionInstance], int] = lambda _instance: _UNLIMITED
        self.on_out_of_range: Callable[[float, PartitionInstance], None] = lambda _now, _instance: (
            None
        )
        self.on_error: Callable[[float, Exception], None] = lambda _now, _error: None
        self.round = 0
        self.spoiled: list[FetchSource] = []
        self._sources: dict[TopicPartition, FetchSource] = {}
        self._ring: FairShare[TopicPartition, Record] = FairShare()
        self._lanes: dict[int, _Lane] = {}
        self._parked: dict[FetchSource, None] = {}
        self._delayed: dict[FetchSource, None] = {}
        self._reported: dict[FetchSource, None] = {}
        self._look_at = 0.0
        self._timer_at = float("inf")
        # The memory budget: bytes in buffers, and bytes that answers in flight may bring.
        self._used = 0
        self._reserved = 0
        self._flights = 0
        self._shares_changed = False
        self._set_shares()
        cluster.when_refreshed(self.leaders_known)

    # --- what is fetched for -----------------------------------------------------------------

    def add(self, instance: PartitionInstance) -> None:
        """Fetch for this instance; also when its position, or whether it may flow, has changed."""
        source = self._sources.get(instance.partition)
        if source is None or source.instance is not instance:
            if source is not None:
                self.remove(source.instance)
            source = self._sources[instance.partition] = FetchSource(self, instance)
            self._shares_changed = True
        source.reset()
        self._recount(source)
        if not source.is_empty:
            self._ring.offer(instance.partition, source)
        # Placed by the next plan, at the end of the queue of its leader.
        if not source.in_flight:
            source.move_to(self._delayed)

    def remove(self, instance: PartitionInstance) -> None:
        """Fetch for it no more; an answer under way is ignored."""
        source = self._sources.get(instance.partition)
        if source is None or source.instance is not instance:
            return
        del self._sources[instance.partition]
        self._used -= source.counted
        source.counted = 0
        source.removed = True
        source.move_to(None)
        self._reported.pop(source, None)
        self._ring.withdraw(instance.partition)
        self._shares_changed = True

    def leaders_known(self, now: float) -> None:
        """The metadata is fresh: whatever has another leader now is asked for there, at once."""
        for source in list(self._sources.values()):
            if source.in_flight or source.home is None or source.home is self._parked:
                continue
            leader = self._cluster.leader(source.instance.partition)
            if leader is not None and leader != source.leader:
                source.not_before = min(source.not_before, now)
            self._place(now, source)

    def plan(self, now: float) -> None:
        """Send every fetch that should be under way. Costs little when nothing has changed."""
        if self._shares_changed:
            self._shares_changed = False
            self._lanes = {
                node_id: lane
                for node_id, lane in self._lanes.items()
                if lane.hungry or lane.full or lane.flight is not None or lane.not_before > now
            }
            self._set_shares()
            for lane in list(self._lanes.values()):
                self._place_all(now, [*lane.hungry, *lane.full])
        if self._delayed:
            due = [source for source in self._delayed if source.not_before <= now]
            self._place_all(now, due)
        looks = bool(self._parked) and now >= self._look_at
        if looks:
            self._look_at = now + _LOOK_EVERY
            self._place_all(now, [source for source in self._parked if source.may_flow])
        for lane in self._lanes.values():
            if lane.hungry and lane.flight is None and lane.not_before <= now:
                self._send(now, lane)
        self._set_timer(now, look=bool(self._parked) and not looks)

    def _set_timer(self, now: float, *, look: bool) -> None:
        at = min((source.not_before for source in self._delayed), default=float("inf"))
        for lane in self._lanes.values():
            if lane.hungry and lane.flight is None and lane.not_before > now:
                at = min(at, lane.not_before)
        if look:
            at = min(at, self._look_at)
        if at == self._timer_at and self._outbox.has_timer(_TIMER):
            return
        self._timer_at = at
        if at == float("inf"):
            self._outbox.cancel_timer(_TIMER)
        else:
            at = max(at, now)
            self._outbox.set_timer(_TIMER, at, self.plan, spread=(at - now) / 2)

    def _set_shares(self) -> None:
        """The water marks of each partition, by how many there are."""
        config = self._config
        count = max(len(self._sources), 1)
        memory = config.buffer_memory // count
        self._low = max(1, -(-_PREFETCH * config.max_poll_records // count))
        # While half of an answer is worked on the next one is fetched, or small records would
        # leave us waiting for the broker at each round.
        self._low_bytes = min(config.max_partition_fetch_bytes // 2, memory // 4)
        self._most_bytes = max(memory, 1)
        self._node_share = max(
            config.buffer_memory // max(len(self._lanes), 1),
            min(_SMALLEST_FETCH, config.buffer_memory),
        )

    # --- places ------------------------------------------------------------------------------

    def _place_all(self, now: float, sources: Iterable[FetchSource]) -> None:
        for source in sources:
            self._place(now, source)

    def _place(self, now: float, source: FetchSource) -> None:
        """Put a source where it belongs."""
        buffer = source.instance.buffer
        if source.removed or source.in_flight:
            return
        if buffer is None or (source.out_of_range is buffer and not buffer.buffered):
            source.move_to(None)
        elif source.not_before > now:
            source.move_to(self._delayed)
        elif not source.may_flow:
            source.move_to(self._parked)
        elif (lane := self._lane_of(now, source)) is None:
            self._cluster.refresh(now, f"no leader for {source.name}")
            self._delay(now, source, "its leader is unknown")
        elif self._is_hungry(source, buffer):
            if source.home is not lane.hungry:
                source.move_to(lane.hungry)
            lane.starved |= lane.flight is not None and not buffer.buffered
        else:
            source.move_to(lane.full)

    def _lane_of(self, now: float, source: FetchSource) -> _Lane | None:
        leader = self._cluster.leader(source.instance.partition)
        if leader is None:
            return None
        source.leader = leader
        node = leader[0]
        if source.preferred >= 0:
            # A replica nearer to us, until the leader is to be asked again (KIP-392).
            replica = self._cluster.node(source.preferred)
            if replica is not None and now < source.preferred_until:
                node = replica
            else:
                source.preferred = -1
        lane = self._lanes.get(node.node_id)
        if lane is None:
            lane = self._lanes[node.node_id] = _Lane(node.node_id)
            self._set_shares()
        return lane

    def _is_hungry(self, source: FetchSource, buffer: RecordBuffer) -> bool:
        size, records = buffer.size, buffer.buffered
        if not records:
            source.filling = True
        elif (
            source.out_of_range is buffer
            or size >= self._most_bytes
            or (records >= 2 * self._low and size >= 2 * self._low_bytes)
        ):
            source.filling = False
        elif size * 2 < self._most_bytes and (records < self._low or size < self._low_bytes):
            source.filling = True
        return source.filling

    def _delay(self, now: float, source: FetchSource, why: str, *, slow: bool = False) -> None:
        source.delay(now)
        if slow:
            source.not_before = now + _SLOW
        source.move_to(self._delayed)
        self._log.waiting(now, source.name, "waiting to fetch", partition=source.name, reason=why)

    def _recount(self, source: FetchSource) -> None:
        buffer = source.instance.buffer
        size = 0 if buffer is None else buffer.size
        self._used += size - source.counted
        source.counted = size

    # --- requests ----------------------------------------------------------------------------

    def _send(self, now: float, lane: _Lane) -> None:
        config = self._config
        node = self._cluster.node(lane.node_id)
        if node is None:
            self._place_all(now, list(lane.hungry))
            return
        room = config.buffer_memory - self._used - self._reserved
        scarce = room < min(_SMALLEST_FETCH, config.buffer_memory)
        if scarce and self._flights:
            return
        entries: dict[TopicPartition, _Asked] = {}
        requests: list[FetchPartition] = []
        for source in list(lane.hungry):
            buffer = source.instance.buffer
            if buffer is None or not source.may_flow:
                source.move_to(self._parked)
            elif not (scarce and buffer.buffered):
                request = source.request(buffer, config.max_partition_fetch_bytes)
                requests.append(request)
                entries[request.partition] = _Asked(source, buffer, request.offset)
        if not entries:
            return
        # With the memory used up, one fetch for those that have nothing is still allowed.
        wanted = min(config.fetch_max_bytes, len(requests) * config.max_partition_fetch_bytes)
        max_bytes = min(
            wanted, config.max_partition_fetch_bytes if scarce else min(room, self._node_share)
        )
        for asked in entries.values():
            asked.source.move_to(None)
            asked.source.in_flight = True
        others_full = bool(lane.full)
        max_wait = min(lane.wait, config.fetch_max_wait) if others_full else config.fetch_max_wait
        flight = _Flight(node, now, max_wait, max_bytes, others_full, entries)
        lane.flight = flight
        lane.starved = False
        self._reserved += max_bytes
        self._flights += 1
        self._outbox.send(
            FetchRequest(
                partitions=tuple(requests),
                max_wait=max_wait,
                min_bytes=max(config.fetch_min_bytes, 1),
                max_bytes=max_bytes,
                read_committed=self._read_committed,
                rack=config.client_rack or "",
            ),
            node,
            Channel.FETCH,
            config.fetch_max_wait + config.request_timeout,
            lambda later, reply: self._answered(later, lane, flight, reply),
        )

    def _answered(self, now: float, lane: _Lane, flight: _Flight, reply: Reply) -> None:
        lane.flight = None
        self._reserved -= flight.reserved
        self._flights -= 1
        for asked in flight.entries.values():
            asked.source.in_flight = False
        if flight.others_full:
            lane.wait = (
                max(lane.wait / 4, _SHORTEST_WAIT)
                if lane.starved
                else min(lane.wait * 1.2, self._config.fetch_max_wait)
            )
        served: dict[FetchSource, None] = {}
        match reply:
            case FetchResponse(error=ErrorCode.none):
                self._cluster.note_success(flight.node)
                self._log.over(now, f"node {lane.node_id}", "fetching again", node=lane.node_id)
                lane.backoff = FIRST_BACKOFF
                served = self._take_in(now, flight, reply)
                self._pace(now, lane, flight, progress=bool(served))
            case FetchResponse(error=error):
                self._lane_failed(now, lane, flight, error.name)
            case Failed(kind=FailureKind.AUTHENTICATION, detail=detail):
                self._lane_failed(now, lane, flight, detail)
                self.on_error(now, AuthenticationError(detail or "authentication failed"))
            case Failed(kind=FailureKind.UNSUPPORTED, detail=detail):
                self._lane_failed(now, lane, flight, detail)
                self.on_error(now, UnsupportedVersionError(detail or "no common version of Fetch"))
            case Failed(kind=kind, detail=detail):
                self._cluster.note_failure(flight.node)
                self._lane_failed(now, lane, flight, detail or kind.value)
            case _:
                self._lane_failed(now, lane, flight, f"unexpected {type(reply).__name__}")
        # Those that got something go behind those that did not.
        for asked in flight.entries.values():
            if asked.source not in served and asked.source.home is None:
                self._place(now, asked.source)
        self._place_all(now, served)

    def _lane_failed(self, now: float, lane: _Lane, flight: _Flight, why: str) -> None:
        lane.not_before = now + lane.backoff
        lane.backoff = min(lane.backoff * 2, LONGEST_BACKOFF)
        for asked in flight.entries.values():
            # A replica that fails is left for the leader; and who leads may have changed.
            asked.source.preferred = -1
            asked.source.not_before = lane.not_before
        self._cluster.refresh(now, f"fetch from broker {lane.node_id}: {why}")
        self._log.waiting(
            now,
            f"node {lane.node_id}",
            "waiting for a broker to fetch from",
            node=f"{flight.node.host}:{flight.node.port}",
            partitions=len(flight.entries),
            reason=why,
        )

    def _pace(self, now: float, lane: _Lane, flight: _Flight, *, progress: bool) -> None:
        """A broker that answers at once, and with nothing, is not asked again at once."""
        if progress or now - flight.sent_at >= flight.max_wait / 2:
            lane.fruitless = 0
        else:
            lane.fruitless = min(lane.fruitless + 1, 10)
            pause = min(_SHORTEST_WAIT * 2**lane.fruitless, max(self._config.fetch_max_wait, 0.1))
            lane.not_before = now + pause

    # --- answers -----------------------------------------------------------------------------

    def _take_in(
        self, now: float, flight: _Flight, reply: FetchResponse
    ) -> dict[FetchSource, None]:
        """Buffer what came; the sources that it brought further."""
        served: dict[FetchSource, None] = {}
        answered: set[TopicPartition] = set()
        for fetched in reply.partitions:
            asked = flight.entries.get(fetched.partition)
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
            if (
                instance.buffer is not asked.buffer
                or instance.state is not State.ACTIVE
                or asked.buffer.fetch_position != asked.offset
            ):
                continue  # sought elsewhere or being revoked: what was asked is not what is wanted
            if fetched.error is not ErrorCode.none:
                self._refused(now, source, fetched.error)
            elif fetched.preferred_read_replica >= 0 and not fetched.records:
                source.preferred = fetched.preferred_read_replica
                source.preferred_until = now + self._config.metadata_max_age
                served[source] = None
            elif self._append(now, source, asked.buffer, fetched):
                served[source] = None
        if served:
            self._outbox.wake()
        for partition, asked in flight.entries.items():
            if partition not in answered and not asked.source.removed:
                self._delay(now, asked.source, "the answer leaves it out")
        return served

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
        self._recount(source)
        if buffer.buffered:
            self._ring.offer(fetched.partition, source)
        if source.complained or source.backoff != FIRST_BACKOFF:
            self._log.over(now, source.name, "fetching again", partition=source.name)
            source.complained = False
            # A corrupt batch splits well and shows itself only when it is decoded.
            if source.corrupt is None:
                source.backoff = FIRST_BACKOFF
        return buffer.fetch_position > before

    def _corrupt(self, now: float, source: FetchSource, buffer: RecordBuffer, detail: str) -> None:
        """The next batch to buffer is corrupt: what is before it is delivered first."""
        if not buffer.buffered and source not in self._reported:
            self._reported[source] = None
            self.on_error(
                now, CorruptRecordError(source.instance.partition, buffer.position, detail)
            )
        self._delay(now, source, detail)

    def _refused(self, now: float, source: FetchSource, error: ErrorCode) -> None:
        instance, buffer = source.instance, source.instance.buffer
        if source.preferred >= 0:
            # Whatever a follower refuses, the leader is asked next.
            source.preferred = -1
            self._delay(now, source, f"{error.name} from a replica")
            return
        if error is ErrorCode.offset_out_of_range:
            source.out_of_range = buffer
            if buffer is None or not buffer.buffered:
                self.on_out_of_range(now, instance)
            return
        if error is ErrorCode.corrupt_message and buffer is not None:
            self._corrupt(now, source, buffer, "the broker finds it corrupt")
            return
        if error.retriable or error in (
            ErrorCode.unknown_server_error,
            ErrorCode.broker_not_available,
        ):
            self._cluster.refresh(now, f"fetch {source.name}: {error.name}")
            self._delay(now, source, error.name)
            return
        if not source.complained:
            source.complained = True
            problem = PartitionsError(
                [instance.partition], f"{source.name}: the broker refuses to serve it: {error.name}"
            )
            if error is ErrorCode.topic_authorization_failed:
                problem = TopicAuthorizationError([instance.partition])
            self.on_error(now, problem)
        self._delay(now, source, error.name, slow=True)

    # --- the drain ---------------------------------------------------------------------------

    @property
    def has_deliverable(self) -> bool:
        """Whether a drain would find anything (by estimate)."""
        self._reported.clear()
        self.round += 1
        return self._ring.ready()

    def drain(self, now: float, limit: int) -> dict[TopicPartition, list[Record]]:
        """Take up to ``limit`` records, fairly shared (KIP-41); moves the buffers, nothing else."""
        self._reported.clear()
        self.round += 1
        taken = self._ring.drain(limit)
        spoiled, self.spoiled = self.spoiled, []
        for partition in taken:
            source = self._sources[partition]
            if source.corrupt is not None and source not in spoiled:
                source.corrupt = None
                source.backoff = FIRST_BACKOFF
            self._drained(now, source)
        for source in spoiled:
            buffer, error = source.instance.buffer, source.corrupt
            if buffer is not None and error is not None:
                # It may be whole when it is fetched again.
                buffer.discard()
                self._ring.withdraw(source.instance.partition)
                self._recount(source)
                self.on_error(now, error)
                if not source.in_flight:
                    self._delay(now, source, str(error))
        return taken

    def _drained(self, now: float, source: FetchSource) -> None:
        self._recount(source)
        buffer = source.instance.buffer
        if source.out_of_range is not None and not source.in_flight and source.is_empty:
            # What was buffered is delivered: ask again, whether it is still out of range.
            source.out_of_range = None
        if buffer is not None and not source.in_flight and source.home is not self._delayed:
            self._place(now, source)
