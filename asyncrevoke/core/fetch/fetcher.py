"""Which partitions to fetch from which broker, and the fair drain of what came.

Every instance that is fetched for stands in exactly one place: *hungry* or *full* at its leader's
lane, in the flight of that lane, *parked* while it may not flow (paused, blocked, being revoked),
*delayed* after an error, or waiting for a check of its position (:class:`EpochChecks`). So neither
a poll nor an event costs a step per partition, but only one per partition that moved.

While a lane's long poll waits at the broker for partitions without new data, others of that lane
may run dry, and go by a fetch of their own: see :class:`Lane`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.core.fetch.background_decoding import DecodeAhead
from asyncrevoke.core.fetch.broker_fetches import Asked, Flight, Lane
from asyncrevoke.core.fetch.cursor import FetchSource
from asyncrevoke.core.fetch.drain import Delivery
from asyncrevoke.core.fetch.memory_budget import FetchBudget
from asyncrevoke.core.fetch.responses import FetchAnswers
from asyncrevoke.core.fetch.session import Named, end_sessions
from asyncrevoke.core.fetch.truncation_detection import EpochChecks
from asyncrevoke.core.io.effects import Channel, Failed, FailureKind
from asyncrevoke.core.io.wait_log import WaitLog
from asyncrevoke.core.partition.instance import State
from asyncrevoke.errors import AuthenticationError, UnsupportedVersionError
from asyncrevoke.protocol.messages import ErrorCode, FetchRequest, FetchResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.fetch.delayed_topic import Delay
    from asyncrevoke.core.io.outbox import Outbox, Reply
    from asyncrevoke.core.metadata.cluster import Cluster
    from asyncrevoke.core.partition.instance import PartitionInstance
    from asyncrevoke.model import Record, TopicPartition
    from asyncrevoke.protocol.messages import FetchPartition
    from asyncrevoke.protocol.records import RecordDecoder

_TIMER = "fetching"
_NEVER = float("inf")
_UNLIMITED = 2**62
_NO_SUCH_SESSION = frozenset(
    (
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    )
)
# Nobody tells us when a partition may flow again, so we look; not at every event.
_LOOK_EVERY = 0.01
# So many partitions may stand in one fetch though they are busy.
_FEW = 32
# How long a poll that waits may take to come for what was fetched, before more is asked for.
_POLLED_SOON = 0.005


class _Landing(NamedTuple):
    """An answer that was taken in: ``served`` got something, and if it ``joins`` goes with the
    others of its lane again."""

    lane: Lane
    flight: Flight
    served: dict[FetchSource, None]
    joins: bool


class Fetching:
    """Plans fetches and hands out what they bring.

    The composer sets what :attr:`delivery` asks for, ``on_out_of_range(now, instance)``,
    ``on_truncated(now, instance, offset, epoch)`` (the log was cut, and ends at ``offset`` before
    what was delivered; None if that is not known), ``on_log_end(now, instance)``,
    ``on_error(now, error)`` and ``awaited()`` (a poll waits for records), calls :meth:`add` also
    after a new buffer was put in place, :meth:`polled` when a poll begins to look, and :meth:`plan`
    after every event.
    """

    def __init__(
        self, outbox: Outbox, config: ConsumerConfig, cluster: Cluster, decode: RecordDecoder
    ) -> None:
        self._outbox = outbox
        self._config = config
        self._cluster = cluster
        self._log = WaitLog(outbox)
        self._budget = FetchBudget(config)
        self._answers = FetchAnswers(config, cluster, decode, self._log)
        self._answers.on_appended = self._appended
        self._answers.on_error = self._error
        self._answers.on_out_of_range = self._out_of_range
        self._answers.on_log_end = self._log_end
        self._ahead = DecodeAhead(outbox, self._budget, config.buffer_memory // 2)
        self._checks = EpochChecks(outbox, config, cluster, self._log)
        self._checks.on_checked = self._place
        self._checks.on_truncated = self._truncated
        self._checks.on_delayed = lambda source: source.move_to(self._delayed)
        self._checks.on_error = self._error
        self.on_out_of_range: Callable[[float, PartitionInstance], None] = lambda _now, _instance: (
            None
        )
        self.on_truncated: Callable[[float, PartitionInstance, int | None, int], None] = (
            lambda _now, _instance, _offset, _epoch: None
        )
        self.on_log_end: Callable[[float, PartitionInstance], None] = lambda _now, _instance: None
        self.on_error: Callable[[float, Exception], None] = lambda _now, _error: None
        self.awaited: Callable[[], bool] = lambda: False
        # By topic; to be set before any of its partitions is added.
        self.delays: Mapping[str, Delay] = {}
        self._sources: dict[TopicPartition, FetchSource] = {}
        self.delivery = Delivery(outbox, self._answers, self._sources)
        self.delivery.on_drained = self._drained
        # Anew: a seek may have put something else there.
        self.delivery.on_due = lambda source: self.add(source.instance)
        self._lanes: dict[int, Lane] = {}
        # What a poll is about to drain has no place before: the poll is not to wait for that.
        self._landings: list[_Landing] = []
        self._scarce_flights = 0
        self._parked: dict[FetchSource, None] = {}
        self._delayed: dict[FetchSource, None] = {}
        self._look_at = 0.0
        # A poll is about to drain what has come: one fetch asks for that and the rest then.
        self._held_until = 0.0
        self._timer_at = _NEVER
        self._shares_changed = False

    def _error(self, now: float, error: Exception) -> None:
        self.on_error(now, error)

    def _out_of_range(self, now: float, instance: PartitionInstance) -> None:
        self.on_out_of_range(now, instance)

    def _log_end(self, now: float, instance: PartitionInstance) -> None:
        self.on_log_end(now, instance)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of what was fetched and not delivered."""
        return self._budget.used

    # --- what is fetched for -----------------------------------------------------------------

    def add(self, instance: PartitionInstance) -> None:
        """Fetch for this instance; also when its position, or whether it may flow, has changed."""
        source = self._sources.get(instance.partition)
        if source is None or source.instance is not instance:
            if source is not None:
                self.remove(source.instance)
            delay = self.delays.get(instance.partition.topic)
            source = self._sources[instance.partition] = FetchSource(self.delivery, instance, delay)
            source.topic_id = self._cluster.topic_id(instance.partition.topic)
            self._shares_changed = True
        source.reset()
        self._appended(source)
        if not source.in_flight:
            # The next plan places it, at the end of the queue of its leader.
            source.move_to(self._delayed)

    def remove(self, instance: PartitionInstance) -> None:
        """Fetch for it no more; an answer under way is ignored."""
        source = self._sources.get(instance.partition)
        if source is None or source.instance is not instance:
            return
        del self._sources[instance.partition]
        self._budget.forget(source)
        source.removed = True
        source.move_to(None)
        self.delivery.forget(source)
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

    def end(self, then: Callable[[], None]) -> bool:
        """Nothing is planned any more: end all sessions; see :func:`end_sessions`."""
        sessions = [
            (node, lane.session)
            for lane in self._lanes.values()
            if (node := self._cluster.node(lane.node_id)) is not None
        ]
        return end_sessions(self._outbox, sessions, then)

    def plan(self, now: float) -> None:
        """Send every fetch that should be under way. Costs little when nothing has changed."""
        if self._landings and (self._shares_changed or now >= self._held_until):
            landings, self._landings = self._landings, []
            for landing in landings:
                self._land(now, landing)
        if self._shares_changed:
            self._share(now)
        if self._delayed:
            self._place_all(now, [s for s in self._delayed if s.not_before <= now])
        looks = bool(self._parked) and now >= self._look_at
        if looks:
            self._look_at = now + _LOOK_EVERY
            self._place_all(now, [source for source in self._parked if source.may_flow])
        self._checks.run()
        self._ahead.run()
        if now >= self._held_until:
            for lane in self._lanes.values():
                while lane.is_due(now) and self._send(now, lane):
                    pass
        self._set_timer(now, look=bool(self._parked) and not looks)

    def _share(self, now: float) -> None:
        self._shares_changed = False
        for lane in list(self._lanes.values()):
            if lane.is_empty:
                del self._lanes[lane.node_id]
        self._budget.share(len(self._sources), len(self._lanes))
        for lane in list(self._lanes.values()):
            self._place_all(now, [*lane.hungry, *lane.full])

    def _set_timer(self, now: float, *, look: bool) -> None:
        at = min((source.not_before for source in self._delayed), default=_NEVER)
        if now < self._held_until:
            at = min(at, self._held_until)
        for lane in self._lanes.values():
            if lane.hungry and (due_at := lane.due_at(now)) > now:
                at = min(at, due_at)
        if look:
            at = min(at, self._look_at)
        if at == self._timer_at and (at == _NEVER or self._outbox.has_timer(_TIMER)):
            return
        if now <= self._timer_at <= min(at, now + _POLLED_SOON) and self._outbox.has_timer(_TIMER):
            return  # it looks in vain, which costs less than to set another one each time
        self._timer_at = at
        if at == _NEVER:
            self._outbox.cancel_timer(_TIMER)
        else:
            at = max(at, now)
            self._outbox.set_timer(_TIMER, at, self.plan, spread=(at - now) / 2)

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
            source.delay(now)
            source.move_to(self._delayed)
            self._cluster.refresh(now, f"no leader for {source.name}")
            # Of a topic that no broker has told of yet, the cluster says what is waited for.
            if self._cluster.partitions(source.instance.partition.topic) is not None:
                self._log.waiting(
                    now,
                    source.name,
                    "waiting to fetch",
                    partition=source.name,
                    reason="its leader is unknown",
                )
        elif self._checks.hold(now, source, buffer):
            pass  # it has its place there
        elif self._budget.is_hungry(source, buffer):
            if source.home is not lane.hungry:
                source.move_to(lane.hungry)
        else:
            source.move_to(lane.full)

    def _lane_of(self, now: float, source: FetchSource) -> Lane | None:
        leader = self._cluster.leader(source.instance.partition)
        if leader is None:
            return None
        source.leader = leader
        node = source.replica.node(now, leader[0], self._cluster)
        lane = self._lanes.get(node.node_id)
        if lane is None:
            lane = self._lanes[node.node_id] = Lane(node.node_id)
            self._budget.share(len(self._sources), len(self._lanes))
        return lane

    def _truncated(self, now: float, source: FetchSource, offset: int | None, epoch: int) -> None:
        """The log was cut before the end of what was fetched."""
        instance, buffer = source.instance, source.instance.buffer
        if buffer is None or instance.state is not State.ACTIVE:
            self._place(now, source)
            return
        buffer.discard()
        self.delivery.withdraw(source)
        self._budget.recount(source)
        if offset is not None and offset >= instance.delivered_to:
            # Only what was not delivered is gone; the position is checked in its turn.
            self._place(now, source)
        else:
            source.out_of_range = buffer
            source.move_to(None)
            self.on_truncated(now, instance, offset, epoch)

    def _appended(self, source: FetchSource) -> None:
        self._ahead.want(source)
        self._budget.recount(source)
        self.delivery.offer(source)

    # --- requests ----------------------------------------------------------------------------

    def _send(self, now: float, lane: Lane) -> bool:
        """Send one fetch; whether another may follow."""
        config = self._config
        node = self._cluster.node(lane.node_id)
        if node is None:
            self._place_all(now, list(lane.hungry))
            return False
        # With the memory used up, one fetch for those that have nothing is still allowed.
        scarce = self._budget.is_scarce
        if scarce and self._scarce_flights:
            return False
        channel, max_wait, sources = lane.next_fetch(now, config.fetch_max_wait)
        most = min(config.max_partition_fetch_bytes, lane.widest or _UNLIMITED)
        asked: dict[TopicPartition, Asked] = {}
        wanted: dict[TopicPartition, FetchPartition] = {}
        ids: dict[str, bytes | None] = {}
        for source in sources:
            buffer = source.instance.buffer
            if buffer is None or not source.may_flow:
                source.move_to(self._parked)
            elif not (scarce and buffer.buffered) and self._goes_by(source, ids):
                partition = source.request(buffer, most)
                wanted[partition.partition] = partition
                asked[partition.partition] = Asked(source, buffer, partition.offset)
                source.move_to(None)
                source.in_flight = True
        if not asked:
            return False
        max_bytes = self._budget.reserve(len(asked), lane.widest)
        topic_ids = _all_known(ids)
        named, session = Named(0, -1, tuple(wanted.values()), (), topic_ids), None
        if channel is Channel.FETCH:
            session = lane.session
            named = session.name(wanted, topic_ids)
        flight = Flight(
            node, channel, now, max_wait, max_bytes, scarce, asked, session, named.epoch > 0
        )
        lane.flights[channel] = flight
        self._scarce_flights += scarce
        self._outbox.send(
            FetchRequest(
                partitions=named.partitions,
                max_wait=max_wait,
                min_bytes=max(config.fetch_min_bytes, 1),
                max_bytes=max_bytes,
                read_committed=config.isolation_level == "read_committed",
                rack=self._rack(now, asked.values()),
                session_id=named.session_id,
                session_epoch=named.epoch,
                forgotten=named.forgotten,
                topic_ids=named.topic_ids,
            ),
            node,
            channel,
            config.fetch_max_wait + config.request_timeout,
            lambda later, reply: self._answered(later, lane, flight, reply),
        )
        return True

    def _rack(self, now: float, asked: Iterable[Asked]) -> str:
        """The rack to fetch for. It holds for a whole request: with one partition that needs its
        leader, it is left out, and the others are read from the leader as well this time."""
        rack = self._config.client_rack
        if not rack or any(each.source.replica.needs_leader(now) for each in asked):
            return ""
        return rack

    def _goes_by(self, source: FetchSource, ids: dict[str, bytes | None]) -> bool:
        """Add the id of its topic; whether it can go by the ids that are there already."""
        topic = source.instance.partition.topic
        if source.topic_id is None:
            source.topic_id = self._cluster.topic_id(topic)
        return ids.setdefault(topic, source.topic_id) == source.topic_id

    def _answered(self, now: float, lane: Lane, flight: Flight, reply: Reply) -> None:
        del lane.flights[flight.channel]
        self._budget.give_back(flight.reserved)
        self._scarce_flights -= flight.scarce
        served: dict[FetchSource, None] = {}
        is_held = False
        match reply:
            case FetchResponse(error=ErrorCode.none):
                if flight.session is not None:
                    flight.session.answered(reply.session_id)
                self._cluster.note_success(flight.node)
                self._log.over(now, f"node {lane.node_id}", "fetching again", node=lane.node_id)
                served, fruitless = self._answers.take_in(now, flight, reply)
                lane.answered(now, flight, fruitless=fruitless)
                if served:
                    self._outbox.wake()
                    is_held = self.awaited()
                    if is_held:
                        self._held_until = now + _POLLED_SOON
            case FetchResponse(error=error) if flight.partial and error in _NO_SUCH_SESSION:
                # Brokers forget sessions; with everything named it is answered at once.
                lane.session.refused()
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
                if kind is FailureKind.TIMEOUT:
                    lane.narrow(flight)
                self._lane_failed(now, lane, flight, detail or kind.value)
            case _:
                self._lane_failed(now, lane, flight, f"unexpected {type(reply).__name__}")
        # Drained by then, they join the others again, which a long list is not looked through for.
        joins = now < self._held_until and not lane.flights and len(flight.asked) <= _FEW
        landing = _Landing(lane, flight, served, joins)
        if is_held:
            self._landings.append(landing)
        else:
            self._land(now, landing)

    def _land(self, now: float, landing: _Landing) -> None:
        """Put what was in flight where it belongs."""
        lane, flight, served, joins = landing
        for asked in flight.asked.values():
            asked.source.in_flight = False
        if flight.scarce and self._lanes.get(lane.node_id) is lane:
            # The other brokers come first with the next one that is allowed.
            self._lanes[lane.node_id] = self._lanes.pop(lane.node_id)
        # Those that got something go behind those that did not.
        for asked in flight.asked.values():
            got_something = asked.source in served
            asked.source.busy = got_something and not joins
            if not got_something:
                self._place(now, asked.source)
        self._place_all(now, served)

    def _lane_failed(self, now: float, lane: Lane, flight: Flight, why: str) -> None:
        lane.failed(now)
        if flight.session is not None:
            flight.session.doubted()
        for asked in flight.asked.values():
            # A replica that fails is left for the leader.
            if not asked.source.is_led_by(flight.node):
                asked.source.replica.fall_back(now, attempt=now - flight.sent_at)
        self._cluster.refresh(now, f"fetch from broker {lane.node_id}: {why}")
        self._log.waiting(
            now,
            f"node {lane.node_id}",
            "waiting for a broker to fetch from",
            node=f"{flight.node.host}:{flight.node.port}",
            partitions=len(flight.asked),
            reason=why,
        )

    # --- the drain ---------------------------------------------------------------------------

    def polled(self) -> None:
        """A poll looks for records now."""
        self._held_until = 0.0

    @property
    def has_deliverable(self) -> bool:
        """Whether a drain would find anything (by estimate)."""
        return self.delivery.is_ready

    def drain(self, now: float, limit: int) -> dict[TopicPartition, list[Record]]:
        """See :meth:`Delivery.drain`."""
        return self.delivery.drain(now, limit)

    def _drained(self, now: float, source: FetchSource) -> None:
        self._ahead.want(source)
        self._budget.recount(source)
        buffer, was_hungry = source.instance.buffer, source.filling
        if source.empty:
            # If its end was out of range, ask again whether it still is.
            source.out_of_range = None
        elif buffer is not None and self._budget.is_hungry(source, buffer) is was_hungry:
            return
        self._place(now, source)


def _all_known(ids: dict[str, bytes | None]) -> dict[str, bytes] | None:
    """The same if brokers have told all of them; else it goes by names."""
    known = {topic: topic_id for topic, topic_id in ids.items() if topic_id is not None}
    return known if len(known) == len(ids) else None
