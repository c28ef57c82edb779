"""Rules that look only at buckets and blocks in which something differs, beside plain loops."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import pairwise
from typing import LiteralString, NamedTuple

import pytest

from asyncrevoke.audit.anomalies import AnomalyKind
from asyncrevoke.audit.rules.queries import rules
from asyncrevoke.audit.rules.tables import RuleParameters, definitions
from asyncrevoke.audit.rules.views import views
from asyncrevoke.audit.sql.database import AuditDatabase
from asyncrevoke.audit.sql.text import compose
from asyncrevoke.journal.format.schema import BUCKET

SKEW = 5
TERMS = RuleParameters(SKEW, compacted=False, ordered=True, by_partition=False, nulls=False)
# Around the ends of blocks and of buckets.
OFFSETS = [
    *range(6), *range(125, 132), *range(BUCKET - 3, BUCKET + 3),
    *range(3 * BUCKET - 2, 3 * BUCKET + 2),
]  # fmt: skip
ATTEMPTS = {
    "session": "STRING", "seq": "BIGINT", "part": "INT", "off": "BIGINT", "key_hash": "BIGINT",
    "record_hash": "BIGINT", "attempt": "INT", "s": "BIGINT", "f": "BIGINT", "outcome": "STRING",
    "done": "BOOLEAN",
}  # fmt: skip


class Call(NamedTuple):
    session: str
    off: int
    s: int
    f: int
    done: bool = True


class Cover(NamedTuple):
    """The first commit beyond the offsets before ``beyond``."""

    beyond: int
    at: int
    session: str


class Run(NamedTuple):
    """What one partition has, and what the journal says about it."""

    calls: list[Call]
    topic: list[int]
    covers: list[Cover]

    @property
    def committed(self) -> int:
        return self.covers[-1].beyond if self.covers else 0

    def cover(self, off: int) -> Cover | None:
        return next((each for each in self.covers if off < each.beyond), None)

    def by_offset(self) -> dict[int, list[Call]]:
        found: dict[int, list[Call]] = defaultdict(list)
        for call in self.calls:
            found[call.off].append(call)
        return found


def database_of(run: Run) -> AuditDatabase:
    database = AuditDatabase()
    rows = [
        (c.session, n, 0, c.off, c.off, c.off, 1, c.s, c.f, "ok" if c.done else "retried", c.done)
        for n, c in enumerate(run.calls)
    ]
    database.put("attempts", ATTEMPTS, rows)
    records = [(0, off, 0, off, off) for off in run.topic]
    numbers = dict.fromkeys(("off", "timestamp_us", "key_hash", "record_hash"), "BIGINT")
    database.put("source", {"part": "INT", **numbers}, records)
    end = 4 * BUCKET
    bounds = dict.fromkeys(("lo", "hi"), "BIGINT")
    database.put("bounds", {"part": "INT", **bounds}, [(0, 0, end)])
    database.put("ranges", {"part": "INT", **bounds}, [(0, 0, end)])
    window = dict.fromkeys(("lo", "log_start", "log_end", "committed", "hi"), "BIGINT")
    database.put("windows", {"part": "INT", **window}, [(0, 0, 0, end, run.committed, end)])
    above = [0, *(each.beyond for each in run.covers)]
    database.put(
        "covers",
        {"part": "INT", "beyond": "BIGINT", "at_us": "BIGINT", "session": "STRING",
         "above": "BIGINT"},
        [(0, *cover, least) for cover, least in zip(run.covers, above, strict=False)],
    )  # fmt: skip
    database.put("resets", {"part": "INT", "off": "BIGINT", "at_us": "BIGINT"}, [])
    for name in ("buckets", "crowded"):
        database.define(name, views(0)[name])
    for name, query in definitions(TERMS).items():
        if name != "sought":
            database.define(name, query)
    database.put("sought", {"part": "INT", "lo": "BIGINT", "hi": "BIGINT"}, [])
    return database


def clean_run() -> Run:
    """Each record handled once, before its commit."""
    calls = [Call("a", off, 10 * n, 10 * n + 3) for n, off in enumerate(OFFSETS)]
    ends = [*OFFSETS[4::4], OFFSETS[-1] + 1]
    covers = [
        Cover(end, next((c.s for c in calls if c.off >= end), calls[-1].f + 1), "a") for end in ends
    ]
    return Run(calls, list(OFFSETS), covers)


def random_run(seed: int) -> Run:
    """The same with calls left out, repeated, late or failed, and records left out."""
    chance = random.Random(seed)
    clean = clean_run()
    calls: list[Call] = []
    for call in clean.calls:
        for _ in range(chance.choices((0, 1, 2), (1, 20, 2))[0]):
            late = chance.choices((0, 4, 8, 60, 200), (20, 1, 1, 1, 1))[0]
            session = "b" if chance.random() < 0.1 else "a"
            moved = call._replace(session=session, s=call.s + chance.choice((0, late)))
            calls.append(moved._replace(f=call.f + late, done=chance.random() < 0.93))
    topic = [off for off in clean.topic if chance.random() < 0.95]
    chance.shuffle(calls)
    return Run(calls, topic, clean.covers)


def test_nothing_of_a_clean_run_is_looked_at_in_detail() -> None:
    database = database_of(clean_run())
    names: list[LiteralString] = [
        *("uneven", "uneven_calls", "uneven_records", "late", "repeated", "first_done")
    ]
    for name in names:
        assert not database.rows(compose("SELECT * FROM {name}", name=name)), name


def test_buckets_count_calls_and_offsets() -> None:
    run = random_run(3)
    rows = database_of(run).rows("SELECT sum(calls), sum(called), sum(completed) FROM buckets")
    done = {call.off for call in run.calls if call.done}
    assert rows == [(len(run.calls), len(run.by_offset()), len(done))]


@pytest.mark.parametrize("seed", range(40))
def test_random_runs_have_the_anomalies_that_comparing_each_record_finds(seed: int) -> None:
    run = random_run(seed)
    database = database_of(run)
    called = run.by_offset()
    done = {off: min(c.f for c in each if c.done) for off, each in called.items()
            if any(c.done for c in each)}  # fmt: skip
    sessions = {off: {c.session for c in called[off] if c.done and c.f == f}
                for off, f in done.items()}  # fmt: skip
    query = rules(TERMS)

    def offsets(kind: AnomalyKind) -> set[int]:
        return {lo for _, lo, *_ in database.rows(query[kind])}

    lost = {off for off in run.topic if off < run.committed and off not in done}
    assert offsets(AnomalyKind.LOST) == lost
    assert offsets(AnomalyKind.PHANTOM) == called.keys() - set(run.topic)
    repeated = {off for off, each in called.items() if len(each) > 1}
    assert {off for (off,) in database.rows("SELECT DISTINCT off FROM repeated")} == repeated
    ahead: set[int] = set()
    unclear: set[int] = set()
    for off, f in done.items():
        if (cover := run.cover(off)) is None:
            continue
        late = {f > cover.at + (0 if s == cover.session else SKEW) for s in sessions[off]}
        # Two sessions may have ended at the same time.
        (unclear if len(late) > 1 else ahead if late == {True} else set[int]()).add(off)
    assert offsets(AnomalyKind.COMMIT_AHEAD) - unclear == ahead
    again = {
        call.off
        for call in run.calls
        if (cover := run.cover(call.off)) is not None
        and call.s > cover.at + (0 if call.session == cover.session else SKEW)
        and call.off in done
        and done[call.off] < call.s
    }
    assert offsets(AnomalyKind.DUPLICATE_AFTER_COMMIT) == again


def test_a_later_offset_is_never_committed_before_an_earlier_one() -> None:
    """What blocks rely on."""
    database = AuditDatabase()
    chance = random.Random(1)
    rows = [
        ("ab"[n % 2], n, 0, chance.randrange(1000), chance.randrange(10_000)) for n in range(500)
    ]
    columns = {"session": "STRING", "seq": "BIGINT", "part": "INT", "off": "BIGINT"}
    database.put("commits", {**columns, "at_us": "BIGINT"}, rows)
    database.define("covers", views(0)["covers"])
    found = database.rows("SELECT beyond, at_us FROM covers ORDER BY beyond")
    assert len(found) > 3
    assert all(first[1] <= then[1] for first, then in pairwise(found))
