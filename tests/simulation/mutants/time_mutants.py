"""Cores with one bug each that costs time, or runs without end at one instant."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from simulation.members.consumer_style import ConsumerStyle, WorkTime
from simulation.mutants.mutant import Mutant
from simulation.mutants.mutant_schedules import slow_tasks_and_a_crowd, throttled_brokers
from simulation.schedules.schedule import (
    Disturbance,
    GroupMode,
    Incident,
    IncidentKind,
    MemberPlan,
    Schedule,
)

from asyncrevoke.client.core.fetch.broker_fetches import BrokerFetches
from asyncrevoke.client.core.fetch.collector import RecordCollector
from asyncrevoke.client.core.io.outbox import Outbox
from asyncrevoke.client.core.membership.session_guard import SessionGuard
from asyncrevoke.client.core.poll.poll import Poller

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from asyncrevoke.client.core.fetch.cursor import PartitionCursor


def waiting_poll_wakes_itself(patch: pytest.MonkeyPatch) -> None:
    """What a poll finds that waits for a delay to be renewed wakes the next one at once."""

    def tick_due(self: Poller, now: float) -> bool:
        if self._revocation.delayed_by_user:
            self._outbox.wake()
        return self._revocation.delayed_by_user and now >= self._started_at + 0.25

    patch.setattr(Poller, "_tick_due", tick_due)


def tick_is_set_again_at_its_own_time(patch: pytest.MonkeyPatch) -> None:
    def tick(self: Poller, now: float) -> None:
        self._outbox.set_timer("revoke-tick", now, self._tick)

    patch.setattr(Poller, "_tick", tick)


def woken_poll_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A poll that waits does not hear of what was fetched for one partition of three."""
    offer = RecordCollector.add

    def forgetful(self: RecordCollector, source: PartitionCursor) -> None:
        if source.instance.partition.partition % 3:
            offer(self, source)

    patch.setattr(RecordCollector, "add", forgetful)


def look_ups_have_no_end(patch: pytest.MonkeyPatch) -> None:
    """What is asked of brokers that do not respond is asked again, without a time-out."""
    set_timer = Outbox.set_timer

    def endless(
        self: Outbox, key: str, at: float, then: Callable[[float], None], *, spread: float = 0.0
    ) -> None:
        if not key.startswith("lookup"):
            set_timer(self, key, at, then, spread=spread)

    patch.setattr(Outbox, "set_timer", endless)


def unsubscribing_has_no_end(patch: pytest.MonkeyPatch) -> None:
    """A group whose coordinator does not respond is never left."""
    set_timer = Outbox.set_timer

    def endless(
        self: Outbox, key: str, at: float, then: Callable[[float], None], *, spread: float = 0.0
    ) -> None:
        if key not in ("leave-commit", "close"):
            set_timer(self, key, at, then, spread=spread)

    patch.setattr(Outbox, "set_timer", endless)


def calls_while_a_broker_is_silent(kind: IncidentKind) -> Callable[[Schedule], Schedule]:
    """Members ask for something again and again while they are cut off from a broker."""

    def tweak(schedule: Schedule) -> Schedule:
        members = tuple(
            MemberPlan(0.1 * number, ConsumerStyle.LOOP, WorkTime()) for number in range(2)
        )
        cuts = tuple(
            Incident(3.0, IncidentKind.CUT_COORDINATOR, number, 30.0) for number in range(2)
        )
        calls = tuple(Incident(3.1 + 0.2 * n, kind, n, 1.0) for n in range(6))
        return dataclasses.replace(
            schedule, brokers=3, members=members, incidents=(*cuts, *calls), duration=25.0
        )

    return tweak


def queued_records_begin_in_doubt(patch: pytest.MonkeyPatch) -> None:
    """Only polls wait for the coordinator, not the records that they have returned."""

    def always(_self: SessionGuard, _now: float) -> float:
        return float("inf")

    patch.setattr(SessionGuard, "may_begin_until", always)


def frozen_with_queued_records(schedule: Schedule) -> Schedule:
    """Members are frozen for longer than their session while records wait for their turn."""
    styles = (ConsumerStyle.TASKS, ConsumerStyle.GROUP, ConsumerStyle.TASKS, ConsumerStyle.GROUP)
    work_time = WorkTime(0.5, 3.0, 0.1)
    members = tuple(MemberPlan(0.1 * n, style, work_time) for n, style in enumerate(styles))
    freezes = tuple(Incident(4.0 + n, IncidentKind.FREEZE, n, 9.0) for n in range(4))
    return dataclasses.replace(
        schedule,
        members=members,
        incidents=freezes,
        topics=(4,),
        session_timeout=6.0,
        duration=15.0,
        produce_every=0.2,
    )


def throttle_time_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """Fetches are sent to a broker before its throttle time is over."""

    def ignored(self: BrokerFetches, now: float, throttle_time: float) -> None:
        pass

    patch.setattr(BrokerFetches, "throttled", ignored)


MUTANTS = [
    Mutant(
        "queued records begin while the membership is unconfirmed",
        queued_records_begin_in_doubt,
        ("unconfirmed",),
        disturbance=Disturbance.FAULTS,
        tweak=frozen_with_queued_records,
    ),
    Mutant(
        "queued records begin while the KIP-848 membership is unconfirmed",
        queued_records_begin_in_doubt,
        ("unconfirmed",),
        mode=GroupMode.CONSUMER,
        disturbance=Disturbance.FAULTS,
        tweak=frozen_with_queued_records,
    ),
    Mutant(
        "what was fetched of some partitions is not delivered",
        woken_poll_is_forgotten,
        ("stall",),
    ),
    Mutant(
        "look-ups have no end",
        look_ups_have_no_end,
        ("time bound",),
        disturbance=Disturbance.FAULTS,
        tweak=calls_while_a_broker_is_silent(IncidentKind.ASK),
    ),
    Mutant(
        "unsubscribing has no end",
        unsubscribing_has_no_end,
        ("time bound",),
        disturbance=Disturbance.FAULTS,
        tweak=calls_while_a_broker_is_silent(IncidentKind.UNSUBSCRIBE),
    ),
    Mutant(
        "the throttle time of a broker is ignored",
        throttle_time_is_ignored,
        ("KIP-219",),
        tweak=throttled_brokers,
    ),
    Mutant(
        "a waiting poll wakes itself",
        waiting_poll_wakes_itself,
        ("busy loop",),
        tweak=slow_tasks_and_a_crowd(ConsumerStyle.ACK),
    ),
    Mutant(
        "a timer is set again at its own time",
        tick_is_set_again_at_its_own_time,
        ("busy loop",),
        tweak=slow_tasks_and_a_crowd(ConsumerStyle.ACK),
    ),
]
