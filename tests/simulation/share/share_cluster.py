"""The brokers and members of one run of a share group."""

from __future__ import annotations

from functools import partial
from random import Random

from simulation.brokers.simulation_clock import SimulationClock
from simulation.share.brokers.numbered_responses import decode_numbered
from simulation.share.brokers.share_brokers import ShareBrokers
from simulation.share.brokers.share_network import ShareNetwork
from simulation.share.invariants.share_oracle import ShareOracle
from simulation.share.members.share_application import ShareApplication
from simulation.share.members.share_member import SimulatedShareMember
from simulation.share.share_schedule import STRICT, ShareMemberPlan, ShareSchedule

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.share.acquire_limits import AcquireLimits
from asyncrevoke.client.core.share_core import ShareCore
from asyncrevoke.testing.fake_kafka.share_group import ShareCoordinatorOptions
from asyncrevoke.testing.fake_kafka.share_partition import ShareGroupOptions

_GROUP = "group"
_HEARTBEAT_INTERVAL = 1.0


def topic_name(index: int) -> str:
    """The name of the schedule's topic number ``index``."""
    return "ab"[index]


class ShareCluster:
    """``producing_until``: records are written until then."""

    def __init__(self, schedule: ShareSchedule) -> None:
        self.schedule = schedule
        self.clock = SimulationClock()
        self.options = ShareGroupOptions(
            lock=schedule.lock,
            delivery_limit=schedule.delivery_limit,
            locks=schedule.locks,
            renews=schedule.renews,
            from_earliest=schedule.from_earliest,
        )
        coordinator = ShareCoordinatorOptions(
            session_timeout=schedule.session_timeout, heartbeat_interval=_HEARTBEAT_INTERVAL
        )
        self.brokers = ShareBrokers(
            self.clock,
            self.rng("brokers"),
            schedule.brokers,
            self.options,
            coordinator,
            fails_whole=schedule.fails_whole,
        )
        self.network = self.make_network()
        self.network.slow = schedule.slow
        self.oracle = ShareOracle(self.clock, self.brokers, strict=schedule.disturbance in STRICT)
        self.oracle.renews = schedule.renews
        self.applications: dict[int, ShareApplication] = {}
        self.producing_until = 0.0
        # Once all members close, no successor of one that was killed joins.
        self.closes = False
        self._producer = self.rng("producer")
        for index, partitions in enumerate(schedule.topics):
            self.brokers.create_topic(topic_name(index), partitions)

    def rng(self, name: str) -> Random:
        """Chance for one purpose, so that dropping an incident leaves the rest as it was."""
        return Random(f"share {name} {self.schedule.seed}")

    def make_network(self) -> ShareNetwork:
        """The network between members and brokers."""
        return ShareNetwork(self.clock, self.rng("network"), self.brokers)

    def make_member(self, client: int, core: ShareCore) -> SimulatedShareMember:
        """A new member around this core."""
        rng = self.rng(f"member {client}")
        return SimulatedShareMember(self.clock, self.network, self.oracle, client, rng, core)

    def join(self, plan: ShareMemberPlan) -> None:
        """Let a new member join."""
        if self.closes:
            return
        client = len(self.applications)
        config = ConsumerConfig.from_options(
            bootstrap_servers="broker-0:9092",
            group_id=_GROUP,
            request_timeout=5.0,
            metadata_max_age=5.0,
        )
        core = ShareCore(
            config,
            self.brokers.bootstrap(),
            decode_numbered,
            [topic_name(index) for index in range(len(self.schedule.topics))],
            member_id=f"client{client}",
            limits=AcquireLimits(
                plan.concurrency, plan.max_in_flight, topics=self.schedule.topic_limits
            ),
        )
        member = self.make_member(client, core)
        self.applications[client] = ShareApplication(
            member,
            plan.handlers,
            self.oracle,
            self.rng(f"application {client}"),
            plan.concurrency,
            self.schedule.lock,
        )
        core.start(member.now)
        member.take_effects()

    def live(self) -> list[ShareApplication]:
        """The applications that neither ended nor are about to."""
        return [a for a in self.applications.values() if a.member.alive and not a.ending]

    def produce(self) -> None:
        """Write batches into partitions drawn by chance, before ``producing_until``."""
        rng, topics = self._producer, self.brokers.topics
        if topics.partitions():
            log = topics.log(rng.choice(topics.partitions()))
            assert log is not None
            count = rng.choice((0, 1, 1, 2, 3, 6))
            log.append(count, hole=rng.choice((0, 0, 0, 1, 5)) if count else 1)
        pause = self.schedule.produce_every * 2 * rng.random()
        if self.clock.now + pause < self.producing_until:
            self.clock.after(pause, partial(self.produce))

    def report(self) -> str:
        """Who has what."""
        lines = [f"at {self.clock.now:.3f}: members {sorted(self.brokers.share_group.members)}"]
        for application in self.applications.values():
            member = application.member
            if member.alive:
                core = member.core
                lines.append(
                    f"  client {member.client}: {core.membership.state.value}, "
                    f"held {len(core.held)}, outstanding {self.network.outstanding(member.client)}"
                )
                lines += [
                    f"    broker {node.node_id}: {session.state.value}, "
                    f"{len(session.fetched)} partitions, waits {session.reserved}"
                    for node, session in core._sessions.items()
                ]
        for partition, state in self.brokers.shares.items():
            locks = [(o, e.member, round(e.deadline, 1)) for o, e in state.acquired()]
            lines.append(
                f"  partition {partition.partition} at broker {state.log.leader_id}: "
                f"{state.start} of {state.log.end}, locks {locks}"
            )
        return "\n".join(lines)
