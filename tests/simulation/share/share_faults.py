"""Carries out the incidents of a schedule, and loses requests by chance."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from simulation.cluster.network import RequestFate
from simulation.share.share_schedule import STRICT, ShareIncident
from simulation.share.share_schedule import ShareIncidentKind as Kind

from asyncrevoke.client.protocol.messages import ErrorCode, Request
from asyncrevoke.client.protocol.share_messages import (
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
    TopicIdPartition,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulation.share.members.share_application import ShareApplication
    from simulation.share.share_cluster import ShareCluster

_FATES = (RequestFate.LOST_BEFORE, RequestFate.LOST_AFTER, RequestFate.LATE)
_FETCH_ERRORS = (
    ErrorCode.unknown_server_error,
    ErrorCode.invalid_share_session_epoch,
    ErrorCode.share_session_not_found,
    ErrorCode.invalid_request,
)
_SHORTEST_LOCK = 3.0
# After what has befallen a member, its requests may take that long.
_AFTERMATH = 12.0


class ShareFaults:
    """``end`` heals what lasts."""

    def __init__(self, world: ShareCluster) -> None:
        self._world = world
        self._rng = world.rng("faults")
        self._loss = 0.0
        self._acts: dict[Kind, Callable[[ShareApplication, ShareIncident], None]] = {
            Kind.JOIN: self._join,
            Kind.LEAVE: self._leave,
            Kind.GROW: self._grow,
            Kind.MOVE_COORDINATOR: self._move_coordinator,
            Kind.FORGET: self._forget,
            Kind.FULL: self._full,
            Kind.CRASH: self._crash,
            Kind.FREEZE: self._freeze,
            Kind.JUMP: self._jump,
            Kind.CUT: self._cut,
            Kind.BLACK_HOLE: self._black_hole,
            Kind.DROP: self._drop,
            Kind.SLOW_LINK: self._slow_link,
            Kind.RESTART: self._restart,
            Kind.STALL: self._stall,
            Kind.MOVE_LEADER: self._move_leader,
            Kind.DELETE: self._delete,
            Kind.RESET: self._reset,
            Kind.EVICT: self._evict,
            Kind.NO_ROOM: self._no_room,
            Kind.ERROR: self._error,
            Kind.CORRUPT: self._corrupt,
            Kind.SHORTER_LOCK: self._shorter_lock,
        }

    def apply(self, incident: ShareIncident) -> None:
        """Let it happen to a live member, if there is one."""
        live = self._world.live()
        if not live:
            return
        target = live[incident.client % len(live)]
        self._world.oracle.note(target.member.client, incident)
        if self._world.schedule.disturbance not in STRICT:
            # Locks that pass later because of it are renewed no more.
            lasting = incident.amount + self._world.schedule.lock + _AFTERMATH
            self._world.oracle.disturb(None, lasting)
        self._acts[incident.kind](target, incident)

    def lose_requests(self, share: float) -> None:
        """Lose this share of all requests."""
        self._loss = share
        self._world.network.fate = self._fate

    def _fate(self, _client: int, _message: Request) -> RequestFate | None:
        if not self._loss or self._rng.random() >= self._loss:
            return None
        self._world.oracle.disturb(None, self._world.schedule.lock + _AFTERMATH)
        return self._rng.choice(_FATES)

    def end(self) -> None:
        """Nothing fails any more."""
        self._loss = 0.0
        for leader in self._world.brokers.leaders:
            leader.corrupts = 0
            leader.limit = 2000
        self._world.brokers.errors.clear()
        self._world.brokers.share_group.options.max_size = 200

    # --- members ---------------------------------------------------------------------------------

    def _join(self, target: ShareApplication, _incident: ShareIncident) -> None:
        plans = self._world.schedule.members
        self._world.join(plans[target.member.client % len(plans)])

    def _leave(self, target: ShareApplication, _incident: ShareIncident) -> None:
        target.close()

    def _crash(self, target: ShareApplication, incident: ShareIncident) -> None:
        world = self._world
        target.member.die()
        world.oracle.died(target.member)
        plans = world.schedule.members
        plan = plans[target.member.client % len(plans)]
        world.clock.after(incident.amount, lambda: world.join(plan))

    def _freeze(self, target: ShareApplication, incident: ShareIncident) -> None:
        target.member.freeze(incident.amount)

    def _jump(self, target: ShareApplication, incident: ShareIncident) -> None:
        target.member.jump(incident.amount)

    # --- links -----------------------------------------------------------------------------------

    def _cut(self, target: ShareApplication, incident: ShareIncident) -> None:
        broker = self._rng.choice((None, 0))
        until = self._world.clock.now + incident.amount
        self._world.network.cut(target.member.client, broker, until)

    def _black_hole(self, target: ShareApplication, _incident: ShareIncident) -> None:
        broker = self._rng.choice((None, 0))
        self._world.network.black_hole(target.member.client, broker)

    def _drop(self, target: ShareApplication, _incident: ShareIncident) -> None:
        self._world.network.disconnect_client(target.member.client)

    def _slow_link(self, target: ShareApplication, incident: ShareIncident) -> None:
        until = self._world.clock.now + 8.0
        self._world.network.delay(target.member.client, min(incident.amount, 4.0), until)

    # --- brokers ---------------------------------------------------------------------------------

    def _broker(self) -> int:
        return self._rng.randrange(self._world.brokers.count)

    def _restart(self, _target: ShareApplication, incident: ShareIncident) -> None:
        world, broker = self._world, self._broker()
        if not world.brokers.is_up(broker):
            return
        world.brokers.stop(broker)
        world.network.disconnect_broker(broker)
        world.clock.after(incident.amount, partial(world.brokers.start, broker))

    def _stall(self, _target: ShareApplication, incident: ShareIncident) -> None:
        world = self._world
        world.brokers.stall(self._broker(), world.clock.now + incident.amount)

    def _move_coordinator(self, _target: ShareApplication, incident: ShareIncident) -> None:
        self._world.brokers.move_coordinator(min(incident.amount, 1.0))

    def _forget(self, _target: ShareApplication, _incident: ShareIncident) -> None:
        self._world.brokers.share_group.forget()

    def _full(self, _target: ShareApplication, incident: ShareIncident) -> None:
        options = self._world.brokers.share_group.options
        options.max_size = 1

        def has_room() -> None:
            options.max_size = 200

        self._world.clock.after(min(incident.amount, 5.0), has_room)

    def _partition(self) -> TopicIdPartition | None:
        partitions = list(self._world.brokers.shares)
        return self._rng.choice(partitions) if partitions else None

    def _move_leader(self, _target: ShareApplication, _incident: ShareIncident) -> None:
        if (partition := self._partition()) is not None:
            self._world.brokers.move_leader(partition)

    def _reset(self, _target: ShareApplication, _incident: ShareIncident) -> None:
        if (partition := self._partition()) is not None:
            self._world.brokers.shares[partition].move()

    def _evict(self, target: ShareApplication, _incident: ShareIncident) -> None:
        for leader in self._world.brokers.leaders:
            leader.sessions.pop(target.member.member_id, None)

    def _no_room(self, _target: ShareApplication, incident: ShareIncident) -> None:
        leader = self._world.brokers.leaders[self._broker()]
        leader.limit = 0

        def has_room() -> None:
            leader.limit = 2000

        self._world.clock.after(incident.amount, has_room)

    def _error(self, _target: ShareApplication, _incident: ShareIncident) -> None:
        errors = self._world.brokers.errors
        kind = self._rng.choice((ShareFetchRequest, ShareFetchRequest, ShareGroupHeartbeatRequest))
        if kind is ShareFetchRequest:
            errors.setdefault(kind, []).append(self._rng.choice(_FETCH_ERRORS))
        else:
            errors.setdefault(kind, []).append(ErrorCode.unknown_server_error)

    def _corrupt(self, _target: ShareApplication, _incident: ShareIncident) -> None:
        self._world.brokers.leaders[self._broker()].corrupts += 2

    def _shorter_lock(self, _target: ShareApplication, _incident: ShareIncident) -> None:
        options = self._world.options
        options.lock = max(options.lock / 2, _SHORTEST_LOCK)

    # --- topics ----------------------------------------------------------------------------------

    def _grow(self, _target: ShareApplication, _incident: ShareIncident) -> None:
        brokers = self._world.brokers
        if brokers.topics:
            name = self._rng.choice(list(brokers.topics))
            brokers.create_topic(name, brokers.topics.count_of(name) + 1)

    def _delete(self, _target: ShareApplication, incident: ShareIncident) -> None:
        world = self._world
        if not world.brokers.topics:
            return
        name = self._rng.choice(list(world.brokers.topics))
        partitions = world.brokers.topics.count_of(name)
        world.brokers.delete_topic(name)
        world.clock.after(incident.amount, partial(world.brokers.create_topic, name, partitions))
