"""The simulated cluster, its members, and the oracles that follow them."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, ClassVar

from simulation.brokers.converting_group import ConvertingGroup
from simulation.brokers.faulty_brokers import FaultyBrokers, SimulatedGroup
from simulation.brokers.simulated_classic_group import SimulatedClassicGroup
from simulation.brokers.simulated_consumer_group import (
    ConsumerGroupOptions,
    ConvertibleMember,
    SimulatedConsumerGroup,
)
from simulation.brokers.simulation_clock import SimulationClock
from simulation.cluster.large_batches import decode_some_large
from simulation.cluster.network import Network
from simulation.invariants.invariant_checker import InvariantChecker
from simulation.invariants.oracle_state import OracleState
from simulation.members.application import Application
from simulation.members.consumer_style import OPTIONS, ConsumerStyle, Progress, WorkTime
from simulation.members.lifespans import SimulatedLifespans, StateStore
from simulation.members.member import SimulatedMember
from simulation.schedules.schedule import (
    INEXCUSABLE,
    GroupMode,
    Incident,
    Protocol,
    Schedule,
)

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.core import Core
from asyncrevoke.client.core.io.outbox import LARGE_FROM
from asyncrevoke.testing.fake_kafka.group_state import GroupMember

if TYPE_CHECKING:
    from collections.abc import Mapping


_GROUP = "group"
CLOSE_TIMEOUT = 12.0
# So many members have the thread that keeps a frozen one's membership.
_SHARE_OF_THREADS = 0.6
# So many wait for the coordinator when they do not know whether they are members.
_SHARE_OF_CAREFUL = 0.7
# The default, one that mostly has to be cut off, and none.
_MAP_SIZES = (512, 512, 512, 20, 0)
# How many keys a member with a handler per record finds in a partition; 0: it keeps no order.
_KEYS = (0, 2, 3, 5)


def topic_name(index: int) -> str:
    """The name of the schedule's topic number ``index``."""
    return "ab"[index]


