"""Which partitions to fetch from which broker.

The cursor of every fetched instance is in exactly one collection: it *needs a fetch* or is
*sufficiently buffered* at its leader, is in a fetch in flight, *inactive* (paused, blocked, being
revoked), *delayed* after an error, or has its position checked (:class:`TruncationDetection`). So
polls and events cost only a step per partition that has moved.

While the broker holds a long poll, partitions whose buffers become empty are fetched by another
request, see :class:`BrokerFetches`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.client import log_events
from asyncrevoke.client.core.fetch.background_decoding import BackgroundDecoding
from asyncrevoke.client.core.fetch.broker_fetches import (
    NO_SUCH_SESSION,
    BrokerFetches,
    FetchTarget,
    InFlightFetch,
    SessionFetch,
    all_known,
    end_sessions,
)
from asyncrevoke.client.core.fetch.collector import RecordCollector
from asyncrevoke.client.core.fetch.cursor import PartitionCursor
from asyncrevoke.client.core.fetch.memory_budget import MemoryBudget
from asyncrevoke.client.core.fetch.responses import FetchResponses, HandledResponse
from asyncrevoke.client.core.fetch.truncation_detection import TruncationDetection
from asyncrevoke.client.core.io.effects import Channel, Failed, FailureKind
from asyncrevoke.client.core.io.fatal_error import FATAL_FAILURES, fatal_error
from asyncrevoke.client.core.io.wait_log import WaitLog
from asyncrevoke.client.core.partition.instance import InstanceState, PartitionInstance
from asyncrevoke.client.protocol.messages import ErrorCode, FetchPartition, FetchResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.fetch.delayed_topic import TopicDelay
    from asyncrevoke.client.core.fetch.reactions import FetchReactions
    from asyncrevoke.client.core.io.outbox import Outbox, Reply
    from asyncrevoke.client.core.io.wall_clock import WallClock
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.client.protocol.records import RecordDecoder

_TIMER = "fetching"
_NEVER = float("inf")
_UNLIMITED = 2**62
# Resumed partitions are noticed by looking, so often.
_LOOK_EVERY = 0.01
# So many busy partitions may join the long poll.
_FEW = 32
# Seconds that the next fetch waits for a poll to take what has come.
_POLLED_SOON = 0.005


class _CompletedFetch(NamedTuple):
    """A fetch whose response was handled. ``served`` are the cursors that got records; if it
    ``joins``, they are in the broker's next long poll with the others."""

    broker: BrokerFetches
    fetch: InFlightFetch
    served: dict[PartitionCursor, None]
    joins: bool


