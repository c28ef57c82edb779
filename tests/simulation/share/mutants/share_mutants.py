"""Mutants of the core of a share group: each has one bug, which an invariant must see.

``python -m simulation.share.mutants.share_mutants`` prints how many schedules that are not made for
it find each.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from simulation.share.share_run import run_share
from simulation.share.share_schedule import (
    HandlerPlan,
    ShareDisturbance,
    ShareIncident,
    ShareIncidentKind,
    ShareSchedule,
    draw_share,
)

from asyncrevoke.client.core.io.effects import Channel
from asyncrevoke.client.core.membership.share.member import ShareGroupMembership
from asyncrevoke.client.core.share.acknowledgements import AcknowledgedRange, Acknowledgements
from asyncrevoke.client.core.share.acquisition import Acquisition, HeldRecord
from asyncrevoke.client.core.share.error_table import (
    SessionErrorAction,
    session_error_action,
)
from asyncrevoke.client.core.share.held_records import HeldRecords
from asyncrevoke.client.core.share.session import ShareSession
from asyncrevoke.client.core.share.state_table import RecordState, SessionState
from asyncrevoke.client.core.share_core import ShareCore
from asyncrevoke.client.protocol.messages import ErrorCode
from asyncrevoke.client.protocol.share_messages import AcquiredRange, ShareAcknowledgeRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from asyncrevoke.client.protocol.share_messages import TopicIdPartition

# No test uses seeds from here on.
_FIRST_SEED = 60_000_000


@dataclass(frozen=True)
class ShareMutant:
    """A patch of one decision of the core; one of the invariants ``caught_by`` has to object.
    ``disturbance`` and ``tweak`` are where the bug can show."""

    name: str
    patch: Callable[[pytest.MonkeyPatch], None]
    caught_by: tuple[str, ...]
    disturbance: ShareDisturbance = ShareDisturbance.FAULTS
    tweak: Callable[[ShareSchedule], ShareSchedule] = lambda schedule: schedule

    def schedule(self, seed: int) -> ShareSchedule:
        """A schedule in which the bug can show."""
        return self.tweak(draw_share(seed, self.disturbance))


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    pass


def _none_lost(_core: ShareCore) -> list[tuple[int, int]]:
    return []


def _never(_session: ShareSession) -> float:
    return 0.0


def _waiting_not_renewed(patch: pytest.MonkeyPatch) -> None:
    renewed = Acquisition.to_renew

    def to_renew(self: Acquisition, now: float) -> list[HeldRecord]:
        return [r for r in renewed(self, now) if r.state is not RecordState.WAITING]

    patch.setattr(Acquisition, "to_renew", to_renew)


def _nothing_renewed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Acknowledgements, "renew", _nothing)


def _deadline_from_arrival(patch: pytest.MonkeyPatch) -> None:
    fetched = ShareSession._fetched

    def later(self: ShareSession, now: float, sent: Any, reply: Any) -> None:
        fetched(self, now, sent._replace(sent_at=now), reply)

    patch.setattr(ShareSession, "_fetched", later)


def _partition_dropped_on_121(patch: pytest.MonkeyPatch) -> None:
    def refused(
        self: Acknowledgements, _partition: TopicIdPartition, ranges: Sequence[AcknowledgedRange]
    ) -> None:
        records = [r for taken in ranges for r in taken.records]
        self._held.lose(records, "refused", "the broker has refused the acknowledgement")

    patch.setattr(Acknowledgements, "refused", refused)


def _ack_beside_a_fetch(patch: pytest.MonkeyPatch) -> None:
    plan = ShareSession.plan

    def beside(self: ShareSession, now: float, *rest: Any, may_acquire: bool) -> None:
        waiting = self._outstanding
        if waiting is None or not self.acknowledgements or self.state is not SessionState.OPEN:
            plan(self, now, *rest, may_acquire=may_acquire)
            return
        taken = self.acknowledgements.take(lambda _: True, renewals=True)
        self._acknowledge(now, taken, self._epoch + 1)

    patch.setattr(ShareSession, "plan", beside)


def _close_beside_a_fetch(patch: pytest.MonkeyPatch) -> None:
    close = ShareSession.close

    def beside(self: ShareSession) -> None:
        close(self)
        if self._outstanding is not None and self.state is SessionState.OPEN:
            self._outbox.send(
                ShareAcknowledgeRequest(
                    group_id=self._group_id,
                    member_id=self._member_id,
                    session_epoch=-1,
                    partitions=(),
                ),
                self.node,
                Channel.SHARE,
                5.0,
                _nothing,
            )

    patch.setattr(ShareSession, "close", beside)


def _epoch_kept(patch: pytest.MonkeyPatch) -> None:
    def refused(error: ErrorCode) -> SessionErrorAction:
        if error is ErrorCode.unknown_server_error:
            return SessionErrorAction.REFUSED
        return session_error_action(error)

    patch.setattr("asyncrevoke.client.core.share.session.session_error_action", refused)


def _beyond_ranges(patch: pytest.MonkeyPatch) -> None:
    add = HeldRecords.add

    def beyond(
        self: HeldRecords, acquisition: Acquisition, records: Any, ranges: Any, deadline: float
    ) -> Any:
        whole = AcquiredRange(
            first_offset=ranges[0].first_offset,
            last_offset=ranges[-1].last_offset + 5,
            delivery_count=ranges[0].delivery_count,
        )
        return add(self, acquisition, records, [whole], deadline)

    patch.setattr(HeldRecords, "add", beyond)


def _gaps_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Acknowledgements, "gap", _nothing)


def _forgotten_while_held(patch: pytest.MonkeyPatch) -> None:
    fetch = ShareSession._fetch

    def forget(
        self: ShareSession, now: float, taken: Any, added: Any, gone: Any, *rest: Any, **wait: Any
    ) -> None:
        gone = frozenset(self._partitions - self.fetched.keys())
        fetch(self, now, taken, added, gone, *rest, **wait)

    patch.setattr(ShareSession, "_fetch", forget)


def _old_acks_to_the_new_leader(patch: pytest.MonkeyPatch) -> None:
    find = ShareCore._find_leaders

    def keep(self: ShareCore, now: float) -> None:
        find(self, now)
        for held in self.held.all():
            for node, session in self._sessions.items():
                if held.acquisition.partition in session.fetched:
                    held.acquisition.node = node

    patch.setattr(HeldRecords, "lose_partition", _nothing)
    patch.setattr(Acknowledgements, "drop", _nothing)
    patch.setattr(ShareCore, "_find_leaders", keep)


def _released_without_delay(patch: pytest.MonkeyPatch) -> None:
    wait = ShareCore.wait

    def at_once(
        self: ShareCore, now: float, record: Any, *, release_after: float | None = None
    ) -> bool:
        return wait(self, now, record, release_after=None if release_after is None else 0.0)

    patch.setattr(ShareCore, "wait", at_once)


def _long_member_id(patch: pytest.MonkeyPatch) -> None:
    begin = ShareGroupMembership._begin

    def long(self: ShareGroupMembership, now: float) -> None:
        self.member_id = self.member_id.ljust(58, "x")
        begin(self, now)

    patch.setattr(ShareGroupMembership, "_begin", long)


def _cancelled_on_fenced(patch: pytest.MonkeyPatch) -> None:
    fenced = ShareGroupMembership._fenced

    def lose(self: ShareGroupMembership, now: float, error: ErrorCode) -> None:
        core = self._reactions
        assert isinstance(core, ShareCore)
        for held in {(h.acquisition.partition, h.acquisition.node) for h in core.held.all()}:
            core.held.lose_partition(*held, "the member is fenced")
        fenced(self, now, error)

    patch.setattr(ShareGroupMembership, "_fenced", lose)


def _beyond_free_slots(patch: pytest.MonkeyPatch) -> None:
    def fifty(_self: ShareCore, _sessions: int) -> int:
        return 50

    patch.setattr(ShareCore, "_room", fifty)


def _leaves_before_it_closes(patch: pytest.MonkeyPatch) -> None:
    stop = ShareCore.stop

    def leave(self: ShareCore, now: float) -> None:
        stop(self, now)
        if self._close_calls and not self._leaving:
            self._leaving = True
            self.membership.leave(now)

    patch.setattr(ShareCore, "stop", leave)


def _first_fetch_of_nothing(patch: pytest.MonkeyPatch) -> None:
    fetch = ShareSession._fetch

    def none(
        self: ShareSession, now: float, taken: Any, added: Any, gone: Any, wanted: int, **wait: Any
    ) -> None:
        fetch(self, now, taken, added, gone, wanted if self._epoch else 0, **wait)

    patch.setattr(ShareSession, "_fetch", none)


def _acks_by_offset(patch: pytest.MonkeyPatch) -> None:
    def by_offset(self: HeldRecords, record: Any) -> Iterator[HeldRecord]:
        for acquisition in self._acquisitions.values():
            of = acquisition.topic, acquisition.partition.partition
            if of == (record.topic, record.partition) and record.offset in acquisition.records:
                yield acquisition.records[record.offset]

    def find_all(self: HeldRecords, records: Any) -> list[HeldRecord]:
        found = [self.find(each) or next(by_offset(self, each), None) for each in records]
        return [each for each in found if each is not None]

    patch.setattr(HeldRecords, "find_all", find_all)
    patch.setattr(ShareCore, "take_lost", _none_lost)


def _first_session_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("asyncrevoke.client.core.share_core._fetched_at", _never)


def _frozen(schedule: ShareSchedule) -> ShareSchedule:
    """Members are blocked for longer than a lock, so that responses are read late."""
    freezes = tuple(
        ShareIncident(2.0 + n, ShareIncidentKind.FREEZE, n, 1.2 * schedule.lock) for n in range(3)
    )
    return dataclasses.replace(schedule, incidents=freezes, produce_every=0.2, loss=0.0)


def _often_reset(schedule: ShareSchedule) -> ShareSchedule:
    """The offsets of the group are reset while handlers run."""
    resets = tuple(
        ShareIncident(1.5 + 0.7 * n, ShareIncidentKind.RESET, n, 5.0 * n) for n in range(5)
    )
    return dataclasses.replace(schedule, incidents=resets, produce_every=0.05, loss=0.0)


def _moving(schedule: ShareSchedule) -> ShareSchedule:
    """Leaders move while handlers run."""
    moves = tuple(ShareIncident(2.0 + n, ShareIncidentKind.MOVE_LEADER, n, 0.0) for n in range(3))
    slow = tuple(dataclasses.replace(plan, handlers=_SLOW) for plan in schedule.members)
    return dataclasses.replace(
        schedule, brokers=3, incidents=moves, members=slow, produce_every=0.2, loss=0.0
    )


_SLOW = HandlerPlan(usual=2.0, longest=2.0, slow=0.0)
_COORDINATOR = ShareDisturbance.COORDINATOR
MUTANTS = (
    ShareMutant("waiting records are not renewed", _waiting_not_renewed, ("S3",), _COORDINATOR),
    ShareMutant("nothing is renewed", _nothing_renewed, ("S3",), _COORDINATOR),
    ShareMutant(
        "the deadline counts from the response", _deadline_from_arrival, ("S2",), tweak=_frozen
    ),
    ShareMutant(
        "a partition is dropped on 121", _partition_dropped_on_121, ("S9",), tweak=_often_reset
    ),
    ShareMutant("an acknowledgement beside a fetch", _ack_beside_a_fetch, ("S6",)),
    ShareMutant("a close beside a fetch", _close_beside_a_fetch, ("S6",), _COORDINATOR),
    ShareMutant("the epoch is kept after an error", _epoch_kept, ("S6",)),
    ShareMutant("records beyond ranges", _beyond_ranges, ("S5",), _COORDINATOR),
    ShareMutant("gaps are forgotten", _gaps_forgotten, ("S3", "S11", "S10"), _COORDINATOR),
    ShareMutant(
        "a partition is forgotten while held", _forgotten_while_held, ("S3",), _COORDINATOR
    ),
    ShareMutant(
        "old acknowledgements to the new leader",
        _old_acks_to_the_new_leader,
        ("S2",),
        tweak=_moving,
    ),
    ShareMutant("released without delay", _released_without_delay, ("S7",), _COORDINATOR),
    ShareMutant("a member id of 58 characters", _long_member_id, ("S11", "raised"), _COORDINATOR),
    ShareMutant("handlers are cancelled when fenced", _cancelled_on_fenced, ("S4",), _COORDINATOR),
    ShareMutant("fetches beyond free slots", _beyond_free_slots, ("S7",), _COORDINATOR),
    ShareMutant("leaves before it closes", _leaves_before_it_closes, ("S7",), _COORDINATOR),
    ShareMutant("the first fetch takes no record", _first_fetch_of_nothing, ("S11",), _COORDINATOR),
    ShareMutant("acknowledges by offset", _acks_by_offset, ("S1", "S2", "S7", "S8")),
    ShareMutant(
        "the first session always comes first", _first_session_first, ("S11",), _COORDINATOR
    ),
)


def runs_until_caught(mutant: ShareMutant, first_seed: int, most: int) -> tuple[int, str] | None:
    """The number of the first untailored run that fails, and the invariant; None if none does. A
    run that also fails without the mutant does not count."""
    for number in range(most):
        schedule = draw_share(first_seed + number)
        with pytest.MonkeyPatch.context() as patch:
            mutant.patch(patch)
            invariant = run_share(schedule).invariant
        if invariant and not run_share(schedule).invariant:
            return number + 1, invariant
    return None


def main() -> int:
    """Print a table, a line for each mutant."""
    parser = argparse.ArgumentParser(prog="python -m simulation.share.mutants.share_mutants")
    parser.add_argument("--first-seed", type=int, default=_FIRST_SEED)
    parser.add_argument("--most", type=int, default=1000, help="runs of a mutant")
    parser.add_argument("names", nargs="*", help="parts of names; all mutants if left out")
    options = parser.parse_args()
    print("| mutant | runs until it is caught | by | s |")
    print("|---|---|---|---|")
    for mutant in MUTANTS:
        if options.names and not any(part in mutant.name for part in options.names):
            continue
        started = time.perf_counter()
        found = runs_until_caught(mutant, options.first_seed, options.most)
        runs, by = found or (f"not in {options.most:,}", "")
        took = time.perf_counter() - started
        print(f"| {mutant.name} | {runs} | {by} | {took:.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
