"""The checks of chaos runs find what is put into a clean run, and permit what they should.

A clean run: members ``a`` and ``b`` handle one partition, ``a`` the records below 50.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from chaos.invariants.run_checker import (
    Allowed,
    Commit,
    Ending,
    Handling,
    RunObservations,
    check_run,
)
from unit.audit.injected_anomalies import CASES, Injected, written
from unit.journal.written_journal import audited

from asyncrevoke.audit.anomalies import DESCRIPTIONS, AnomalyKind
from asyncrevoke.cli.demo.group_result import Produced
from asyncrevoke.cli.demo.member.handler_log import Abandoned, Ended, Started
from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from pathlib import Path

P0 = TopicPartition("orders", 0)
RECORDS = 100
STRICT = Allowed(stall=11.0, exit=9.0)
ENDINGS = Allowed(stall=11.0, exit=9.0, endings=True)


def call(member: str, offset: int, at: float, seconds: float | None = 0.005) -> list[Handling]:
    """What one handler call writes; it never ended if ``seconds`` is None."""

    def line(kind: type[Started | Ended], when: float) -> Handling:
        return kind(
            member=member,
            topic="orders",
            partition=0,
            offset=offset,
            key=f"key-{offset % 5}",
            at=when,
        )

    begin = line(Started, at)
    return [begin] if seconds is None else [begin, line(Ended, at + seconds)]


def clean() -> RunObservations:
    return RunObservations(
        produced=[Produced(P0, n, f"key-{n % 5}", n / 10) for n in range(RECORDS)],
        handled=[e for n in range(RECORDS) for e in call("a" if n < 50 else "b", n, n / 10)],
        committed={P0: RECORDS},
        died={"a": 5.0, "b": 10.5},
        endings=[],
        commits=[Commit("a", float(n)) for n in range(1, 5)],
        failures=[],
        longest_exit=0.5,
        audited=None,
        concurrency=4,
    )


def changed(**changes: Any) -> RunObservations:
    return dataclasses.replace(clean(), **changes)


def without(*offsets: int) -> list[Handling]:
    return [event for event in clean().handled if event.offset not in offsets]


def again(*lines: list[Handling]) -> list[Handling]:
    return [*clean().handled, *(each for line in lines for each in line)]


def test_a_clean_run_has_no_faults() -> None:
    found = check_run(clean(), STRICT)
    assert found.faults == []
    assert (found.produced, found.lost, found.repeated, found.out_of_order) == (RECORDS, 0, 0, 0)
    assert found.longest_stall < 0.2


def test_a_record_in_no_state_or_in_two_is_a_fault_unless_a_member_has_ended() -> None:
    stored = [(P0, offset) for offset in range(RECORDS)]
    assert check_run(changed(stored=stored), STRICT).faults == []
    found = check_run(changed(stored=[*stored[:7], *stored[8:]]), STRICT)
    assert [fault for fault in found.faults if "in no state" in fault and "0: 7" in fault]
    doubled = changed(stored=[*stored, (P0, 9)])
    found = check_run(doubled, STRICT)
    assert [fault for fault in found.faults if "in several states" in fault and "0: 9" in fault]
    killed = Ending("killed", "a", 5.0, {P0: 50})
    ended = dataclasses.replace(doubled, endings=[killed])
    assert check_run(ended, ENDINGS).faults == []


def test_an_acknowledged_record_that_is_committed_past_and_not_done_is_lost() -> None:
    found = check_run(changed(handled=without(30)), STRICT)
    assert (found.lost, found.unhandled) == (1, 0)
    assert any("lost" in fault and "0: 30" in fault for fault in found.faults)


def test_an_acknowledged_record_that_is_neither_done_nor_committed_past_is_a_fault() -> None:
    found = check_run(changed(handled=without(30), committed={P0: 30}), STRICT)
    assert (found.lost, found.unhandled) == (0, 1)
    assert any("not handled" in fault and "0: 30" in fault for fault in found.faults)


def test_a_record_whose_handler_never_returned_is_lost() -> None:
    handled = [*without(30), *call("a", 30, 3.0, None)]
    assert check_run(changed(handled=handled), STRICT).lost == 1


def test_an_acknowledged_record_of_a_partition_without_reads_is_a_fault() -> None:
    more = Produced(TopicPartition("orders", 1), 0, "key-1", 1.0)
    found = check_run(changed(produced=[*clean().produced, more]), STRICT)
    assert found.unhandled == 1
    assert any("not handled" in fault for fault in found.faults)


def test_a_processed_record_that_is_not_committed_at_the_end_is_a_fault() -> None:
    found = check_run(changed(committed={P0: 99}), STRICT)
    assert any("not committed" in fault for fault in found.faults)


def test_a_repeated_record_is_a_fault_also_where_kills_are_allowed() -> None:
    observations = changed(handled=again(call("b", 30, 6.0)))
    for allowed in (STRICT, ENDINGS):
        found = check_run(observations, allowed)
        assert (found.repeated, found.not_permitted) == (1, 1)
        assert any("repeated and not permitted" in fault for fault in found.faults)


def test_a_record_that_begins_before_an_earlier_one_of_its_key_is_out_of_order() -> None:
    handled = [*without(30), *call("a", 30, 3.6)]  # 35 has the same key
    found = check_run(changed(handled=handled), STRICT)
    assert found.out_of_order == 1
    assert any("out of order" in fault for fault in found.faults)


def test_two_handlers_of_one_key_at_the_same_time_are_out_of_order() -> None:
    handled = [*without(30), *call("a", 30, 3.0, 0.6)]
    assert check_run(changed(handled=handled), STRICT).out_of_order == 1


def test_records_that_wait_for_longer_than_is_allowed_are_a_fault() -> None:
    handled = [e for n in range(RECORDS) for e in call("a", n, n / 10 + (0 if n < 50 else 20))]
    found = check_run(changed(handled=handled), STRICT)
    assert found.longest_stall == pytest.approx(20, abs=0.2)
    assert any("records waited" in fault for fault in found.faults)
    assert check_run(changed(handled=handled), Allowed(stall=25, exit=9)).faults == []


def test_a_partition_transfer_that_takes_longer_than_allowed_is_a_fault() -> None:
    handled = [
        e
        for n in range(RECORDS)
        for e in (call("a", n, n / 10) if n < 50 else call("b", n, n / 10 + 20))
    ]
    assert any("records waited" in f for f in check_run(changed(handled=handled), STRICT).faults)


def test_a_process_that_ends_later_than_is_allowed_is_a_fault() -> None:
    assert any("SIGTERM" in f for f in check_run(changed(longest_exit=20.0), STRICT).faults)


def test_a_member_that_ends_by_itself_is_a_fault_unless_allowed() -> None:
    observations = changed(failures=["member a ended by itself with exit code 1"])
    assert check_run(observations, STRICT).faults == observations.failures
    assert check_run(observations, dataclasses.replace(STRICT, failures=True)).faults == []


# -- endings


def killed(at: float, committed: int) -> Ending:
    return Ending("killed", "a", at, {P0: committed})


def test_uncommitted_records_of_a_killed_member_may_be_repeated() -> None:
    handled = again(call("b", 48, 5.0), call("b", 49, 5.1))
    observations = changed(handled=handled, endings=[killed(4.95, 48)])
    found = check_run(observations, ENDINGS)
    assert (found.repeated, found.not_permitted, found.faults) == (2, 0, [])
    assert list(found.repeats_by_ending.values()) == [2]


def test_committed_records_of_a_killed_member_may_not_be_repeated() -> None:
    handled = again(call("b", 47, 4.99), call("b", 48, 5.0))
    found = check_run(changed(handled=handled, endings=[killed(4.95, 48)]), ENDINGS)
    assert (found.repeated, found.not_permitted) == (2, 1)


def test_a_kill_permits_no_repeats_by_members_that_were_not_killed() -> None:
    handled = again(call("b", 60, 8.0))
    found = check_run(changed(handled=handled, endings=[killed(4.95, 40)]), ENDINGS)
    assert found.not_permitted == 1


def test_a_kill_permits_repeats_of_records_in_flight_or_done_since_the_last_commit_only() -> None:
    # With commits at 3.0 and 4.0 s, and concurrency=4: 20 done after 3.0 s, and 4.
    repeats = [call("b", n, 5 + n / 100) for n in range(22, 50)]
    observations = changed(
        handled=again(*repeats), endings=[killed(4.95, 0)], commits=clean().commits[:4]
    )
    found = check_run(observations, ENDINGS)
    assert found.not_permitted == 0
    assert [f for f in found.faults if "28 repeated, at most 24 were expected" in f]


def test_a_kill_that_no_fault_of_the_run_allows_is_a_fault() -> None:
    found = check_run(changed(endings=[killed(4.95, 48)]), STRICT)
    assert any("no fault of this run allows that" in fault for fault in found.faults)


def test_records_begun_before_a_loss_is_reported_may_repeat_unless_the_member_pauses() -> None:
    handled = [*clean().handled, *call("a", 60, 8.0)]
    lost = Ending("lost", "a", 8.1, {P0: 70}, frozenset((P0,)))
    observations = changed(handled=handled, endings=[lost], died={"a": 9.0, "b": 10.5})
    assert check_run(observations, ENDINGS).not_permitted == 0
    assert check_run(dataclasses.replace(observations, pausing=True), ENDINGS).not_permitted == 1
    late = [*clean().handled, *call("a", 60, 8.2)]
    assert check_run(dataclasses.replace(observations, handled=late), ENDINGS).not_permitted == 1


def test_a_lost_partition_permits_repeats_of_its_own_records_only() -> None:
    handled = again(call("b", 49, 5.1))
    own = Ending("lost", "a", 5.0, {P0: 49}, frozenset((P0,)))
    other = own._replace(partitions=frozenset((TopicPartition("orders", 1),)))
    assert check_run(changed(handled=handled, endings=[own]), ENDINGS).not_permitted == 0
    assert check_run(changed(handled=handled, endings=[other]), ENDINGS).not_permitted == 1


def test_a_frozen_handler_does_not_overlap_with_the_handler_of_another_member() -> None:
    frozen = [*without(49), *call("a", 49, 4.9, 15.0), *call("b", 49, 4.95)]
    observations = changed(handled=frozen, died={"a": 30.0, "b": 30.0})
    assert check_run(observations, ENDINGS).out_of_order > 0
    observations = dataclasses.replace(
        observations, endings=[Ending("frozen", "a", 4.92, {P0: 49})]
    )
    found = check_run(observations, ENDINGS)
    assert (found.out_of_order, found.not_permitted, found.faults) == (0, 0, [])


def test_handlers_that_were_cancelled_and_called_again_by_the_same_member_are_repeats() -> None:
    cancelled = Abandoned(member="a", topic="orders", partition=0, offset=30, key="key-0", at=3.01)
    handled = [*without(30), call("a", 30, 3.0)[0], cancelled, *call("a", 30, 3.02)]
    assert check_run(changed(handled=handled), STRICT).not_permitted == 1


# -- journals


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_findings_of_the_journal_audit_are_faults(tmp_path: Path, case: Injected) -> None:
    topic = written(tmp_path, case)
    observations = changed(audited=audited(tmp_path, topic=topic))
    bad = {
        kind for kind, *_ in case.found
        if DESCRIPTIONS[AnomalyKind(kind)].severity in {"FAIL", "INCONCLUSIVE"}
    }  # fmt: skip
    faults = check_run(observations, STRICT).faults
    assert {fault.split()[1].rstrip(":") for fault in faults} == bad
    permitted = {"concurrent_duplicate", "key_order", "ownership"}
    pausing = dataclasses.replace(observations, pausing=True)
    assert {
        fault.split()[1].rstrip(":") for fault in check_run(pausing, ENDINGS).faults
    } == bad - permitted
    permitted.add("duplicate_after_commit")
    assert {
        fault.split()[1].rstrip(":") for fault in check_run(observations, ENDINGS).faults
    } == bad - permitted
