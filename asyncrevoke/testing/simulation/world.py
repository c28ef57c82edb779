"""A world: the cluster, its members, and everything that a schedule does to them."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

from asyncrevoke.config import ConsumerConfig
from asyncrevoke.core.consumer_core import ConsumerCore
from asyncrevoke.testing.simulation.application import OPTIONS, Application, Pace, Shape
from asyncrevoke.testing.simulation.brokers import Brokers
from asyncrevoke.testing.simulation.clock import Clock
from asyncrevoke.testing.simulation.converting_group import ConvertingGroup
from asyncrevoke.testing.simulation.coordinator import GroupCoordinator
from asyncrevoke.testing.simulation.epoch_group import EpochGroup
from asyncrevoke.testing.simulation.faults import Faults
from asyncrevoke.testing.simulation.group import GroupState
from asyncrevoke.testing.simulation.judge import Judge
from asyncrevoke.testing.simulation.log import decode_some_large
from asyncrevoke.testing.simulation.member import Member
from asyncrevoke.testing.simulation.network import Network
from asyncrevoke.testing.simulation.oracles import Books, Violation
from asyncrevoke.testing.simulation.schedule import (
    Disturbance,
    GroupMode,
    MemberPlan,
    Protocol,
    Schedule,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.testing.simulation.brokers import Group
    from asyncrevoke.testing.simulation.schedule import Incident

_GROUP = "group"
_CLOSE_TIMEOUT = 12.0
# So many members have the thread that keeps a frozen one's membership.
_SHARE_OF_THREADS = 0.6
# So many wait for the coordinator when they do not know whether they are members.
_SHARE_OF_CAREFUL = 0.2
# The default, one that mostly has to be cut off, and none.
_MAP_SIZES = (512, 512, 512, 20, 0)


def topic_name(index: int) -> str:
    """The name of the schedule's topic number ``index``."""
    return "ab"[index]


