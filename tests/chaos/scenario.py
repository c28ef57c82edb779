"""What happens in a chaos run: a protocol, and faults one after another, drawn by a seed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from chaos.environment.group import CLOSE_TIMEOUT, PROTOCOLS, ProtocolName
from chaos.environment.proxied_brokers import SESSION_TIMEOUT
from chaos.faults import brokers, members, network, topics
from chaos.faults.fault import Fault
from chaos.invariants.run_checker import Allowed

if TYPE_CHECKING:
    from collections.abc import Sequence


FAULTS: dict[str, type[Fault]] = {
    fault.name: fault
    for fault in (
        members.Join,
        members.Leave,
        members.Kill,
        members.ShortFreeze,
        members.LongFreeze,
        members.Hang,
        members.HangAtStop,
        members.Block,
        members.Raise,
        members.Cancel,
        brokers.BrokerKill,
        brokers.BrokerRestart,
        brokers.ShortBrokerFreeze,
        brokers.BrokerFreeze,
        network.BlackHole,
        network.ShortOutage,
        network.LongOutage,
        network.LostRequests,
        network.LostResponses,
        network.Delay,
        network.Throttle,
        network.Cut,
        network.Refuse,
        network.SilentBroker,
        topics.PartitionsAdded,
        topics.CreatedAgain,
        topics.RetentionBehind,
        topics.RetentionAhead,
        topics.Compaction,
        topics.Aborted,
        topics.TopicWithdrawn,
        topics.GroupWithdrawn,
    )
}
# Seconds beyond the session, and beyond close_timeout.
STALL_BEYOND = 5.0
EXIT_BEYOND = 1.0


class Scenario(NamedTuple):
    """One run; the same seed draws the same targets of faults."""

    seed: int
    protocol: ProtocolName
    faults: tuple[type[Fault], ...]

    @property
    def name(self) -> str:
        """For people and folders."""
        return f"{self.protocol}-{'+'.join(fault.name for fault in self.faults)}-{self.seed}"

    def allowed(self, slack: float) -> Allowed:
        """What the faults allow; ``slack`` is seconds for a busy machine."""
        silence = max((fault.silence for fault in self.faults), default=0.0)
        return Allowed(
            endings=any(fault.endings for fault in self.faults),
            failures=any(fault.failures for fault in self.faults),
            stall=SESSION_TIMEOUT + STALL_BEYOND + silence + slack,
            exit=CLOSE_TIMEOUT + EXIT_BEYOND + slack,
        )


def possible(size: int, *, endings: bool = True, alone: bool = False) -> list[type[Fault]]:
    """The faults that make sense with so many brokers."""
    return [
        fault
        for fault in FAULTS.values()
        if fault.brokers <= size and (endings or not fault.endings) and (alone or not fault.alone)
    ]


def draw(
    seed: int,
    size: int,
    *,
    count: int = 3,
    endings: bool = True,
    protocols: Sequence[ProtocolName] = PROTOCOLS,
) -> Scenario:
    """A scenario with ``count`` different faults."""
    rng = random.Random(seed)
    chosen = rng.sample(possible(size, endings=endings), count)
    return Scenario(seed, protocols[seed % len(protocols)], tuple(chosen))
