"""Random schedules of members of a share group, and the mutants that they find.

A schedule without faults loses no lock and delivers each record to one call at a time. With faults
each record is accepted in the end.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

import pytest
from unit.core.membership.share.share_application import Application
from unit.core.membership.share.share_broker import Member, ShareBroker, World

from asyncrevoke.client.core.io.deadline import Deadline
from asyncrevoke.client.core.share.acknowledgements import Acknowledgements
from asyncrevoke.client.core.share.acquisition import Acquisition
from asyncrevoke.client.core.share.held_records import HeldRecords
from asyncrevoke.client.core.share.session import ShareSession
from asyncrevoke.client.core.share_core import ShareCore
from asyncrevoke.client.protocol.messages import ErrorCode
from asyncrevoke.client.protocol.share_messages import AcknowledgeType, ShareFetchRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from asyncrevoke.client.core.share.acquired_records import AcquiredRecord
    from asyncrevoke.client.core.share.acquisition import HeldRecord
    from asyncrevoke.client.model import Record
    from asyncrevoke.client.protocol.messages import Request
    from asyncrevoke.client.protocol.share_messages import (
        AcquiredRange,
        ShareFetchedPartition,
        TopicIdPartition,
    )

LOCK = 10.0
END_OF_FAULTS = 40.0
END = 240.0


class Schedule:
    """One drawn schedule; :meth:`run` raises AssertionError for what must not be."""

    def __init__(self, seed: int, *, faults: bool) -> None:
        self.rng = random.Random(seed)
        rng = self.rng
        self.faults = faults
        self.broker = ShareBroker(rng.randint(1, 3), rng.randint(1, 25), LOCK)
        for partition in self.broker.partitions.values():
            if rng.random() < 0.5:
                partition.gaps = frozenset(o for o in range(partition.end) if rng.random() < 0.2)
        self.world = World(self.broker)
        self.applications: list[Application] = []
        self.failures = 0

    def run(self) -> None:
        rng = self.rng
        for number in range(rng.randint(1, 3)):
            self._join(f"m{number}", rng.uniform(0, 5))
        if self.faults:
            for _ in range(rng.randint(1, 4)):
                self.world.at(rng.uniform(1, END_OF_FAULTS), self._fault)
            # Who is there at the end takes what the others have left.
            self._join("last", END_OF_FAULTS + 1)
        self.world.at(rng.uniform(1, 30), self._produce)
        while self.world.now < END:
            self.world.run(self.world.now + 1.0)
            self._check_calls()
        self._check_end()

    def _join(self, name: str, at: float) -> None:
        rng = self.rng
        concurrency = rng.randint(1, 12)
        member = Member(
            self.world, name, concurrency=concurrency, most=concurrency * rng.randint(1, 3)
        )
        member.fault_free = not self.faults
        if self.faults:
            share = rng.choice((0.0, 0.02, 0.1))
            member.fate = partial(self._fate, share)
        delay = rng.choice((0.0, 0.05, 2.0))

        def slow(_request: Request) -> float:
            return rng.uniform(0, delay)

        member.slow = slow
        self.applications.append(Application(self.world, member, self._plan))
        self.world.at(at, member.start)

    def _fate(self, share: float, _request: Request) -> str | None:
        if self.world.now > END_OF_FAULTS or self.rng.random() >= share:
            return None
        return self.rng.choice(("lost", "unanswered"))

    def _plan(self, _record: Record) -> list[tuple[str, float]]:
        rng = self.rng
        seconds = rng.choice((0.0,) * 4 + (0.01, 0.5, 0.5, 2.5 * LOCK)) * rng.random()
        end = rng.choice(("accept",) * 8 + ("reject",))
        kind = rng.random()
        if kind < 0.1:
            return [("wait", seconds), ("", rng.uniform(0, 2 * LOCK)), (end, 0.1)]
        if kind < 0.13:
            return [("later", seconds), ("", rng.uniform(0, LOCK))]
        if kind < 0.16:
            return [("release", seconds)]
        return [(end, seconds)]

    def _fault(self) -> None:
        rng, broker = self.rng, self.broker
        *some, _ = self.applications
        application = rng.choice(some)
        match rng.randrange(5):
            case 0:
                application.member.kill()
            case 1:
                broker.members.clear()
            case 2:
                errors = (
                    ErrorCode.unknown_server_error,
                    ErrorCode.invalid_share_session_epoch,
                    ErrorCode.share_session_limit_reached,
                )
                broker.errors.setdefault(ShareFetchRequest, []).append(rng.choice(errors))
            case 3:
                broker.sessions.pop(application.member.core.membership.member_id, None)
            case _:
                if not application.member.killed and application.member.is_started:
                    deadline = Deadline.after(self.world.now, 10.0)
                    application.member.call(application.member.core.close, deadline)

    def _produce(self) -> None:
        for partition in self.broker.partitions.values():
            partition.end += self.rng.randint(0, 10)

    def _check_calls(self) -> None:
        calls = [
            (partition, offset)
            for application in self.applications
            for partition, offset, _ in application.running
            if not application.member.killed
        ]
        if not self.faults:
            assert len(calls) == len(set(calls)), "two calls of one record"
        for application in self.applications:
            held = application.member.core.held
            assert len(held) <= application.member.most + 1

    def _check_end(self) -> None:
        for number, partition in self.broker.partitions.items():
            missing = set(range(partition.end)) - partition.ended.keys()
            assert not missing, f"partition {number}: {sorted(missing)} are not ended"
            for offset, kind in partition.ended.items():
                assert (kind is AcknowledgeType.GAP) == (offset in partition.gaps)
        if self.faults:
            return
        for application in self.applications:
            assert application.cancelled == []
        for number, partition in self.broker.partitions.items():
            ends = [
                (offset, what)
                for application in self.applications
                for p, offset, what in application.ended
                if p == number and what in ("accept", "reject")
            ]
            assert len(ends) == len({offset for offset, _ in ends})
            for offset, what in ends:
                assert partition.ended[offset] == AcknowledgeType[what.upper()]


@pytest.mark.parametrize("first", range(0, 75, 25))
@pytest.mark.parametrize("faults", [False, True])
def test_random_schedules_end_every_record(first: int, faults: bool) -> None:
    for seed in range(first, first + 25):
        Schedule(seed, faults=faults).run()


# --- mutants -----------------------------------------------------------------------------------


def _deadline_from_the_response(patch: pytest.MonkeyPatch) -> None:
    original = ShareSession._acquired

    def later(
        self: ShareSession,
        now: float,
        sent_at: float,
        lock_timeout: float,
        fetched: ShareFetchedPartition,
    ) -> None:
        original(self, now, sent_at + 30.0, lock_timeout, fetched)

    patch.setattr(ShareSession, "_acquired", later)


def _no_renewal(patch: pytest.MonkeyPatch) -> None:
    def nothing(_self: Acknowledgements, _records: Iterable[HeldRecord]) -> None:
        pass

    patch.setattr(Acknowledgements, "renew", nothing)


def _waiting_records_not_renewed(patch: pytest.MonkeyPatch) -> None:
    original = Acquisition.to_renew

    def running(self: Acquisition, now: float) -> list[HeldRecord]:
        return [r for r in original(self, now) if r.state.name != "WAITING"]

    patch.setattr(Acquisition, "to_renew", running)


def _gaps_forgotten(patch: pytest.MonkeyPatch) -> None:
    def nothing(
        _self: Acknowledgements, _partition: TopicIdPartition, _first: int, _last: int
    ) -> None:
        pass

    patch.setattr(Acknowledgements, "gap", nothing)


def _records_beyond_ranges(patch: pytest.MonkeyPatch) -> None:
    original = HeldRecords.add

    def add(
        self: HeldRecords,
        acquisition: Acquisition,
        records: Iterable[Record],
        ranges: Sequence[AcquiredRange],
        deadline: float,
    ) -> list[AcquiredRecord]:
        first, last = ranges[0], ranges[-1]
        whole = type(first)(
            first_offset=first.first_offset,
            last_offset=last.last_offset + 5,
            delivery_count=first.delivery_count,
        )
        return original(self, acquisition, records, [whole], deadline)

    patch.setattr(HeldRecords, "add", add)


def _fetch_beyond_free_slots(patch: pytest.MonkeyPatch) -> None:
    def fifty(_self: ShareCore, _sessions: int) -> int:
        return 50

    patch.setattr(ShareCore, "_room", fifty)


def _ready_records_lost_at_a_second_poll(patch: pytest.MonkeyPatch) -> None:
    def only_wake(self: ShareCore, _now: float, _records: Sequence[Record]) -> None:
        self.outbox.wake()

    patch.setattr(ShareCore, "records_acquired", only_wake)


MUTANTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    _deadline_from_the_response,
    _no_renewal,
    _waiting_records_not_renewed,
    _gaps_forgotten,
    _records_beyond_ranges,
    _fetch_beyond_free_slots,
    _ready_records_lost_at_a_second_poll,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__.strip("_"))
def test_random_schedules_find_this_mutant(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    for seed in range(60):
        for faults in (False, True):
            try:
                Schedule(seed, faults=faults).run()
            except (AssertionError, KeyError):
                return
    pytest.fail("no schedule finds it")
