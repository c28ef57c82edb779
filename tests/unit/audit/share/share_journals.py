"""Journals of a share group made by hand: a clean run of two members, and what can go wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from unit.journal.written_journal import (
    MS,
    RECORDS,
    TOPIC,
    JournalledTopic,
    Log,
    at,
    facts,
    numbered,
    record,
    session_id,
)

from asyncrevoke.audit.offsets import AuditedGroupOffsets
from asyncrevoke.journal.format.schema import CallOutcome, RowKind
from asyncrevoke.journal.recording.entries import Attempts, Entry, Fact
from asyncrevoke.journal.recording.log_file import LogFile
from asyncrevoke.journal.segments import JournalSession

if TYPE_CHECKING:
    from pathlib import Path

BATCH = 10
LIMIT = 5
# When the broker is asked: after all members have ended.
LATER = at(10_000)


class ShareMember:
    """One session. It acquires ten records, calls its handler for each, and accepts them together;
    ``first`` is the first of its tens: the other member has the next ones."""

    def __init__(self, name: str, first: int, *, partition: int = 0, number: int = 0) -> None:
        self.name = name
        self.partition = partition
        self.folder = session_id(name, number)
        self.strict = True
        firsts = range(first, RECORDS, 2 * BATCH)
        self.acquired = {
            o: self.fact(RowKind.ACQUIRED, at(o) - MS, o, o + BATCH - 1) for o in firsts
        }
        self.attempts = {
            o: Attempts([record(o, partition=partition)], at(o), at(o) + 5 * MS)
            for begin in firsts
            for o in range(begin, begin + BATCH)
        }
        self.accepts = {
            o: self.fact(RowKind.ACCEPT, at(o + BATCH) - 2 * MS, o, o + BATCH - 1) for o in firsts
        }
        self.more: list[Attempts | Fact] = []
        self.begins = at(0) - 2 * MS
        self.ends = True

    def fact(
        self,
        kind: RowKind,
        when: int,
        first: int,
        last: int,
        outcome: str = "ok",
        deliveries: int = 1,
    ) -> Fact:
        """One more row about offsets."""
        fact = Fact(kind, when, TOPIC, self.partition, first, self.name, 1, last_offset=last)
        if kind is RowKind.ACQUIRED:
            return fact._replace(records=deliveries, checksum=LIMIT)
        if kind is RowKind.LOCK_LOST:
            return fact._replace(facts='{"reason": "the lock has passed"}')
        return fact._replace(outcome=CallOutcome(outcome), started_us=when - MS)

    def again(
        self, offset: int, when: int, outcome: CallOutcome = CallOutcome.OK, *, deliveries: int = 2
    ) -> None:
        """Deliver it to this member, and call its handler."""
        self.more += [
            self.fact(RowKind.ACQUIRED, when - MS, offset, offset, deliveries=deliveries),
            Attempts([record(offset, partition=self.partition)], when, when + 5 * MS, outcome),
        ]

    def accept(self, offset: int, when: int, outcome: str = "ok") -> None:
        """Acknowledge it."""
        self.more.append(self.fact(RowKind.ACCEPT, when, offset, offset, outcome))

    def rows(self) -> list[Entry]:
        known = facts(strict=self.strict) | {"group_type": "share", "order_by": None}
        begin = [
            Fact(RowKind.BEGIN, self.begins, facts=json.dumps(known)),
            Fact(RowKind.TOPIC, self.begins, TOPIC, facts='{"handler": "f", "order_by": null}'),
        ]
        middle: list[Attempts | Fact] = [
            *self.acquired.values(),
            *self.attempts.values(),
            *self.accepts.values(),
            *self.more,
        ]
        middle.sort(key=lambda entry: entry.at)
        end = [Fact(RowKind.END, max(at(RECORDS + 20), middle[-1].at))] if self.ends else []
        return [*begin, *middle, *end]

    def write(self, folder: Path) -> None:
        session = JournalSession(folder / self.folder)
        session.folder.mkdir(parents=True)
        log = LogFile(session, "billing", segment_bytes=2**20, segment_seconds=60, hashed=True)
        log.take(numbered(self.rows()))
        log.close()


class Injected(NamedTuple):
    """What changes a clean run, and what the audit finds."""

    change: Callable[[ShareMember, ShareMember], None]
    found: tuple[tuple[str, int | None, int | None], ...]
    start: int = RECORDS

    @property
    def name(self) -> str:
        """What it is called."""
        return self.change.__name__.replace("_", " ")


def nothing(_a: ShareMember, _b: ShareMember) -> None: ...


def an_accept_is_missing(a: ShareMember, _b: ShareMember) -> None:
    a.accepts[20] = a.accepts[20]._replace(last_offset=24)


def an_accept_is_refused_and_nobody_else_has_it(a: ShareMember, _b: ShareMember) -> None:
    a.accepts[20] = a.accepts[20]._replace(outcome=CallOutcome.REFUSED)


def an_accept_has_no_response(a: ShareMember, _b: ShareMember) -> None:
    a.accepts[20] = a.accepts[20]._replace(outcome=CallOutcome.UNKNOWN)


def accepted_without_a_call(a: ShareMember, _b: ShareMember) -> None:
    del a.attempts[23], a.attempts[24]


def accepted_although_the_call_failed(a: ShareMember, _b: ShareMember) -> None:
    a.attempts[23] = a.attempts[23]._replace(outcome=CallOutcome.RELEASED)


def neither_called_nor_accepted(a: ShareMember, _b: ShareMember) -> None:
    for offset in range(20, 30):
        del a.attempts[offset]
    del a.acquired[20], a.accepts[20]


def _released(a: ShareMember, deliveries: int) -> None:
    a.attempts[29] = a.attempts[29]._replace(outcome=CallOutcome.RELEASED)
    a.accepts[20] = a.accepts[20]._replace(last_offset=28)
    a.more.append(a.fact(RowKind.RELEASE, at(31), 29, 29))
    for number in range(2, deliveries + 1):
        a.again(29, at(30 + 2 * number), CallOutcome.RELEASED, deliveries=number)
        a.more.append(a.fact(RowKind.RELEASE, at(31 + 2 * number), 29, 29))


def released_until_the_last_delivery(a: ShareMember, _b: ShareMember) -> None:
    _released(a, LIMIT)


def released_before_the_last_delivery(a: ShareMember, _b: ShareMember) -> None:
    _released(a, LIMIT - 1)


def released_and_accepted_later(a: ShareMember, b: ShareMember) -> None:
    _released(a, 2)
    b.again(29, at(60), deliveries=3)
    b.accept(29, at(61))


def released_and_still_to_come(a: ShareMember, _b: ShareMember) -> None:
    _released(a, 2)


def rejected_after_its_dead_letter(a: ShareMember, _b: ShareMember) -> None:
    a.attempts[29] = a.attempts[29]._replace(outcome=CallOutcome.DEAD_LETTERED)
    a.accepts[20] = a.accepts[20]._replace(last_offset=28)
    a.more.append(a.fact(RowKind.REJECT, at(30), 29, 29))


def delivered_again_after_it_was_accepted(_a: ShareMember, b: ShareMember) -> None:
    b.again(23, at(60))
    b.accept(23, at(61), "refused")


def accepted_twice_without_a_lost_lock(a: ShareMember, _b: ShareMember) -> None:
    a.accept(23, at(32))


def done_again_after_a_lost_lock(a: ShareMember, b: ShareMember) -> None:
    a.accepts[20] = a.accepts[20]._replace(last_offset=28)
    a.more.append(a.fact(RowKind.LOCK_LOST, at(30), 29, 29))
    b.again(29, at(60))
    b.accept(29, at(61))


def done_again_though_no_lock_was_lost(a: ShareMember, b: ShareMember) -> None:
    a.accepts[20] = a.accepts[20]._replace(last_offset=28)
    b.again(29, at(60))
    b.accept(29, at(61))


def _slow(a: ShareMember) -> None:
    a.attempts[29] = a.attempts[29]._replace(at=at(70))
    a.accepts[20] = a.accepts[20]._replace(last_offset=28)


def called_by_two_at_once(a: ShareMember, b: ShareMember) -> None:
    _slow(a)
    b.again(29, at(60))
    b.accept(29, at(61))


def called_by_two_at_once_after_a_lost_lock(a: ShareMember, b: ShareMember) -> None:
    called_by_two_at_once(a, b)
    a.attempts[29] = a.attempts[29]._replace(outcome=CallOutcome.CANCELLED)
    a.more.append(a.fact(RowKind.LOCK_LOST, at(70), 29, 29))


def killed_after_the_call(a: ShareMember, _b: ShareMember) -> None:
    """The broker has applied the acknowledgement, whose row was not written."""
    del a.accepts[80]
    a.ends = False


def killed_before_the_acknowledgement(a: ShareMember, b: ShareMember) -> None:
    del a.accepts[80]
    a.ends = False
    for offset in range(80, 90):
        b.again(offset, at(offset + 30))
        b.accept(offset, at(offset + 30) + 6 * MS)


def handled_and_the_topic_has_no_such_record(a: ShareMember, _b: ShareMember) -> None:
    a.again(RECORDS, at(60))
    a.accept(RECORDS, at(61))


PENDING = ("pending", 50, RECORDS - 1)
CASES = (
    Injected(nothing, ()),
    Injected(an_accept_is_missing, (("not_acknowledged", 25, 29),)),
    Injected(an_accept_is_refused_and_nobody_else_has_it, (("not_acknowledged", 20, 29),)),
    Injected(an_accept_has_no_response, ()),
    Injected(accepted_without_a_call, (("lost", 23, 24),)),
    Injected(accepted_although_the_call_failed, (("lost", 23, 23),)),
    Injected(neither_called_nor_accepted, (("ended_elsewhere", 20, 29),)),
    Injected(released_until_the_last_delivery, (("archived", 29, 29),)),
    Injected(released_before_the_last_delivery, (("ended_elsewhere", 29, 29),)),
    Injected(released_and_accepted_later, ()),
    Injected(released_and_still_to_come, (("pending", 29, RECORDS - 1),), 29),
    Injected(rejected_after_its_dead_letter, ()),
    Injected(delivered_again_after_it_was_accepted, (("duplicate_after_acknowledgement", 23, 23),)),
    Injected(accepted_twice_without_a_lost_lock, (("acknowledged_twice", 23, 23),)),
    Injected(done_again_after_a_lost_lock, (("redelivery", 29, 29),)),
    Injected(done_again_though_no_lock_was_lost, (("unexplained_redelivery", 29, 29),)),
    Injected(called_by_two_at_once, (("concurrent_duplicate", 29, 29),)),
    Injected(called_by_two_at_once_after_a_lost_lock, ()),
    Injected(killed_after_the_call, ()),
    Injected(killed_before_the_acknowledgement, (("redelivery", 80, 89),)),
    Injected(handled_and_the_topic_has_no_such_record, (("phantom", RECORDS, RECORDS),)),
    Injected(nothing, (PENDING,), 50),
)


def written(folder: Path, *cases: Injected) -> tuple[JournalledTopic, AuditedGroupOffsets]:
    """Write each case to a partition of its own; the topic, and the group's start offsets."""
    topic = JournalledTopic()
    for number, case in enumerate(cases):
        a, b = (
            ShareMember(name, first, partition=number, number=number)
            for name, first in (("a", 0), ("b", BATCH))
        )
        case.change(a, b)
        a.write(folder)
        b.write(folder)
        topic.logs[number] = Log()
    starts = {number: case.start for number, case in enumerate(cases)}
    return topic, AuditedGroupOffsets(starts, "broker", LATER)