class Fetcher:
    """Plans fetches. Call :meth:`add` also when an instance has a new buffer, :meth:`polled` when a
    poll looks for records, and :meth:`plan` after every event."""

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        cluster: ClusterMetadata,
        decode: RecordDecoder,
        wall_clock: WallClock,
        capacity: Callable[[PartitionInstance, int], int],
        reactions: FetchReactions,
    ) -> None:
        self._outbox = outbox
        self._config = config
        self._cluster = cluster
        self._reactions = reactions
        self._log = WaitLog(outbox)
        self.memory = MemoryBudget(outbox, config)
        self._responses = FetchResponses(config, cluster, decode, self._log, self, reactions)
        self._background_decoding = BackgroundDecoding(
            outbox, self.memory, config.buffer_memory // 2
        )
        self._truncation_detection = TruncationDetection(
            outbox, config, cluster, self._log, self, reactions
        )
        self._delays: Mapping[str, TopicDelay] = {}
        self._cursors: dict[TopicPartition, PartitionCursor] = {}
        self.collector = RecordCollector(
            outbox, self._responses, self._cursors, wall_clock, capacity, self, reactions
        )
        self._brokers: dict[int, BrokerFetches] = {}
        # Responses whose cursors get a place when the poll that waits has taken their records.
        self._completed_fetches: list[_CompletedFetch] = []
        self._over_budget_fetches = 0
        self._parts = 0  # of large responses, since the start
        self._inactive: dict[PartitionCursor, None] = {}
        self._delayed: dict[PartitionCursor, None] = {}
        self._look_at = 0.0
        # A poll is about to take records: one fetch then requests these partitions and the rest.
        self._held_until = 0.0
        self._timer_at = _NEVER
        self._shares_changed = False

    def set_delays(self, delays: Mapping[str, TopicDelay]) -> None:
        """Deliver the records of these topics when they are due. Call before their partitions are
        added."""
        self._delays = delays

    # --- partitions --------------------------------------------------------------------------

    def add(self, instance: PartitionInstance) -> None:
        """Fetch this instance; call also when its position has changed, or it was resumed."""
        cursor = self._cursors.get(instance.partition)
        if cursor is None or cursor.instance is not instance:
            if cursor is not None:
                self.remove(cursor.instance)
            delay = self._delays.get(instance.partition.topic)
            cursor = self._cursors[instance.partition] = PartitionCursor(
                self.collector, instance, delay
            )
            cursor.set_topic_id(self._cluster.topic_id(instance.partition.topic))
            self._shares_changed = True
        cursor.reset()
        self.buffer_appended(cursor)
        if not cursor.in_flight:
            # The next plan puts it at the end of the queue of its leader.
            cursor.move_to(self._delayed)

    def remove(self, instance: PartitionInstance) -> None:
        """No longer fetch it; a response under way is ignored."""
        cursor = self._cursors.get(instance.partition)
        if cursor is None or cursor.instance is not instance:
            return
        del self._cursors[instance.partition]
        self.memory.forget(cursor)
        if instance.buffer is not None:
            # A fetch in flight may refer to it, and would keep its batches in memory.
            instance.buffer.discard()
        cursor.retire()
        self.collector.forget(cursor)
        self._responses.forget(cursor)
        self._shares_changed = True

    def leaders_known(self, now: float) -> None:
        """Fetch from new leaders at once: the metadata was refreshed."""
        for cursor in list(self._cursors.values()):
            if cursor.in_flight or cursor.queue is None or cursor.queue is self._inactive:
                continue
            leader = self._cluster.leader(cursor.instance.partition)
            if leader is not None and leader != cursor.leader:
                cursor.wait_until(min(cursor.not_before, now))
            self.place(now, cursor)

    def end_sessions(self) -> bool:
        """End all fetch sessions, as nothing is planned any more; see :func:`end_sessions`."""
        sessions = [
            (node, broker.session)
            for broker in self._brokers.values()
            if (node := self._cluster.brokers.node(broker.node_id)) is not None
        ]
        return end_sessions(self._outbox, sessions, self._reactions)

    def plan(self, now: float) -> None:
        """Send every fetch that is due. Costs little when nothing has changed."""
        if self._completed_fetches and (self._shares_changed or now >= self._held_until):
            completed, self._completed_fetches = self._completed_fetches, []
            for fetch in completed:
                self._requeue(now, fetch)
        if self._shares_changed:
            self._share(now)
        if self._delayed:
            self._place_all(now, [s for s in self._delayed if s.not_before <= now])
        looks = bool(self._inactive) and now >= self._look_at
        if looks:
            self._look_at = now + _LOOK_EVERY
            self._place_all(now, [cursor for cursor in self._inactive if cursor.is_active])
        self._truncation_detection.run()
        self._background_decoding.run()
        self.memory.release_responses(now, self._cursors.values())
        if now >= self._held_until:
            for broker in self._brokers.values():
                while broker.is_due(now) and self._send(now, broker):
                    pass
        self._set_timer(now, look=bool(self._inactive) and not looks)

    def _share(self, now: float) -> None:
        self._shares_changed = False
        for broker in list(self._brokers.values()):
            if broker.is_empty and broker.throttled_until <= now:
                del self._brokers[broker.node_id]
        self.memory.share(len(self._cursors), len(self._brokers))
        for broker in list(self._brokers.values()):
            self._place_all(now, [*broker.needs_fetch, *broker.sufficiently_buffered])

    def _set_timer(self, now: float, *, look: bool) -> None:
        at = min((cursor.not_before for cursor in self._delayed), default=_NEVER)
        if now < self._held_until:
            at = min(at, self._held_until)
        for broker in self._brokers.values():
            if broker.needs_fetch and (due_at := broker.due_at(now)) > now:
                at = min(at, due_at)
        if look:
            at = min(at, self._look_at)
        if at == self._timer_at and (at == _NEVER or self._outbox.has_timer(_TIMER)):
            return
        if now <= self._timer_at <= min(at, now + _POLLED_SOON) and self._outbox.has_timer(_TIMER):
            return  # it fires in vain, which costs less than setting another each time
        self._timer_at = at
        if at == _NEVER:
            self._outbox.cancel_timer(_TIMER)
        else:
            at = max(at, now)
            is_throttle = any(at == broker.throttled_until for broker in self._brokers.values())
            spread = 0.0 if is_throttle else (at - now) / 2
            self._outbox.set_timer(_TIMER, at, self.plan, spread=spread)

    # --- places ------------------------------------------------------------------------------

    def _place_all(self, now: float, cursors: Iterable[PartitionCursor]) -> None:
        for cursor in cursors:
            self.place(now, cursor)

    def place(self, now: float, cursor: PartitionCursor) -> None:
        """Put a cursor into the collection that it belongs to."""
        buffer = cursor.instance.buffer
        if cursor.removed or cursor.in_flight:
            return
        if buffer is None or (cursor.out_of_range is buffer and not buffer.buffered):
            cursor.move_to(None)
        elif cursor.not_before > now:
            cursor.move_to(self._delayed)
        elif not cursor.is_active:
            cursor.move_to(self._inactive)
        elif (broker := self._broker_of(now, cursor)) is None:
            cursor.delay(now)
            cursor.move_to(self._delayed)
            self._cluster.refresh(now, f"no leader for {cursor.name}")
            # If the topic is unknown, ClusterMetadata logs the wait.
            if self._cluster.partitions(cursor.instance.partition.topic) is not None:
                self._log.waiting(
                    now,
                    cursor.name,
                    log_events.WAITING_TO_FETCH,
                    partition=cursor.name,
                    reason="its leader is unknown",
                )
        elif self._truncation_detection.must_check(now, cursor, buffer):
            pass  # TruncationDetection has it
        elif not cursor.has_reached_end(buffer) and self.memory.needs_fetch(cursor, buffer):
            if cursor.queue is not broker.needs_fetch:
                cursor.move_to(broker.needs_fetch)
        else:
            cursor.move_to(broker.sufficiently_buffered)

    def _broker_of(self, now: float, cursor: PartitionCursor) -> BrokerFetches | None:
        leader = self._cluster.leader(cursor.instance.partition)
        if leader is None:
            return None
        cursor.set_leader(leader)
        node = cursor.replica.node(now, leader[0], self._cluster)
        broker = self._brokers.get(node.node_id)
        if broker is None:
            broker = self._brokers[node.node_id] = BrokerFetches(node.node_id)
            self.memory.share(len(self._cursors), len(self._brokers))
        return broker

    def position_diverged(
        self, now: float, cursor: PartitionCursor, offset: int | None, leader_epoch: int
    ) -> None:
        """The log was truncated before the end of what was fetched."""
        instance, buffer = cursor.instance, cursor.instance.buffer
        if buffer is None or instance.state is not InstanceState.ACTIVE:
            self.place(now, cursor)
            return
        buffer.discard()
        self.collector.remove(cursor)
        self.memory.recount(cursor)
        if offset is not None and offset >= instance.delivered_to:
            # No delivered record is gone; the position is checked again.
            self.place(now, cursor)
        else:
            cursor.set_out_of_range(buffer)
            cursor.move_to(None)
            self._reactions.log_truncated(now, instance, offset, leader_epoch)

    def buffer_appended(self, cursor: PartitionCursor) -> None:
        """Have a large batch decoded, count its bytes, and let polls take its records."""
        self._background_decoding.buffer_changed(cursor)
        self.memory.recount(cursor)
        self.collector.add(cursor)

    # --- requests ----------------------------------------------------------------------------

    def _send(self, now: float, broker: BrokerFetches) -> bool:
        """Send one fetch; whether another may follow."""
        config = self._config
        node = self._cluster.brokers.node(broker.node_id)
        if node is None:
            self._place_all(now, list(broker.needs_fetch))
            return False
        # With the memory used up, one fetch for partitions without records is still allowed.
        exhausted = self.memory.is_exhausted
        if exhausted and self._over_budget_fetches:
            return False
        channel, max_wait, cursors = broker.next_fetch(now, config.fetch_max_wait)
        most = min(config.max_partition_fetch_bytes, broker.max_response_bytes or _UNLIMITED)
        asked: dict[TopicPartition, FetchTarget] = {}
        wanted: dict[TopicPartition, FetchPartition] = {}
        ids: dict[str, bytes | None] = {}
        for cursor in cursors:
            buffer = cursor.instance.buffer
            if buffer is None or not cursor.is_active:
                cursor.move_to(self._inactive)
            elif not (exhausted and buffer.buffered) and self._has_same_topic_id(cursor, ids):
                partition = cursor.request(buffer, most)
                wanted[partition.partition] = partition
                asked[partition.partition] = FetchTarget(cursor, buffer, partition.offset)
                cursor.start_fetch()
        if not asked:
            return False
        max_bytes = self.memory.reserve(len(asked), broker.max_response_bytes)
        topic_ids = all_known(ids)
        named, session = SessionFetch(0, -1, tuple(wanted.values()), (), topic_ids), None
        if channel is Channel.FETCH:
            session = broker.session
            named = session.next_fetch(wanted, topic_ids)
        fetch = InFlightFetch(
            node, channel, now, max_wait, max_bytes, exhausted, asked, session, named.epoch > 0
        )
        broker.sent(fetch)
        self._over_budget_fetches += exhausted
        self._outbox.send(
            named.request(config, max_wait, max_bytes, self._rack(now, asked.values())),
            node,
            channel,
            config.fetch_max_wait + config.request_timeout,
            lambda later, reply: self._fetch_response_received(later, broker, fetch, reply),
        )
        return True

    def _rack(self, now: float, asked: Iterable[FetchTarget]) -> str:
        """The rack to fetch for. It applies to the whole request: if one partition needs its
        leader, all are read from their leaders this time."""
        rack = self._config.client_rack
        if not rack or any(target.cursor.replica.needs_leader(now) for target in asked):
            return ""
        return rack

    def _has_same_topic_id(self, cursor: PartitionCursor, ids: dict[str, bytes | None]) -> bool:
        """Add the id of its topic; whether it can be in a request with the ids already there."""
        topic = cursor.instance.partition.topic
        if cursor.topic_id is None:
            cursor.set_topic_id(self._cluster.topic_id(topic))
        return ids.setdefault(topic, cursor.topic_id) == cursor.topic_id

    def _fetch_response_received(
        self, now: float, broker: BrokerFetches, fetch: InFlightFetch, reply: Reply
    ) -> None:
        if isinstance(reply, FetchResponse) and reply.throttle_time:
            broker.throttled(now, reply.throttle_time)
        if isinstance(reply, FetchResponse) and reply.error is ErrorCode.none:
            self.memory.received(now, reply, fetch.targets)
            self._handle_part(now, broker, HandledResponse(fetch, reply))
        else:
            self._fetch_ended(now, broker, fetch, reply)

    def _handle_part(self, now: float, broker: BrokerFetches, handled: HandledResponse) -> None:
        """Handle the next part of a response."""
        if self._responses.handle(now, handled):
            self._fetch_ended(now, broker, handled.fetch, handled)
            return
        self._parts += 1
        self._outbox.set_timer(
            f"{_TIMER} part {self._parts}",
            now,
            lambda later: self._handle_part(later, broker, handled),
        )

    def _fetch_ended(
        self,
        now: float,
        broker: BrokerFetches,
        fetch: InFlightFetch,
        reply: HandledResponse | Reply,
    ) -> None:
        """A fetch has failed, or its response is handled."""
        broker.ended(fetch)
        self.memory.release(fetch.reserved)
        self._over_budget_fetches -= fetch.over_budget
        served: dict[PartitionCursor, None] = {}
        is_held = False
        match reply:
            case HandledResponse(served=served):
                fruitless = reply.fruitless and not served
                if fetch.session is not None:
                    fetch.session.response_received(reply.response.session_id)
                self._log.over(
                    now, f"node {broker.node_id}", log_events.FETCHING_AGAIN, node=broker.node_id
                )
                in_halves = reply.is_large and reply.is_within_limit
                broker.response_received(now, fetch, fruitless=fruitless, in_halves=in_halves)
                if served:
                    self._outbox.wake()
                    is_held = self._reactions.is_poll_waiting and not reply.is_large
                    if is_held:
                        self._held_until = now + _POLLED_SOON
            case FetchResponse(error=error) if fetch.partial and error in NO_SUCH_SESSION:
                # The broker has evicted the session; the next fetch names everything.
                broker.session.forget()
            case FetchResponse(error=error):
                self._broker_failed(now, broker, fetch, error.name)
            case Failed() as failed if failed.kind in FATAL_FAILURES:
                self._broker_failed(now, broker, fetch, failed.detail)
                self._reactions.failed(now, fatal_error(failed))
            case Failed(kind=kind, detail=detail):
                self._cluster.brokers.note_failure(fetch.node)
                if kind is FailureKind.TIMEOUT:
                    broker.limit_response_size(fetch)
                self._broker_failed(now, broker, fetch, detail or kind.value)
            case _:
                self._broker_failed(now, broker, fetch, f"unexpected {type(reply).__name__}")
        # If they are empty by then, they join the long poll; not if the list is long.
        joins = now < self._held_until and not broker.in_flight and len(fetch.targets) <= _FEW
        completed = _CompletedFetch(broker, fetch, served, joins)
        if is_held:
            self._completed_fetches.append(completed)
        else:
            self._requeue(now, completed)

    def _requeue(self, now: float, completed: _CompletedFetch) -> None:
        """Put the cursors of a fetch where they belong."""
        broker, fetch, served, joins = completed
        if fetch.over_budget and self._brokers.get(broker.node_id) is broker:
            # The other brokers come first with the next fetch beyond the budget.
            self._brokers[broker.node_id] = self._brokers.pop(broker.node_id)
        # Cursors that got records go behind those that did not.
        for asked in fetch.targets.values():
            got_something = asked.cursor in served
            asked.cursor.end_fetch(busy=got_something and not joins)
            if not got_something:
                self.place(now, asked.cursor)
        self._place_all(now, served)

    def _broker_failed(
        self, now: float, broker: BrokerFetches, fetch: InFlightFetch, why: str
    ) -> None:
        broker.failed(now)
        if fetch.session is not None:
            fetch.session.restart()
        for asked in fetch.targets.values():
            # Read from the leader if a replica fails.
            if not asked.cursor.is_led_by(fetch.node):
                asked.cursor.replica.fall_back(now, attempt=now - fetch.sent_at)
        self._cluster.refresh(now, f"fetch from broker {broker.node_id}: {why}")
        self._log.waiting(
            now,
            f"node {broker.node_id}",
            log_events.WAITING_FOR_FETCH_BROKER,
            node=fetch.node.address,
            partitions=len(fetch.targets),
            reason=why,
        )

    # --- polls -------------------------------------------------------------------------------

    def polled(self) -> None:
        """A poll looks for records now: send what was held for it."""
        self._held_until = 0.0

    def records_taken(self, now: float, cursor: PartitionCursor) -> None:
        """Fetch it again if its buffer has room now."""
        buffer, needed_fetch = cursor.instance.buffer, cursor.filling
        self.memory.recount(cursor)
        if buffer is None or not buffer.buffered:
            # If its end was out of range, fetch again to see whether it still is.
            cursor.set_out_of_range(None)
        else:
            if buffer.awaits_decoding:
                self._background_decoding.buffer_changed(cursor)
            if self.memory.needs_fetch(cursor, buffer) is needed_fetch:
                return
        self.place(now, cursor)
