"""A share group of a small world, whose messages and timers are points of a path."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from simulation.explorer.branches import Bounds, Branches
from simulation.explorer.explored_member import ExploredTimers
from simulation.explorer.explored_network import ExploredNetwork
from simulation.explorer.no_chance import NoChance
from simulation.explorer.path import Choice, Deviation, Path
from simulation.share.brokers.share_network import ShareNetwork
from simulation.share.members.share_member import SimulatedShareMember
from simulation.share.share_cluster import ShareCluster, topic_name
from simulation.share.share_faults import ShareFaults
from simulation.share.share_schedule import (
    HandlerPlan,
    ShareDisturbance,
    ShareIncident,
    ShareIncidentKind,
    ShareMemberPlan,
    ShareSchedule,
)
from typing_extensions import override

from asyncrevoke.client.core.share_core import ShareCore
from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from random import Random

    from simulation.share.members.share_application import ShareApplication

_INCIDENTS = {
    Deviation.FREEZE: ShareIncidentKind.FREEZE,
    Deviation.CRASH: ShareIncidentKind.CRASH,
    Deviation.LEAVE: ShareIncidentKind.LEAVE,
}
# What permits no loss of a lock.
_CALM = (Deviation.WAIT, Deviation.JOIN, Deviation.LEAVE)
_LOCK = 6.0


@dataclass(frozen=True, slots=True)
class SmallShareWorld:
    """Two members, and records that are written at these times into these partitions."""

    name: str
    partitions: int
    members: tuple[ShareMemberPlan, ...]
    records: tuple[tuple[float, int, int], ...]
    bounds: Bounds
    # Its state has no fingerprint.
    has_fingerprint: bool = False

    def describe(self) -> str:
        """The world on a line, for people."""
        return (
            f"share group, {len(self.members)} members, {self.partitions} partitions, "
            f"{sum(count for _, _, count in self.records)} records; "
            f"waits for at most {self.bounds.longest_wait} events"
        )

    def schedule(self, disturbance: ShareDisturbance) -> ShareSchedule:
        """The schedule of a run in which nothing but the path disturbs."""
        return ShareSchedule(
            seed=0,
            disturbance=disturbance,
            brokers=1,
            topics=(self.partitions,),
            duration=self.bounds.end,
            members=self.members,
            incidents=(),
            lock=_LOCK,
            delivery_limit=5,
            locks=2000,
            renews=True,
            from_earliest=True,
            fails_whole=False,
            session_timeout=9.0,
            produce_every=1.0,
        )


class ExploredShareNetwork(ExploredNetwork, ShareNetwork):
    """The requests of a share group are points of a run."""


class ExploredShareMember(ExploredTimers[ShareCore], SimulatedShareMember):
    """Its timers may be late, and its handlers may take longer."""


class ExploredShareCluster(ShareCluster):
    """One run of a small world along a path."""

    def __init__(self, world: SmallShareWorld, path: Path) -> None:
        self._small, self._path = world, path
        # Set by make_network, which the base class calls.
        self.branches: Branches
        calm = all(choice.deviation in _CALM for choice in path.choices)
        disturbance = ShareDisturbance.CALM if calm else ShareDisturbance.FAULTS
        super().__init__(world.schedule(disturbance))
        self._faults = ShareFaults(self)

    @override
    def rng(self, name: str) -> Random:
        # Packets take the middle of what they may take.
        return NoChance(0.5 if name == "network" else 0.0)

    @override
    def make_network(self) -> ShareNetwork:
        self.branches = Branches(self.clock, self._path, self._small.bounds)
        self.branches.befall = self._befall
        self.branches.deviates = self._note
        network = ExploredShareNetwork(self.clock, self.rng("network"), self.brokers, self.branches)
        network.loses = self._note_loss
        return network

    @override
    def make_member(self, client: int, core: ShareCore) -> SimulatedShareMember:
        rng = self.rng(f"member {client}")
        member = ExploredShareMember(self.clock, self.network, self.oracle, client, rng, core)
        member.branches = self.branches
        return member

    @override
    def produce(self) -> None:
        for at, number, count in self._small.records:
            log = self.brokers.topics.log(TopicPartition(topic_name(0), number))
            assert log is not None
            self.clock.at(at, partial(log.append, count))

    def _note(self, choice: Choice, point: str) -> None:
        self.oracle.note(-1, f"deviates by {choice}: {point}")

    def _note_loss(self, _client: int) -> None:
        self.oracle.disturb(None, 3 * _LOCK)

    def _befall(self, choice: Choice, client: int) -> None:
        live = {a.member.client: a for a in self.live()}
        if choice.deviation is Deviation.JOIN:
            self.join(self._small.members[-1])
        elif client in live:
            self._let(choice, live[client], list(live).index(client))

    def _let(self, choice: Choice, _target: ShareApplication, index: int) -> None:
        kind = _INCIDENTS[choice.deviation]
        incident = ShareIncident(self.clock.now, kind, index, max(choice.amount / 1000, 0.1))
        self._faults.apply(incident)


_HANDLERS = HandlerPlan(usual=0.0, longest=0.0, slow=0.0)
SHARE_WORLD = SmallShareWorld(
    "share",
    partitions=2,
    members=tuple(ShareMemberPlan(at, 2, 2, _HANDLERS) for at in (0.0, 0.1)),
    records=((0.5, 0, 2), (1.3, 1, 2), (1.5, 0, 1)),
    bounds=Bounds(begin=1.0, end=1.9, longest_wait=2),
)
