"""The calls that are compared for the order of their keys, beside all calls."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import pytest

from asyncrevoke.audit.anomalies import AnomalyKind
from asyncrevoke.audit.rules.queries import rules
from asyncrevoke.audit.rules.tables import RuleParameters, definitions
from asyncrevoke.audit.sql.database import AuditDatabase

if TYPE_CHECKING:
    from collections.abc import Sequence

ATTEMPTS = {
    "session": "STRING", "part": "INT", "off": "BIGINT", "key_hash": "BIGINT", "s": "BIGINT",
    "f": "BIGINT", "done": "BOOLEAN", "attempt": "INT",
}  # fmt: skip
NO_SKEW = RuleParameters(0, compacted=False, ordered=True, by_partition=False, nulls=False)


class Call(NamedTuple):
    session: str
    part: int
    off: int
    key_hash: int
    s: int
    f: int
    done: bool = True
    attempt: int = 1


def database_of(calls: Sequence[Call]) -> AuditDatabase:
    database = AuditDatabase()
    database.put("attempts", ATTEMPTS, calls)
    database.put("resets", {"part": "INT"}, [])
    database.put("sought", {"part": "INT", "lo": "BIGINT", "hi": "BIGINT"}, [])
    database.define("disordered", definitions(NO_SKEW)["disordered"])
    return database


def out_of_order(calls: Sequence[Call]) -> set[tuple[int, int, int]]:
    """Partition, key and offset of calls that began before a record before theirs was done."""
    found: set[tuple[int, int, int]] = set()
    by_key: dict[tuple[int, int], list[Call]] = defaultdict(list)
    for call in calls:
        by_key[call.part, call.key_hash].append(call)
    for (part, key), each in by_key.items():
        done: dict[int, int] = {}
        for call in each:
            if call.done:
                done[call.off] = min(call.f, done.get(call.off, call.f))
        began = {call.off: min(c.s for c in each if c.off == call.off) for call in each}
        found |= {
            (part, key, off)
            for off, s in began.items()
            if any(before < off and s < f for before, f in done.items())
        }
    return found


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_random_calls_is_what_comparing_each_pair_says(seed: int) -> None:
    chance = random.Random(seed)
    now = 0
    calls: list[Call] = []
    for off in range(60):
        # Mostly in order; times differ, so that no two calls are taken for one.
        now += chance.randint(1, 3)
        s = now - (20 if chance.random() < 0.05 else 0)
        calls.append(
            Call(
                chance.choice("ab"),
                *(off % 2, off, chance.randrange(4)),
                *(s * 1000 + off, (now + chance.choice((0, 1, 1, 9))) * 1000 + off),
                done=chance.random() < 0.9,
            )
        )
    chance.shuffle(calls)
    database = database_of(calls)
    rows = database.rows(rules(NO_SKEW)[AnomalyKind.KEY_ORDER])
    assert {(part, key, off) for part, off, _, key, *_ in rows} == out_of_order(calls)
    disordered = {*database.rows("SELECT part, lane FROM disordered")}
    assert disordered >= {(part, key) for part, key, _ in out_of_order(calls)}


def test_records_of_one_batch_are_not_compared_with_each_other() -> None:
    batch = [Call("a", 0, off, 7, 10, 20) for off in range(5)]
    after = Call("a", 0, 9, 7, 20, 30)
    assert not database_of([*batch, after]).rows("SELECT * FROM disordered")
    early = after._replace(s=19)
    assert database_of([*batch, early]).rows("SELECT part, lane FROM disordered") == [(0, 7)]


def test_two_sessions_that_handle_one_batch_at_the_same_time_are_compared() -> None:
    first, second = Call("a", 0, 1, 7, 10, 20), Call("b", 0, 2, 7, 10, 20)
    database = database_of([first, second])
    ((part, lo, *_),) = database.rows(rules(NO_SKEW)[AnomalyKind.KEY_ORDER])
    assert (part, lo) == (0, 2)
