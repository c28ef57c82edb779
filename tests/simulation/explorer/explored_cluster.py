"""The cluster and members of a small world, whose messages and timers are points of a path."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from simulation.cluster.simulated_cluster import SimulatedCluster, topic_name
from simulation.explorer.branches import Branches
from simulation.explorer.explored_member import ExploredMember
from simulation.explorer.explored_network import ExploredNetwork
from simulation.explorer.fingerprint import fingerprint
from simulation.explorer.no_chance import NoChance
from simulation.explorer.path import Choice, Deviation, Path
from simulation.schedules.fault_injection import FaultInjector
from simulation.schedules.schedule import Disturbance, Incident, IncidentKind
from simulation.transactions.transactional_cluster import TransactionalCluster
from typing_extensions import override

from asyncrevoke.client.core.partition import assignment
from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from simulation.explorer.small_worlds import SmallWorld
    from simulation.members.member import SimulatedMember

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.core import Core

_INCIDENTS = {
    Deviation.FREEZE: IncidentKind.FREEZE,
    Deviation.CRASH: IncidentKind.CRASH,
    Deviation.LEAVE: IncidentKind.STOP,
}
# What permits neither the loss of a partition nor that a record is handled again.
_CALM = (Deviation.WAIT, Deviation.JOIN, Deviation.LEAVE)


_STATE_EVERY = 0.1


class ExploredCluster(SimulatedCluster):
    """One run of a small world along a path."""

    member_type: ClassVar[type[SimulatedMember]] = ExploredMember

    def __init__(self, world: SmallWorld, path: Path) -> None:
        self._small, self._path = world, path
        # Set by make_network, which the base class calls.
        self.branches: Branches
        # Each run has the tracker ids of the first consumers of a process.
        assignment._CONSUMERS = itertools.count()
        calm = all(choice.deviation in _CALM for choice in path.choices)
        super().__init__(world.schedule(Disturbance.CALM if calm else Disturbance.LOSS))
        self.state.lossy = not calm
        self._faults = FaultInjector(self)

    @override
    def rng(self, name: str) -> Random:
        # Packets take the middle of what they may take; of two members one has a thread.
        half = name in ("network", "thread 0")
        return NoChance(0.5 if half else 0.9 if name.startswith("thread") else 0.0)

    @override
    def make_network(self) -> ExploredNetwork:
        self.branches = Branches(self.clock, self._path, self._small.bounds)
        self.branches.befall = self._befall
        self.branches.deviates = self._note
        network = ExploredNetwork(self.clock, self.rng("network"), self.brokers, self.branches)
        network.loses = self._note_loss
        return network

    @override
    def make_member(self, client: int, config: ConsumerConfig, core: Core) -> SimulatedMember:
        member = super().make_member(client, config, core)
        assert isinstance(member, ExploredMember)
        member.branches = self.branches
        return member

    @override
    def produce(self) -> None:
        for at, number, count in self._small.records:
            log = self.brokers.topics.log(TopicPartition(topic_name(0), number))
            assert log is not None
            self.clock.at(at, partial(log.append, count))

    @override
    def pace_options(self) -> Mapping[str, object]:
        # A late commit can then be processed after the next one.
        options = super().pace_options()
        return {**options, "commit_interval": 0.2} if "commit_interval" in options else options

    def take_states(self) -> None:
        """Take the fingerprint of this run every 0.1 s, so long as it may deviate."""
        bounds = self._small.bounds
        for number in range(1, math.ceil((bounds.end - bounds.begin) / _STATE_EVERY)):
            at = bounds.begin + number * _STATE_EVERY
            take = partial(self.branches.add_state, partial(fingerprint, self))
            self.clock.at(at, take)

    def _note(self, choice: Choice, point: str) -> None:
        self.state.note(-1, f"deviates by {choice}: {point}")

    def _note_loss(self, client: int) -> None:
        self.state.lost_requests.setdefault(client, []).append(self.clock.now)

    def _befall(self, choice: Choice, client: int) -> None:
        if choice.deviation is Deviation.JOIN:
            plan = self._small.members[-1]
            self.join(plan.style, plan.work_time)
            return
        live = [application.member.client for application in self.live()]
        if client in live:
            kind = _INCIDENTS[choice.deviation]
            incident = Incident(self.clock.now, kind, live.index(client), choice.amount / 1000)
            self.state.note(-1, incident)
            self._faults.apply(incident)


class ExploredTransactionalCluster(ExploredCluster, TransactionalCluster):
    """The same, of members that process exactly once. The first one has no heartbeat thread: a long
    freeze amid its transaction costs it its partitions."""

    @override
    def rng(self, name: str) -> Random:
        return NoChance(0.9) if name == "thread 0" else super().rng(name)


def explored_cluster(world: SmallWorld, path: Path) -> ExploredCluster:
    """A new run of a small world along a path."""
    kind = ExploredCluster if world.transactions is None else ExploredTransactionalCluster
    return kind(world, path)
