"""What can go wrong, each put into a clean run of a partition of its own, and where it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from unit.journal.written_journal import (
    MS,
    RECORDS,
    START,
    JournalledTopic,
    JournalMember,
    Log,
    at,
    clean_run,
)

from asyncrevoke.journal.format.schema import CallOutcome, RowKind
from asyncrevoke.journal.recording.entries import Attempts, Fact, Starts

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.journal.format.schema import Content

# Kind, first and last offset.
Where: TypeAlias = tuple[str, int | None, int | None]


class Injected(NamedTuple):
    """One case; ``log`` is what the topic has."""

    change: Callable[[JournalMember, JournalMember], None]
    found: tuple[Where, ...]
    log: Log = Log()

    @property
    def name(self) -> str:
        """What it is called."""
        return self.change.__name__.replace("_", " ").strip()


def nothing(_a: JournalMember, _b: JournalMember) -> None: ...


def lost(a: JournalMember, _b: JournalMember) -> None:
    del a.attempts[30], a.attempts[31]


def failed_for_good(a: JournalMember, _b: JournalMember) -> None:
    a.attempts[30] = a.attempts[30]._replace(outcome=CallOutcome.GIVEN_UP)


def first_and_last_lost(a: JournalMember, b: JournalMember) -> None:
    del a.attempts[0], b.attempts[RECORDS - 1]


def commit_ahead(a: JournalMember, _b: JournalMember) -> None:
    a.commits.append(a.commit(22, at(20) + 7 * MS))


def done_after_a_commit(_a: JournalMember, b: JournalMember) -> None:
    b.more.append(b.attempt(49, at(60), at(60) + MS))


def two_at_the_same_time(a: JournalMember, b: JournalMember) -> None:
    end = at(80)
    a.attempts[49] = a.attempts[49]._replace(at=end)
    a.commits, a.end = [a.commit(49, at(49))], [a.end[-1]._replace(at=end + MS)]
    b.attempts = {
        offset: b.attempt(offset, at(offset + 1), at(offset + 1) + 5 * MS)
        for offset in range(50, RECORDS)
    }
    b.attempts[49] = b.attempt(49, at(50), at(54) + 8 * MS)
    b.begin[1] = b.fact(RowKind.ASSIGN, at(50) - MS, 49, 2)


def done_twice(a: JournalMember, _b: JournalMember) -> None:
    a.more.append(a.attempt(30, at(40) + 6 * MS, at(40) + 7 * MS))


def keys_out_of_order(a: JournalMember, _b: JournalMember) -> None:
    a.attempts[30] = a.attempts[30]._replace(at=at(36))


def not_owned(_a: JournalMember, b: JournalMember) -> None:
    b.begin[1] = b.begin[1]._replace(at=at(51) + MS)


def stale_commit(_a: JournalMember, b: JournalMember) -> None:
    b.commits.append(b.commit(RECORDS, at(RECORDS + 1), generation=1))


def generations_from_the_start(a: JournalMember, b: JournalMember) -> None:
    """The group was empty, and has changed its protocol."""
    a.commits = [a.commit(50, b.begin[1].at - 2 * MS)]
    b.begin[1] = b.begin[1]._replace(generation=0)
    b.commits = [commit._replace(generation=0) for commit in b.commits]


def commit_regression(_a: JournalMember, b: JournalMember) -> None:
    b.commits = [b.commit(80, at(80)), b.commit(70, at(81)), *b.commits]


def another_value(a: JournalMember, _b: JournalMember) -> None:
    a.attempts[30] = a.attempts[30]._replace(records=[a.record(30, b"something else")])


def released_late(a: JournalMember, _b: JournalMember) -> None:
    a.end[0] = a.end[0]._replace(at=a.end[1].at - 2_500 * MS)


def a_stall(_a: JournalMember, b: JournalMember) -> None:
    late = 20_000 * MS
    b.attempts = {
        o: e._replace(started=at(o) + late, at=e.at + late) for o, e in b.attempts.items()
    }
    b.commits, b.end = (
        [b.commit(RECORDS, at(RECORDS) + late)],
        [b.end[-1]._replace(at=at(101) + late)],
    )


def sought_past(a: JournalMember, _b: JournalMember) -> None:
    for offset in range(30, 40):
        del a.attempts[offset]
    a.more.append(a.fact(RowKind.RESET, at(30), 40, 1))


def lost_by_one_before_another_seeks(a: JournalMember, b: JournalMember) -> None:
    """The other one owned the partition before, too."""
    del a.attempts[30]
    b.begin[0] = b.begin[0]._replace(at=START - 20 * MS)
    b.begin[1:1] = [
        b.fact(RowKind.ASSIGN, START - 10 * MS, 0, 0),
        b.fact(RowKind.RELEASED, START - 5 * MS, 0, 0)._replace(offset=None),
    ]
    del b.attempts[50], b.attempts[51]
    b.more.append(b.fact(RowKind.RESET, at(50), 52, 2))


def lost_by_one_before_another_is_assigned_the_offset_that_it_seeks(
    a: JournalMember, b: JournalMember
) -> None:
    """The other one owned the partition before, too, and its seek skips nothing."""
    del a.attempts[30]
    b.begin[0] = b.begin[0]._replace(at=START - 20 * MS)
    b.begin[1:1] = [
        b.fact(RowKind.ASSIGN, START - 10 * MS, 0, 0),
        b.fact(RowKind.RELEASED, START - 5 * MS, 0, 0)._replace(offset=None),
    ]
    b.more.append(b.fact(RowKind.RESET, b.begin[3].at + MS, 50, 2))


def gone_back_by_a_seek(a: JournalMember, _b: JournalMember) -> None:
    again = at(50) + 5 * MS
    a.more = [
        a.fact(RowKind.RESET, again + 3 * MS, 49, 1),
        a.attempt(49, again + 4 * MS, again + 4 * MS),
    ]
    a.end = [Fact(RowKind.END, again + 5 * MS)]


def an_orphan(a: JournalMember, _b: JournalMember) -> None:
    a.strict = True
    a.more.append(Starts([a.record(50)], at(50) + 4 * MS))
    a.end = []


def killed(a: JournalMember, _b: JournalMember) -> None:
    a.end = []


def given_to_a_loop_and_not_worked_on(a: JournalMember, _b: JournalMember) -> None:
    for offset in range(50, 60):
        given_up = a.attempt(offset, at(49), at(70))
        a.more.append(given_up._replace(outcome=CallOutcome.GIVEN_UP, attempt=None))
    a.end[-1] = a.end[-1]._replace(at=at(71))


def one_batch(a: JournalMember, _b: JournalMember) -> None:
    for offset in range(20):
        del a.attempts[offset]
    a.more.append(Attempts([a.record(o) for o in range(20)], at(0), at(19)))


def a_hole_that_nobody_handled(a: JournalMember, _b: JournalMember) -> None:
    del a.attempts[30]


def handled_where_there_is_nothing(_a: JournalMember, _b: JournalMember) -> None: ...


def handled_beyond_the_end(_a: JournalMember, _b: JournalMember) -> None: ...


def handled_before_the_log(_a: JournalMember, _b: JournalMember) -> None: ...


def not_committed_yet(_a: JournalMember, b: JournalMember) -> None:
    b.commits = []


def without_hashes(a: JournalMember, _b: JournalMember) -> None:
    a.content = None


def an_order_of_unknown_keys(a: JournalMember, _b: JournalMember) -> None:
    a.content = None
    a.attempts[30] = a.attempts[30]._replace(at=at(36))


CASES = (
    Injected(nothing, ()),
    Injected(lost, (("lost", 30, 31),)),
    Injected(failed_for_good, (("lost", 30, 30),)),
    Injected(first_and_last_lost, (("lost", 0, 0), ("lost", RECORDS - 1, RECORDS - 1))),
    Injected(commit_ahead, (("commit_ahead", 21, 21),)),
    Injected(done_after_a_commit, (("duplicate_after_commit", 49, 49),)),
    Injected(two_at_the_same_time, (("concurrent_duplicate", 49, 49), ("two_owners", None, None))),
    Injected(done_twice, (("redelivery", 30, 30),)),
    Injected(keys_out_of_order, (("key_order", 35, 35),)),
    Injected(not_owned, (("ownership", 50, 51),)),
    Injected(stale_commit, (("stale_commit", RECORDS, RECORDS),)),
    Injected(generations_from_the_start, ()),
    Injected(commit_regression, (("commit_regression", 70, 79),)),
    Injected(another_value, (("content_mismatch", 30, 30),)),
    Injected(released_late, (("revocation_overrun", None, None),)),
    Injected(a_stall, (("stall", 50, 50),)),
    Injected(sought_past, (("sought_past", 30, 39),)),
    Injected(lost_by_one_before_another_seeks, (("lost", 30, 30), ("sought_past", 50, 51))),
    Injected(lost_by_one_before_another_is_assigned_the_offset_that_it_seeks, (("lost", 30, 30),)),
    Injected(gone_back_by_a_seek, (("redelivery", 49, 49),)),
    Injected(an_orphan, (("orphan", 50, 50),)),
    Injected(killed, (("journal_gap", None, None),)),
    Injected(given_to_a_loop_and_not_worked_on, ()),
    Injected(one_batch, ()),
    Injected(a_hole_that_nobody_handled, (), Log(frozenset({30}))),
    Injected(handled_where_there_is_nothing, (("phantom", 30, 31),), Log(frozenset({30, 31}))),
    Injected(handled_beyond_the_end, (("phantom", 98, 99),), Log(hi=98)),
    Injected(handled_before_the_log, (("unverifiable", 0, 9),), Log(lo=10)),
    Injected(without_hashes, (("content_not_compared", None, None),)),
    Injected(
        an_order_of_unknown_keys,
        (
            ("content_not_compared", None, None),
            ("phantom", 30, 30),
            ("order_not_compared", 30, 30),
        ),
        Log(frozenset({30})),
    ),
    Injected(not_committed_yet, (("pending", 50, RECORDS - 1),)),
)


def another_batch(a: JournalMember, b: JournalMember) -> None:
    by_batch(a, b)
    a.fetched[15] = a.fetched[15]._replace(checksum=1)


def batches_that_nobody_handled_a_record_of(a: JournalMember, b: JournalMember) -> None:
    by_batch(a, b)
    a.fetched[40] = a.fetched[40]._replace(checksum=1)
    b.fetched[60 // 2] = b.fetched[60 // 2]._replace(checksum=1)
    del b.attempts[60], b.attempts[61]
    b.more.append(b.fact(RowKind.RESET, at(60), 62, 2))


def another_layout(a: JournalMember, b: JournalMember) -> None:
    by_batch(a, b)
    a.fetched[15:17] = [a.fetched[15]._replace(last=33, records=4)]


def another_batch_that_came_again_as_it_is(a: JournalMember, b: JournalMember) -> None:
    by_batch(a, b)
    a.fetched.append(a.fetched[15]._replace(came=at(29)))
    a.fetched[15] = a.fetched[15]._replace(checksum=1)


def handled_before_it_came_again_as_it_is(a: JournalMember, b: JournalMember) -> None:
    by_batch(a, b)
    a.fetched.append(a.fetched[15]._replace(came=at(31)))
    a.fetched[15] = a.fetched[15]._replace(checksum=1)


def nothing_noted(a: JournalMember, b: JournalMember) -> None:
    by_batch(a, b)
    a.fetched = []


def the_last_batches_not_noted(_a: JournalMember, b: JournalMember) -> None:
    by_batch(_a, b)
    del b.fetched[45:]


def one_without_hashes_and_one_by_batch(a: JournalMember, b: JournalMember) -> None:
    by_batch(a, b)
    a.content = None
    b.fetched[35] = b.fetched[35]._replace(checksum=1)


def by_batch(a: JournalMember, b: JournalMember) -> None:
    a.content = b.content = "batches"


BATCH_CASES = (
    Injected(by_batch, ()),
    Injected(another_batch, (("content_mismatch", 30, 31),)),
    Injected(batches_that_nobody_handled_a_record_of, (("sought_past", 60, 61),)),
    Injected(another_layout, (("content_mismatch", 30, 33),)),
    Injected(another_batch_that_came_again_as_it_is, ()),
    Injected(handled_before_it_came_again_as_it_is, (("content_mismatch", 30, 30),)),
    Injected(nothing_noted, (("content_not_compared", 0, 49),)),
    Injected(the_last_batches_not_noted, (("content_not_compared", 90, 99),)),
    Injected(
        one_without_hashes_and_one_by_batch,
        (("content_not_compared", None, None), ("content_mismatch", 70, 71)),
    ),
)


def written(folder: Path, *cases: Injected, content: Content | None = "records") -> JournalledTopic:
    """Write each case into a partition of its own, and give the topic."""
    topic = JournalledTopic()
    for number, case in enumerate(cases):
        a, b = clean_run(number, number)
        a.content = b.content = content
        for member in (a, b):
            # Batches had the holes that they have.
            came = Log(case.log.missing).batches(number)
            member.fetched = [each._replace(came=member.begin[0].at) for each in came]
        case.change(a, b)
        a.write(folder)
        b.write(folder)
        topic.logs[number] = case.log
    return topic
