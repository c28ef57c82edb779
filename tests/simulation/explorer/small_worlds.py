"""Small worlds, in which nothing is drawn: what is explored begins when another member joins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulation.explorer.branches import Bounds
from simulation.members.consumer_style import ConsumerStyle, WorkTime
from simulation.schedules.schedule import (
    Disturbance,
    GroupMode,
    MemberPlan,
    Schedule,
)
from simulation.schedules.transaction_plan import TransactionPlan
from typing_extensions import override

if TYPE_CHECKING:
    from random import Random


class FixedWorkTime(WorkTime):
    """Each record takes ``usual`` seconds."""

    @override
    def draw(self, rng: Random) -> float:
        return self.usual


@dataclass(frozen=True, slots=True)
class SmallWorld:
    """``records`` are written: when, into which partition, and how many."""

    name: str
    mode: GroupMode
    partitions: int
    members: tuple[MemberPlan, ...]
    records: tuple[tuple[float, int, int], ...]
    bounds: Bounds
    transactions: TransactionPlan | None = None

    # Its state has a fingerprint.
    has_fingerprint: bool = True

    def describe(self) -> str:
        """The world on a line, for people."""
        records = sum(count for _, _, count in self.records)
        bounds = self.bounds
        apart = f", deviations at most {bounds.apart:g} s apart" if bounds.apart < math.inf else ""
        plan = self.transactions
        exactly_once = f", exactly once by transaction.version {plan.version}" if plan else ""
        return (
            f"{self.mode.value}{exactly_once}, {len(self.members)} members, "
            f"{self.partitions} partitions, {records} records; "
            f"waits for at most {bounds.longest_wait} events{apart}"
        )

    def schedule(self, disturbance: Disturbance) -> Schedule:
        """The schedule of a run in which nothing but the path disturbs."""
        return Schedule(
            seed=0,
            mode=self.mode,
            disturbance=disturbance,
            brokers=1,
            topics=(self.partitions,),
            duration=self.bounds.end,
            members=self.members,
            incidents=(),
            assignors=("cooperative-sticky",),
            later_assignors=("cooperative-sticky",),
            session_timeout=10.0,
            rebalance_timeout=25.0,
            transactions=self.transactions,
        )


def _two_step_revocation(
    name: str,
    mode: GroupMode,
    *,
    end: float = 1.8,
    begin: float = 0.5,
    transactions: TransactionPlan | None = None,
) -> SmallWorld:
    """A member that works on records of three partitions, and another one that joins at 0.5 s.
    Transactions begin when the first records are done, after 1 s."""
    work_time = FixedWorkTime(usual=0.6)
    return SmallWorld(
        name,
        mode,
        partitions=3,
        members=tuple(MemberPlan(at, ConsumerStyle.TASKS, work_time) for at in (0.0, 0.5)),
        records=((0.5, 2, 1), (0.7, 0, 1), (0.85, 0, 1), (1.1, 2, 1)),
        bounds=Bounds(begin=begin, end=end, longest_wait=3),
        transactions=transactions,
    )


_MODES = {"classic": GroupMode.COOPERATIVE, "kip848": GroupMode.CONSUMER}
_TRANSACTIONS = {
    "transactions": TransactionPlan(version=2, interval=0.2),
    "transactions-1": TransactionPlan(version=1, interval=0.2),
}

WORLDS = {
    world.name: world
    for world in (
        *(_two_step_revocation(name, mode) for name, mode in _MODES.items()),
        *(
            _two_step_revocation(f"{name}-{suffix}", mode, begin=1.0, transactions=plan)
            for suffix, plan in _TRANSACTIONS.items()
            for name, mode in _MODES.items()
        ),
    )
}
