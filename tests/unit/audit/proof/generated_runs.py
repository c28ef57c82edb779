"""Runs of groups without faults, drawn at random: what their members write down.

A *calm* run hands partitions over after a final commit. In a *chaotic* one members are killed and
lose partitions, records are handled again, positions are sought, commits are accepted without a
row, and completion maps say what the previous owner has completed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from unit.audit.proof.journal_run import JournalRun, Session, beginning, row
from unit.journal.written_journal import MS, START, TOPIC, Log, record

from asyncrevoke.journal.format.hashing import key_hash, key_hashes, record_hashes
from asyncrevoke.journal.format.schema import CallOutcome, RowKind

if TYPE_CHECKING:
    import random

    from unit.audit.proof.journal_run import Row

    from asyncrevoke.journal.format.schema import Content

PARTITIONS = 2
_TENURES = 6
_SECOND = 1_000_000


@dataclass
class _Partition:
    """What the broker has of a partition, and until when it is owned."""

    number: int
    log: Log
    free_at: int
    committed: int = 0
    completed: set[int] = field(default_factory=set[int])
    # Of the last commit.
    completion_map: list[list[int]] = field(default_factory=list[list[int]])
    generation: int = 0


@dataclass
class _Call:
    offset: int
    begins: int
    ends: int


class RunGenerator:
    """Draws one run. ``number`` tells its sessions and partitions from those of other runs."""

    def __init__(
        self, chance: random.Random, number: int, *, chaotic: bool, content: Content | None
    ) -> None:
        self._chance = chance
        self._number = number
        self._chaotic = chaotic
        self._content: Content | None = content
        self._sessions: dict[str, Session] = {}
        self._strict: set[str] = set()
        self._killed: set[str] = set()

    def draw(self) -> JournalRun:
        """The run."""
        chance = self._chance
        partitions: list[_Partition] = []
        for index in range(PARTITIONS):
            end = chance.randrange(60, 100)
            # A log begins and ends with a record, as far as a DataFrame of its records tells.
            log = Log(frozenset(chance.sample(range(1, end - 1), chance.randrange(4))), 0, end)
            partitions.append(_Partition(self._number * PARTITIONS + index, log, START + _SECOND))
        for tenure in range(_TENURES):
            for partition in partitions:
                self._own(partition, last=tenure == _TENURES - 1)
        for session in self._sessions.values():
            session.sort()
            if session.name not in self._killed:
                session.rows.append({"kind": RowKind.END, "at_us": session.rows[-1]["at_us"]})
        return JournalRun(
            self._sessions,
            {each.number: each.log for each in partitions},
            {each.number: each.committed for each in partitions},
            self._content,
        )

    def _session(self, at: int) -> Session:
        """One that runs, or another one."""
        chance = self._chance
        running = [s for s in self._sessions.values() if s.name not in self._killed]
        if len(running) > 2 or (running and chance.random() < 0.3):
            return chance.choice(running)
        count = len(self._sessions)
        name = f"20270115T080000Z-{self._number * 64 + count:08x}"
        strict = self._chaotic or chance.random() < 0.5
        session = Session(name, as_parquet=chance.random() < 0.3)
        # It was there before it got a partition.
        began = min(at, START)
        session.rows.append(beginning(began, strict=strict, content=self._content))
        facts = '{"handler": "bill", "order_by": "key"}'
        session.rows.append({"kind": RowKind.TOPIC, "at_us": began, "topic": TOPIC, "facts": facts})
        self._sessions[name] = session
        if strict:
            self._strict.add(name)
        return session

    def _own(self, partition: _Partition, *, last: bool) -> None:
        chance = self._chance
        at = partition.free_at + chance.randrange(5, 200) * MS
        session = self._session(at)
        partition.generation += 1
        own = {"member": session.name[-4:], "generation": partition.generation}
        position = self._begin(session, partition, at, own)
        calls = self._calls(partition, position, at, last=last)
        ends = max((call.ends for call in calls), default=at) + MS
        how = "released"
        if self._chaotic and not last:
            how = chance.choice(["released", "lost", "killed"])
        if how == "killed" and self._owns_more(session, partition):
            how = "lost"
        until = ends if how == "released" else chance.randrange(at + MS, ends + MS)
        self._write_calls(session, partition, calls, until)
        self._commit_while(session, partition, calls, until, own)
        self._end(session, partition, calls, how, until, own)

    def _owns_more(self, session: Session, partition: _Partition) -> bool:
        """Whether it has rows of another partition: a kill would end those, too."""
        others = {r.get("partition") for r in session.rows} - {None, partition.number}
        return bool(others)

    def _begin(self, session: Session, partition: _Partition, at: int, own: Row) -> int:
        number, position = partition.number, partition.committed
        session.rows.append(row(RowKind.ASSIGN, at, number, position, **own))
        partition.completed = {o for o in partition.completed if o < position}
        if partition.completion_map:
            runs = [run for run in partition.completion_map if run[1] > position]
            if runs:
                told = json.dumps({"runs": runs})
                session.rows.append(row(RowKind.SKIPPED, at, number, facts=told, **own))
                partition.completed |= {o for first, end in runs for o in range(first, end)}
        if self._content == "batches":
            session.rows += [
                row(
                    RowKind.FETCHED,
                    at,
                    number,
                    batch.first,
                    last_offset=batch.last,
                    records=batch.records,
                    checksum=batch.checksum,
                    started_us=at,
                )
                for batch in partition.log.batches(number)
            ]
        if self._chaotic and self._chance.random() < 0.15:
            position = self._chance.randrange(
                max(0, position - 10), min(partition.log.hi, position + 10)
            )
            session.rows.append(row(RowKind.RESET, at + MS, number, position, **own))
            self._commit(session, partition, at + 2 * MS, position, own)
            partition.completed = {o for o in partition.completed if o < position}
        return position

    def _calls(self, partition: _Partition, position: int, at: int, *, last: bool) -> list[_Call]:
        """Calls that keep the order of keys."""
        chance, log = self._chance, partition.log
        count = log.hi if last else chance.randrange(5, 25)
        offsets = [
            o
            for o in range(position, log.hi)
            if o not in log.missing and o not in partition.completed
        ][:count]
        free: dict[int, int] = {}
        calls: list[_Call] = []
        now = at + 3 * MS
        for offset in offsets:
            begins = max(now, free.get(offset % 5, 0))
            took = chance.randrange(150, 300) if chance.random() < 0.15 else chance.randrange(1, 20)
            calls.append(_Call(offset, begins, begins + took * MS))
            now, free[offset % 5] = begins + MS // 10, begins + took * MS + MS // 10
        return calls

    def _write_calls(
        self, session: Session, partition: _Partition, calls: list[_Call], until: int
    ) -> None:
        for call in calls:
            if call.begins > until:
                continue
            found = record(call.offset, partition=partition.number)
            hashes: Row = {}
            if self._content == "records":
                keys = [found.key]
                (hashed,) = record_hashes(keys, [found.value], key_hashes(keys))
                assert found.key is not None
                hashes = {"key_hash": _signed(key_hash(found.key)), "record_hash": _signed(hashed)}
            place = partition.number, call.offset
            if session.name in self._strict:
                session.rows.append(row(RowKind.START, call.begins, *place, **hashes))
            if call.ends <= until:
                session.rows.append(
                    row(
                        RowKind.ATTEMPT,
                        call.ends,
                        *place,
                        started_us=call.begins,
                        attempt=1,
                        outcome=CallOutcome.OK,
                        **hashes,
                    )
                )

    def _commit_while(
        self, session: Session, partition: _Partition, calls: list[_Call], until: int, own: Row
    ) -> None:
        """Commit what is done, every so often."""
        at = (calls[0].begins if calls else until) + self._chance.randrange(20, 300) * MS
        while at < until:
            self._commit_done(session, partition, calls, at, own)
            at += self._chance.randrange(20, 300) * MS

    def _commit_done(
        self,
        session: Session,
        partition: _Partition,
        calls: list[_Call],
        at: int,
        own: Row,
    ) -> None:
        position = calls[0].offset if calls else partition.committed
        done = {call.offset for call in calls if call.ends <= at}
        done |= partition.completed | partition.log.missing
        begun = [call.offset for call in calls if call.begins <= at]
        end = max([*begun, position - 1]) + 1
        offset = next((o for o in range(position, end) if o not in done), end)
        runs: list[list[int]] = []
        for each in range(offset, end):
            if each in done and runs and runs[-1][1] == each:
                runs[-1][1] += 1
            elif each in done:
                runs.append([each, each + 1])
        if offset > partition.committed or runs != partition.completion_map:
            self._commit(session, partition, at, offset, own)
            partition.completion_map = runs

    def _commit(
        self, session: Session, partition: _Partition, at: int, offset: int, own: Row
    ) -> None:
        sent = {"started_us": at - MS // 2, "outcome": CallOutcome.OK}
        session.rows.append(row(RowKind.COMMIT, at, partition.number, offset, **sent, **own))
        partition.committed = offset
        partition.completion_map = []

    def _end(
        self,
        session: Session,
        partition: _Partition,
        calls: list[_Call],
        how: str,
        until: int,
        own: Row,
    ) -> None:
        number, chance = partition.number, self._chance
        if how == "released":
            self._commit_done(session, partition, calls, until + MS, own)
            session.rows.append(row(RowKind.REVOKE_BEGIN, until, number, **own))
            session.rows.append(row(RowKind.RELEASED, until + 2 * MS, number, **own))
        elif how == "lost":
            session.rows.append(row(RowKind.LOST, until, number, **own))
        else:
            self._killed.add(session.name)
            session.as_parquet = False
            session.sort()
            session.rows = [each for each in session.rows if each["at_us"] <= until]
            # The last commits may have been accepted without a row.
            while session.rows[-1]["kind"] == RowKind.COMMIT and chance.random() < 0.7:
                session.rows.pop()
        partition.free_at = until + (300 * MS if how == "killed" else 3 * MS)


def _signed(number: int) -> int:
    return (number ^ 1 << 63) - (1 << 63)
