"""Faults of a run: each kind of incident, and requests that are lost at random."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from simulation.cluster.network import RequestFate
from simulation.members.consumer_style import ConsumerStyle, WorkTime
from simulation.schedules.schedule import GroupMode, IncidentKind, Protocol, draw_style

from asyncrevoke.client.model import OffsetAndMetadata
from asyncrevoke.client.producing.requests import ProduceRequest
from asyncrevoke.client.producing.transactions.offset_requests import TxnOffsetCommitRequest
from asyncrevoke.client.producing.transactions.requests import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
)
from asyncrevoke.client.protocol.messages import OffsetCommitRequest, Request
from asyncrevoke.testing.fake_kafka.group_state import GroupState

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulation.cluster.simulated_cluster import SimulatedCluster
    from simulation.members.application import Application
    from simulation.schedules.schedule import Incident

_OTHERS = (Protocol.CONSUMER, Protocol.CONSUMER, Protocol.AUTO)
_LOOK_EVERY = 0.001
# Seconds that a link is slow.
_SLOW_FOR = 12.0
_FATES = (RequestFate.LOST_BEFORE, RequestFate.LOST_AFTER, RequestFate.LATE)
# What commits offsets, or results with them.
_COMMITS = (
    OffsetCommitRequest,
    ProduceRequest,
    AddPartitionsToTxnRequest,
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    EndTxnRequest,
)


class FaultInjector:
    """Carries incidents out, and notes which losses and duplicates they permit."""

    def __init__(self, world: SimulatedCluster) -> None:
        self._world = world
        self._rng = world.rng("faults")
        self._loss = 0.0
        self._late_commits_until = 0.0
        self._acts: dict[IncidentKind, Callable[[Incident, Application], None]] = {
            IncidentKind.STOP: self._stop,
            IncidentKind.LEAVE: self._leave,
            IncidentKind.REPLACE: self._replace,
            IncidentKind.SWITCH: self._switch,
            IncidentKind.SUBSCRIBE: self._subscribe,
            IncidentKind.COMMIT: self._commit,
            IncidentKind.CANCEL: self._cancel,
            IncidentKind.EXPIRE: self._expire,
            IncidentKind.AWAY: self._away,
            IncidentKind.STYLE: self._change_style,
            IncidentKind.UNSUBSCRIBE: self._unsubscribe,
            IncidentKind.ASK: self._ask,
            IncidentKind.REREAD: self._read_again,
            IncidentKind.SEEK_TO: self._seek_to,
            IncidentKind.PAUSE: self._pause,
            IncidentKind.CRASH: self._crash,
            IncidentKind.FREEZE: self._freeze,
            IncidentKind.JUMP: self._jump,
            IncidentKind.CUT: self._cut,
            IncidentKind.CUT_COORDINATOR: self._cut_coordinator,
            IncidentKind.DROP: self._drop,
            IncidentKind.BLACK_HOLE: self._black_hole,
            IncidentKind.SLOW_LINK: self._slow_link,
        }

    def apply(self, incident: Incident) -> None:
        """Let an incident happen."""
        match incident.kind:
            case IncidentKind.JOIN:
                self._world.join(draw_style(self._rng), WorkTime())
            case IncidentKind.PARTITIONS:
                self._add_partitions(incident)
            case IncidentKind.RETENTION:
                self._delete_oldest(incident)
            case IncidentKind.RECREATE:
                self._recreate(incident)
            case IncidentKind.MOVE:
                self._disturb_brokers(incident.amount + 0.5)
                self._world.brokers.move_coordinator(0.1 + incident.amount)
            case IncidentKind.MOVE_AMID:
                self._move_amid(incident)
            case IncidentKind.RESTART:
                self._restart(incident)
            case IncidentKind.MOVE_TRANSACTIONS | IncidentKind.FORGET_ID:
                self._world.disturb_transactions(incident)
            case IncidentKind.STALL:
                self._disturb_brokers(incident.amount)
                broker = incident.target % self._world.brokers.count
                self._world.brokers.stall(broker, self._world.clock.now + incident.amount)
            case IncidentKind.THROTTLE:
                self._disturb_brokers(incident.amount)
                broker = incident.target % self._world.brokers.count
                self._world.brokers.throttle(broker, self._world.clock.now + incident.amount)
            case IncidentKind.REJECT_COMMITS:
                self._reject_commits(incident)
            case IncidentKind.LATE_COMMITS:
                self._late_commits_until = self._world.clock.now + incident.amount
                self._world.network.fate = self._fate
            case kind:
                live = self._world.live()
                if live:
                    self._acts[kind](incident, live[incident.target % len(live)])

    # --- requests --------------------------------------------------------------------------------

    def lose_requests(self, share: float) -> None:
        """Break the connection under this share of all requests, until the end."""
        self._loss = share
        self._world.network.fate = self._fate

    def _fate(self, client: int, message: Request) -> RequestFate | None:
        if isinstance(message, _COMMITS) and (
            self._world.clock.now < self._late_commits_until and self._rng.random() < 0.5
        ):
            self._note_loss(client)
            return RequestFate.LATE
        if self._rng.random() < self._loss:
            self._note_loss(client)
            return self._rng.choice(_FATES)
        return None

    def _note_loss(self, client: int) -> None:
        state = self._world.state
        state.lost_requests.setdefault(client, []).append(state.clock.now)

    def end(self) -> None:
        """No request is lost or rejected any more."""
        self._world.brokers.end_rejections()
        self._loss = 0.0
        self._world.network.fate = lambda _client, _message: None

    # --- the life of a group ---------------------------------------------------------------------

    def _stop(self, _incident: Incident, application: Application) -> None:
        application.stop()

    def _leave(self, _incident: Incident, application: Application) -> None:
        application.leave()

    def _replace(self, _incident: Incident, application: Application) -> None:
        world = self._world
        application.on_closed = lambda: self._return(application)
        application.stop()
        world.state.note(application.member.client, "is being replaced")

    def _return(self, application: Application, protocol: Protocol | None = None) -> None:
        if self._world.closing:
            return
        self._world.join(
            application.style,
            application.work_time,
            self._world.schedule.later_assignors,
            application.member.config.group_instance_id,
            protocol,
        )

    def _switch(self, _incident: Incident, application: Application) -> None:
        was_classic = application.member.config.group_protocol == "classic"
        protocol = self._rng.choice(_OTHERS) if was_classic else Protocol.CLASSIC
        application.on_closed = lambda: self._return(application, protocol)
        application.stop()
        self._world.state.note(application.member.client, f"is to come back as {protocol.value}")

    def _subscribe(self, incident: Incident, application: Application) -> None:
        names = self._world.topics()
        if len(names) > 1:
            some = names[incident.target % len(names) :][:1]
            # A blocked event loop subscribes to nothing before it runs again.
            member = application.member
            member.later(0.0, lambda: application.subscribe(some))
            # Somebody has to read the rest, or the end could never be reached.
            member.later(2.0, lambda: application.subscribe(names))

    def _reject_commits(self, incident: Incident) -> None:
        names = sorted(self._world.brokers.topics)
        if names:
            self._disturb_brokers(incident.amount)
            until = self._world.clock.now + incident.amount
            self._world.brokers.reject_commits(names[incident.target % len(names)], until)

    def _commit(self, _incident: Incident, application: Application) -> None:
        if application.style is ConsumerStyle.MANUAL:
            self._commit_before_positions(application)
        else:
            application.commit()

    def _commit_before_positions(self, application: Application) -> None:
        """Commit what is committed already, as soon as there are partitions without a position."""
        world = self._world
        # Members of a group that is converted may have a partition in common for a while.
        if application.closing or world.closing or world.schedule.mode is GroupMode.CONVERTED:
            return
        stored = world.brokers.group.offsets
        placed = world.state.views[application.member.client].held
        assigned = application.member.core.assignment.partitions()
        offsets = {
            partition: OffsetAndMetadata(stored[partition].offset)
            for partition in sorted(assigned)
            if partition not in placed and partition in stored
        }
        if offsets:
            application.commit_offsets(offsets)
            world.state.counts["commits before a position is known"] += len(offsets)
        else:
            world.clock.after(_LOOK_EVERY, lambda: self._commit_before_positions(application))

    def _cancel(self, incident: Incident, application: Application) -> None:
        application.cancel_step(incident.amount)

    def _expire(self, _incident: Incident, application: Application) -> None:
        application.expire_step()

    def _away(self, incident: Incident, application: Application) -> None:
        application.leave_loop(incident.amount)

    def _change_style(self, incident: Incident, application: Application) -> None:
        application.change_style(incident.target // len(self._world.live()))

    def _unsubscribe(self, incident: Incident, application: Application) -> None:
        application.unsubscribe_for(incident.amount)

    def _ask(self, _incident: Incident, application: Application) -> None:
        topics = self._world.topics()
        partitions = self._world.brokers.topics.partitions()

        def ask() -> None:
            application.calls.look_up(topics)
            # Of its own ones the oracles follow what the core itself is told.
            own = application.member.core.assignment.partitions()
            application.calls.committed([tp for tp in partitions if tp not in own])

        application.member.later(0.0, ask)

    # A blocked event loop neither seeks nor pauses before it runs again.

    def _read_again(self, _incident: Incident, application: Application) -> None:
        application.member.later(0.0, application.read_again)

    def _seek_to(self, incident: Incident, application: Application) -> None:
        to_end = incident.target % 3 == 0
        application.member.later(0.0, partial(application.seek_to, to_end=to_end))

    def _pause(self, incident: Incident, application: Application) -> None:
        application.member.later(
            0.0, partial(application.paused.pause, incident.target, incident.amount)
        )

    def _add_partitions(self, incident: Incident) -> None:
        brokers = self._world.brokers
        names = sorted(brokers.topics)
        if names:
            chosen = names[incident.target % len(names)]
            brokers.create_topic(chosen, len(brokers.topics[chosen]) + 1 + incident.target % 2)

    def _recreate(self, incident: Incident) -> None:
        world, names = self._world, sorted(self._world.brokers.topics)
        if names:
            chosen = names[incident.target % len(names)]
            partitions = len(world.brokers.topics[chosen])
            world.checker.deleted(chosen)
            world.brokers.delete_topic(chosen)
            world.clock.after(
                incident.amount, lambda: world.brokers.create_topic(chosen, partitions)
            )

    def _delete_oldest(self, incident: Incident) -> None:
        partitions = self._world.brokers.topics.partitions()
        if not partitions:
            return
        partition = partitions[incident.target % len(partitions)]
        log = self._world.brokers.topics.log(partition)
        if log is not None:
            # Half of what there is, and sometimes all of it.
            log.delete_before(log.end if incident.amount > 0.5 else (log.start + log.end) // 2)
            self._world.checker.deliveries.deleted_before(partition, log.start)

    # --- faults ----------------------------------------------------------------------------------

    def _disturb_brokers(self, seconds: float) -> None:
        state = self._world.state
        for view in state.views.values():
            view.kept = False
        state.disturbed_until = max(state.disturbed_until, self._world.clock.now + seconds)

    def _disturb(self, application: Application, seconds: float) -> None:
        state, client = self._world.state, application.member.client
        state.views[client].kept = False
        until = self._world.clock.now + seconds
        state.client_disturbed_until[client] = max(
            state.client_disturbed_until.get(client, 0.0), until
        )

    def _crash(self, _incident: Incident, application: Application) -> None:
        self._world.state.permit_duplicates(application.member.client, "a member crashed")
        application.member.die()

    def _freeze(self, incident: Incident, application: Application) -> None:
        client = application.member.client
        frozen = self._world.state.client_frozen
        frozen[client] = frozen.get(client, 0.0) + incident.amount
        kept = self._world.checker.is_kept(application.member)
        self._disturb(application, incident.amount)
        self._world.state.views[client].kept = kept
        application.member.freeze(incident.amount)

    def _jump(self, incident: Incident, application: Application) -> None:
        client = application.member.client
        jumped = self._world.state.client_jumped
        jumped[client] = jumped.get(client, 0.0) + incident.amount
        self._disturb(application, 0.5)
        application.member.jump(incident.amount)

    def _cut(self, incident: Incident, application: Application) -> None:
        self._disturb(application, incident.amount)
        self._world.network.cut(
            application.member.client, None, self._world.clock.now + incident.amount
        )

    def _cut_coordinator(self, incident: Incident, application: Application) -> None:
        self._disturb(application, incident.amount)
        self._world.network.cut(
            application.member.client,
            self._world.brokers.coordinator,
            self._world.clock.now + incident.amount,
        )

    def _drop(self, _incident: Incident, application: Application) -> None:
        self._disturb(application, 0.0)
        self._world.network.disconnect_client(application.member.client)

    def _black_hole(self, _incident: Incident, application: Application) -> None:
        self._disturb(application, application.member.config.session_timeout)
        self._world.network.black_hole(application.member.client, None)
        self._world.checker.silence(application.member)

    def _slow_link(self, incident: Incident, application: Application) -> None:
        self._disturb(application, _SLOW_FOR)
        until = self._world.clock.now + _SLOW_FOR
        self._world.network.delay(application.member.client, incident.amount, until)

    def _move_amid(self, incident: Incident) -> None:
        """Move once the next join phase has ended, and a little later."""
        world = self._world
        if world.brokers.loads or world.brokers.group.state is not GroupState.COMPLETING:
            if not world.closing:
                world.clock.after(_LOOK_EVERY, lambda: self._move_amid(incident))
            return

        def move() -> None:
            self._disturb_brokers(0.6)
            world.brokers.move_coordinator(0.1)

        world.clock.after(incident.amount, move)

    def _restart(self, incident: Incident) -> None:
        world = self._world
        broker = incident.target % world.brokers.count
        if not world.brokers.is_up(broker):
            return
        self._disturb_brokers(incident.amount + 0.5)
        world.network.disconnect_broker(broker)
        world.brokers.stop(broker)
        world.clock.after(incident.amount, lambda: world.brokers.start(broker))