class World:
    """One run of a schedule. ``run`` raises :class:`Violation` if an oracle objects."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.clock = Clock()
        self.group = self._make_group()
        self.brokers = Brokers(self.clock, self.rng("brokers"), schedule.brokers, self.group)
        self.network = Network(self.clock, self.rng("network"), self.brokers)
        self.network.slow = schedule.slow
        self.books = Books(self.clock, self.brokers, self.network)
        self.books.inexcusable = self._is_calm and schedule.mode is not GroupMode.CONVERTED
        self.judge = Judge(self.books)
        self.group.events = self.judge
        self.network.processed_late = self.judge.group.processed_late
        self.faults = Faults(self)
        self.applications: dict[int, Application] = {}
        self.closing = False
        # A member has joined to make a group rebalance that leaves partitions unread.
        self._rescued = False
        self.producing_until = 0.0
        self._producer = self.rng("producer")
        self._joins = self.rng("joins")
        for index, partitions in enumerate(schedule.topics):
            self.brokers.create_topic(topic_name(index), partitions)

    @property
    def _is_calm(self) -> bool:
        return self.schedule.disturbance is Disturbance.CALM

    def _make_group(self) -> Group:
        schedule = self.schedule
        classic = GroupCoordinator(self.clock, initial_delay=schedule.initial_delay)
        epochs = EpochGroup(
            self.clock,
            self._count_of,
            schedule.session_timeout,
            assignment_interval=schedule.initial_delay,
            lenient=schedule.seed % 2 == 0,
            key=self._key_of,
        )
        match schedule.mode:
            case GroupMode.CONSUMER:
                return epochs
            case GroupMode.CONVERTED:
                return ConvertingGroup(classic, epochs)
            case _:
                return classic

    def _key_of(self, topic: str) -> str:
        return self.brokers.key(topic)

    def topics(self) -> tuple[str, ...]:
        """The names of all topics, of those too that are deleted just now."""
        return tuple(topic_name(index) for index in range(len(self.schedule.topics)))

    def _count_of(self, topic: str) -> int:
        return self.brokers.count_of(topic)

    def rng(self, name: str) -> Random:
        """Chance for one purpose, so that dropping an incident leaves the rest as it was."""
        return Random(f"{name} {self.schedule.seed}")  # noqa: S311 - reproducible, not secret

    # --- members ---------------------------------------------------------------------------------

    def make_core(self, config: ConsumerConfig, client: int) -> ConsumerCore:
        """The core of a new member; a test may give another one."""
        return ConsumerCore(
            config, self.brokers.bootstrap(), decode_some_large, member_id=f"client{client}"
        )

    def join(
        self,
        shape: Shape,
        pace: Pace,
        assignors: tuple[str, ...] | None = None,
        instance_id: str | None = None,
        protocol: Protocol | None = None,
    ) -> Application:
        """Let a new member join; ``protocol`` is its own where the group may have several."""
        schedule, client = self.schedule, len(self.applications)
        if schedule.static and instance_id is None:
            instance_id = f"static{client}"
        options: dict[str, object] = {
            "bootstrap_servers": "broker-0:9092",
            "group_id": _GROUP,
            "group_instance_id": instance_id,
            "auto_offset_reset": schedule.reset,
            "rebalance_timeout": schedule.rebalance_timeout,
            "revoke_timeout": schedule.revoke_timeout,
            "close_timeout": _CLOSE_TIMEOUT,
            "completion_map": self.rng(f"map {client}").choice(_MAP_SIZES),
            "on_suspect": self._draw_on_suspect(client),
            **OPTIONS[shape],
            **self.pace_options(),
            **self._protocol_options(client, assignors, protocol),
        }
        config = ConsumerConfig.from_options(**options)
        rng = self.rng(f"member {client}")
        core = self.make_core(config, client)
        member = Member(
            self.clock,
            self.network,
            self.judge,
            client,
            rng,
            config,
            core,
            has_thread=self.rng(f"thread {client}").random() < _SHARE_OF_THREADS,
        )
        self.judge.admit(member)
        application = Application(member, shape, pace, self.judge)
        application.patient = self._is_calm
        self.applications[client] = application
        self.books.views[client].works_on = application.works_on
        core.subscribe(member.now, self.topics())
        core.start(member.now)
        member.take_effects()
        application.start()
        return application

    def _draw_on_suspect(self, client: int) -> str:
        careful = self.rng(f"suspect {client}").random() < _SHARE_OF_CAREFUL
        return "pause" if careful else "continue"

    def pace_options(self) -> Mapping[str, object]:
        """How often members ask and commit: all of it often, since schedules are short."""
        return {"request_timeout": 5.0, "metadata_max_age": 5.0, "commit_interval": 0.7}

    def _protocol_options(
        self, client: int, assignors: tuple[str, ...] | None, protocol: Protocol | None
    ) -> dict[str, object]:
        if self.schedule.mode is GroupMode.CONVERTED and protocol is None:
            protocol = self.rng(f"protocol {client}").choice(tuple(Protocol))
        if self.schedule.mode is GroupMode.CONSUMER:
            protocol = Protocol.CONSUMER
        if protocol is Protocol.CONSUMER:
            return {"group_protocol": "consumer"}
        options: dict[str, object] = {
            "assignors": assignors or self.schedule.assignors,
            "session_timeout": self.schedule.session_timeout,
        }
        return options | ({"group_protocol": "auto"} if protocol is Protocol.AUTO else {})

    def _join_planned(self, plan: MemberPlan) -> None:
        self.join(plan.shape, plan.pace, protocol=plan.protocol)

    def live(self) -> list[Application]:
        """The applications that neither ended nor are about to."""
        return [a for a in self.applications.values() if a.member.alive and not a.ending]

    # --- the run ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the schedule to its end."""
        schedule, clock = self.schedule, self.clock
        for plan in schedule.members:
            clock.at(plan.at, partial(self._join_planned, plan))
        for incident in schedule.incidents:
            clock.at(incident.at, partial(self._befall, incident))
        if schedule.loss:
            self.books.lossy = True
            self.faults.lose_requests(schedule.loss)
        self.producing_until = schedule.duration
        self.produce()
        clock.run_until(schedule.duration)
        self.faults.end()
        self._come_to_rest()
        self._close_all()

    def _befall(self, incident: Incident) -> None:
        self.books.note(-1, incident)
        self.faults.befall(incident)

    def produce(self) -> None:
        """Write batches into partitions drawn by chance, before ``producing_until``."""
        rng = self._producer
        if self.brokers.partitions():
            partition = rng.choice(self.brokers.partitions())
            log = self.brokers.log(partition)
            assert log is not None
            count = rng.choice((0, 1, 1, 2, 3, 8))
            log.append(count, hole=rng.choice((0, 0, 0, 1, 5)) if count else 1)
        pause = self.schedule.produce_every * rng.random()
        if self.clock.now + pause < self.producing_until:
            self.clock.after(pause, self.produce)

    def _come_to_rest(self) -> None:
        schedule = self.schedule
        patience = 25.0 + 2 * (schedule.rebalance_timeout + schedule.session_timeout)
        if schedule.disturbance is Disturbance.FAULTS:
            patience += 30.0
        deadline = self.clock.now + patience
        while self.judge.unfinished(self._live_clients()):
            overlooked = isinstance(self.group, ConvertingGroup) and self.group.unread
            if not self.live() or (overlooked and not self._rescued):
                self._rescued = overlooked
                self.join(Shape.LOOP, Pace(), schedule.later_assignors)
            if self.clock.now >= deadline:
                self.judge.must_be_at_rest(self._live_clients(), self.report())
            self.clock.run_until(min(self.clock.now + 0.25, deadline))

    def _live_clients(self) -> list[int]:
        return [a.member.client for a in self.live()]

    def _close_all(self) -> None:
        self.closing = True
        for application in list(self.live()):
            if self._joins.random() < 0.5:
                application.stop()
            else:
                application.leave()
        deadline = self.clock.now + _CLOSE_TIMEOUT + self.schedule.session_timeout + 5
        self.clock.run_until(deadline, self._is_over)
        if not self._is_over():
            raise Violation("close", "members have not closed\n" + self.report())
        reasons = self.judge.deliveries.missing(released=True)
        if reasons:
            raise Violation("I5", "after closing: " + "; ".join(reasons))

    def _is_over(self) -> bool:
        return self.group.state is GroupState.EMPTY and not any(
            a.member.alive for a in self.applications.values()
        )

    def report(self) -> str:
        """Who waits for what."""
        group = self.group
        head = (
            f"at {self.clock.now:.3f}: group {group.state.value}, generation {group.generation}, "
            f"protocol {group.protocol}, leader {group.leader}, "
            f"coordinator {self.brokers.coordinator}"
        )
        lines = [head]
        for member in group.members.values():
            waits = member.waits_for
            lines.append(f"  {member.member_id} (client {member.client}) waits for {waits}")
        for application in self.applications.values():
            if application.member.alive:
                lines.append(f"  {dict(application.member.facts())}")
                lines.append(f"    {dict(application.facts())}")
                held = self.books.views[application.member.client].held
                lines.append(f"    holds {sorted(held)}")
        return "\n".join(lines)