class SimulatedCluster:
    """The cluster and members of one run; :class:`ScenarioRun` lets the incidents happen."""

    member_type: ClassVar[type[SimulatedMember]] = SimulatedMember

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.clock = SimulationClock()
        self.group = self._make_group()
        self.brokers = self.make_brokers()
        self.network = self.make_network()
        self.network.slow = schedule.slow
        self.state = OracleState(self.clock, self.brokers, self.network)
        self.state.strict = self._is_calm and schedule.mode is not GroupMode.CONVERTED
        self.state.stores_states = schedule.lifespans is not None
        self.checker = self.make_checker()
        self.group.events = self.checker
        self.network.processed_late = self.checker.processed_late
        self.applications: dict[int, Application] = {}
        self._states = StateStore(self.group)
        self.closing = False
        self.producing_until = 0.0
        self._producer = self.rng("producer")
        self.joins = self.rng("joins")
        for index, partitions in enumerate(schedule.topics):
            self.brokers.create_topic(topic_name(index), partitions)

    def make_brokers(self) -> FaultyBrokers:
        """The brokers of the group."""
        return FaultyBrokers(self.clock, self.rng("brokers"), self.schedule.brokers, self.group)

    def make_checker(self) -> InvariantChecker:
        """What follows the run."""
        return InvariantChecker(self.state)

    def style_of(self, client: int, drawn: ConsumerStyle) -> ConsumerStyle:
        """The style of a new member, for which this one was drawn."""
        # Loops have no lifespans.
        return drawn if self.schedule.lifespans is None else ConsumerStyle.TASKS

    def prepare(self, application: Application) -> None:
        """Complete a new member, before it starts."""

    def make_network(self) -> Network:
        """The network between members and brokers."""
        return Network(self.clock, self.rng("network"), self.brokers)

    @property
    def _is_calm(self) -> bool:
        return self.schedule.disturbance in INEXCUSABLE

    def _make_group(self) -> SimulatedGroup:
        schedule = self.schedule
        classic = SimulatedClassicGroup(self.clock, initial_delay=schedule.initial_delay)
        options = ConsumerGroupOptions(
            self._count_of,
            schedule.session_timeout,
            assignment_interval=schedule.initial_delay,
            lenient=schedule.seed % 2 == 0,
            key=self._key_of,
        )
        match schedule.mode:
            case GroupMode.CONSUMER:
                return SimulatedConsumerGroup(self.clock, options)
            case GroupMode.CONVERTED:
                return ConvertingGroup(classic, options)
            case _:
                return classic

    def _key_of(self, topic: str) -> str:
        return self.brokers.topics.key(topic)

    def topics(self) -> tuple[str, ...]:
        """The names of all topics, of those too that are deleted just now."""
        return tuple(topic_name(index) for index in range(len(self.schedule.topics)))

    def _count_of(self, topic: str) -> int:
        return self.brokers.topics.count_of(topic)

    def rng(self, name: str) -> Random:
        """Chance for one purpose, so that dropping an incident leaves the rest as it was."""
        return Random(f"{name} {self.schedule.seed}")

    # --- members ---------------------------------------------------------------------------------

    def make_core(self, config: ConsumerConfig, client: int) -> Core:
        """The core of a new member; a test may give another one."""
        # In some schedules every assignment is computed beside the event loop.
        large_from = 0 if self.schedule.seed % 4 == 1 else LARGE_FROM
        return Core(
            config,
            self.brokers.bootstrap(),
            decode_some_large,
            member_id=f"client{client}",
            large_from=large_from,
        )

    def make_member(self, client: int, config: ConsumerConfig, core: Core) -> SimulatedMember:
        """A new member around this core."""
        return self.member_type(
            self.clock,
            self.network,
            self.checker,
            client,
            self.rng(f"member {client}"),
            config,
            core,
            has_thread=self.rng(f"thread {client}").random() < _SHARE_OF_THREADS,
        )

    def join(
        self,
        style: ConsumerStyle,
        work_time: WorkTime,
        assignors: tuple[str, ...] | None = None,
        instance_id: str | None = None,
        protocol: Protocol | None = None,
    ) -> Application:
        """Let a new member join; ``protocol`` is its own where the group may have several."""
        schedule, client = self.schedule, len(self.applications)
        style = self.style_of(client, style)
        if schedule.static and instance_id is None:
            instance_id = f"static{client}"
        options: dict[str, object] = {
            "bootstrap_servers": "broker-0:9092",
            "group_id": _GROUP,
            "group_instance_id": instance_id,
            "auto_offset_reset": schedule.reset,
            "rebalance_timeout": schedule.rebalance_timeout,
            "revoke_timeout": schedule.revoke_timeout,
            "close_timeout": CLOSE_TIMEOUT,
            "completion_map": self.rng(f"map {client}").choice(_MAP_SIZES),
            "on_unconfirmed_membership": self._draw_on_unconfirmed_membership(client),
            **OPTIONS[style],
            **self._gap_options(client),
            **self.pace_options(),
            **self._protocol_options(client, assignors, protocol),
        }
        config = ConsumerConfig.from_options(**options)
        core = self.make_core(config, client)
        member = self.make_member(client, config, core)
        self.checker.admit(member)
        application = Application(member, style, work_time, self.checker)
        application.patient = self._is_calm
        if style is ConsumerStyle.TASKS:
            application.tasks.keys = self.rng(f"keys {client}").choice(_KEYS)
        if schedule.lifespans is not None:
            application.tasks.lifespans = SimulatedLifespans(
                member, self.checker, self._states, schedule.lifespans
            )
        self.prepare(application)
        self.applications[client] = application
        self.state.views[client].works_on = application.works_on
        self.state.views[client].polls = application.polls
        core.subscription_state.subscribe(member.now, self.topics())
        core.start(member.now)
        member.take_effects()
        application.start()
        return application

    def _draw_on_unconfirmed_membership(self, client: int) -> str:
        careful = self.rng(f"suspect {client}").random() < _SHARE_OF_CAREFUL
        return "pause" if careful else "continue"

    def _gap_options(self, client: int) -> Mapping[str, object]:
        """What suits lifespans that store maps does not suit those that store an offset alone."""
        if self.schedule.lifespans is not Progress.MAP:
            return {}
        return {"revoke_gaps": self.rng(f"gaps {client}").choice(("drop", "process"))}

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

    def disturb_transactions(self, incident: Incident) -> None:
        """Something happens to the coordinator of transactions."""
        raise ValueError(f"there are no transactions to apply {incident} to")

    def live(self) -> list[Application]:
        """The applications that neither ended nor are about to."""
        return [a for a in self.applications.values() if a.member.alive and not a.ending]

    def produce(self) -> None:
        """Write batches into partitions drawn by chance, before ``producing_until``."""
        rng = self._producer
        if self.brokers.topics.partitions():
            partition = rng.choice(self.brokers.topics.partitions())
            log = self.brokers.topics.log(partition)
            assert log is not None
            count = rng.choice((0, 1, 1, 2, 3, 8))
            log.append(count, hole=rng.choice((0, 0, 0, 1, 5)) if count else 1)
        pause = self.schedule.produce_every * rng.random()
        if self.clock.now + pause < self.producing_until:
            self.clock.after(pause, self.produce)

    def end(self) -> None:
        """The run has ended, well or not."""

    def check_end(self) -> None:
        """All members have closed: check what must hold then."""

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
            waits = _waits_for(member)
            lines.append(f"  {member.member_id} (client {member.client}) waits for {waits}")
        for application in self.applications.values():
            if application.member.alive:
                lines.append(f"  {dict(application.member.facts())}")
                lines.append(f"    {dict(application.facts())}")
                held = self.state.views[application.member.client].held
                lines.append(f"    holds {sorted(held)}")
        return "\n".join(lines)


def _waits_for(member: GroupMember | ConvertibleMember) -> str:
    if isinstance(member, GroupMember):
        return "join" if member.join else "sync" if member.sync else "nothing"
    kind = "classic, " if member.is_classic else ""
    return f"{kind}{member.state.value} at epoch {member.epoch}, pending {sorted(member.pending)}"
