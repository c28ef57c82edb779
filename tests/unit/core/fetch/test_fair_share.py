import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrevoke.client.core.fetch.collector import FairShare
from asyncrevoke.client.core.fetch.cursor import Taken
from asyncrevoke.client.model import Record, TopicPartition

if TYPE_CHECKING:
    from asyncrevoke.client.core.fetch.cursor import PartitionCursor


@dataclass
class Source:
    """Items that count up; ``promised`` more are announced than there are."""

    items: int
    promised: int = 0
    barred: bool = False
    taken: int = 0
    calls: list[int] = field(default_factory=list[int])

    @property
    def buffered(self) -> int:
        return 0 if self.barred else self.items + self.promised

    @property
    def empty(self) -> bool:
        return not self.items + self.promised

    def take(self, limit: int) -> Taken:
        self.calls.append(limit)
        count = min(limit, self.items)
        self.items -= count
        if not self.items:
            self.promised = 0
        start = self.taken
        self.taken += count
        items = cast("list[Record]", list(range(start, self.taken)))
        return Taken(items, not self.empty)


class Ring:
    """A :class:`FairShare` of sources with names."""

    def __init__(self, sources: dict[str, Source]) -> None:
        self.fair = FairShare()
        for key, source in sources.items():
            self.add(key, source)

    def add(self, key: str, source: Source) -> None:
        self.fair.add(TopicPartition(key, 0), cast("PartitionCursor", source))

    def remove(self, key: str) -> None:
        self.fair.remove(TopicPartition(key, 0))

    def take(self, limit: int) -> dict[str, Sequence[Record]]:
        taken, _ = self.fair.take(limit)
        return {partition.topic: records for partition, records in taken.items()}

    def __contains__(self, key: str) -> bool:
        return TopicPartition(key, 0) in self.fair


def counts(taken: dict[str, Sequence[Record]]) -> dict[str, int]:
    return {key: len(items) for key, items in taken.items()}


def test_an_uneven_limit_is_taken_with_one_call_of_each_source() -> None:
    sources = {name: Source(1000) for name in "ABC"}
    ring = Ring(sources)
    assert counts(ring.take(100)) == {"A": 34, "B": 33, "C": 33}
    assert counts(ring.take(100)) == {"B": 34, "C": 33, "A": 33}
    assert [source.calls for source in sources.values()] == [[34, 33], [33, 34], [33, 33]]


@pytest.mark.parametrize(
    ("buffered", "limit", "expected"),
    [
        ({"A": 1000, "B": 1000, "C": 1000}, 300, {"A": 100, "B": 100, "C": 100}),
        ({"A": 1000, "B": 1000, "C": 0}, 300, {"A": 150, "B": 150}),
        ({"A": 1000, "B": 0, "C": 0}, 300, {"A": 300}),
        ({"A": 1000, "B": 1000}, 100, {"A": 50, "B": 50}),
        ({"A": 20, "B": 1000, "C": 1000}, 300, {"A": 20, "B": 140, "C": 140}),
        ({"A": 2, "B": 1, "C": 5}, 300, {"A": 2, "B": 1, "C": 5}),
        ({"A": 9, "B": 9, "C": 9}, 2, {"A": 1, "B": 1}),
        ({"A": 9, "B": 9, "C": 9}, 10, {"A": 4, "B": 3, "C": 3}),
        ({}, 10, {}),
        ({"A": 9}, 0, {}),
    ],
)
def test_everyone_gets_an_equal_share_and_what_is_left_over_is_shared_again(
    buffered: dict[str, int], limit: int, expected: dict[str, int]
) -> None:
    fair = Ring({key: Source(count) for key, count in buffered.items()})
    assert counts(fair.take(limit)) == expected


def test_a_newcomer_waits_for_one_turn_of_the_others() -> None:
    a, b = Source(1000), Source(1000)
    fair = Ring({"A": a})
    order: list[str] = []
    for poll in range(1, 7):
        if poll == 3:
            fair.add("B", b)
        order += fair.take(1)
    assert order == ["A", "A", "A", "B", "A", "B"]


def test_with_more_partitions_than_records_no_partition_waits_longer_than_a_round() -> None:
    draw = random.Random(17)
    sources = {f"p{number}": Source(0) for number in range(17)}
    fair = Ring({})
    waited = dict.fromkeys(sources, 0)
    longest = 0
    for _ in range(20_000):
        for key, source in sources.items():
            if draw.random() < 0.3:
                source.items += draw.randint(1, 3)
                fair.add(key, source)
        full = [key for key, source in sources.items() if source.items]
        served = fair.take(5)
        for key in full:
            waited[key] = 0 if key in served else waited[key] + 1
        longest = max(longest, *waited.values())
    assert longest <= -(-17 // 5)


def test_the_odd_record_goes_to_another_each_time() -> None:
    fair = Ring({key: Source(1000) for key in "ABC"})
    favoured = [max(taken := counts(fair.take(10)), key=lambda key: taken[key]) for _ in range(6)]
    assert sorted(favoured) == ["A", "A", "B", "B", "C", "C"]


def test_if_an_estimate_was_too_high_the_rest_is_shared_again() -> None:
    fair = Ring({"A": Source(5, promised=500), "B": Source(1000), "C": Source(1000)})
    assert counts(fair.take(300)) == {"A": 5, "B": 148, "C": 147}


def test_a_source_that_gives_nothing_does_not_hold_up_the_others() -> None:
    liar = Source(0)
    liar.promised = 10**9

    class Forever(Source):
        def take(self, limit: int) -> Taken:
            self.calls.append(limit)
            return Taken([], not self.empty)

    forever = Forever(1)
    fair = Ring({"A": liar, "B": forever, "C": Source(7)})
    assert counts(fair.take(100)) == {"C": 7}
    assert len(forever.calls) == 1


def test_when_the_first_turn_out_empty_those_behind_them_are_served() -> None:
    sources = {f"p{number}": Source(0, promised=3) for number in range(5)}
    sources["last"] = Source(10)
    assert counts(Ring(sources).take(2)) == {"last": 2}


def test_one_who_has_not_been_asked_comes_before_a_second_helping() -> None:
    sources = {"A": Source(0, promised=3), "B": Source(10), "C": Source(10)}
    assert counts(Ring(sources).take(2)) == {"B": 1, "C": 1}


def test_a_second_helping_comes_last_also_when_many_turn_out_empty() -> None:
    sources = {f"liar{number}": Source(0, promised=3) for number in range(8)}
    sources |= {f"first{number}": Source(10) for number in range(2)}
    sources |= {f"last{number}": Source(10) for number in range(7)}
    taken = counts(Ring(sources).take(10))
    assert sorted(taken.values()) == [1] * 8 + [2]


def test_one_that_may_not_give_now_keeps_its_place() -> None:
    sources = {"A": Source(9, barred=True), "B": Source(9), "C": Source(9)}
    fair = Ring(sources)
    assert list(fair.take(1)) == ["B"]
    assert list(fair.take(1)) == ["C"]
    sources["A"].barred = False
    assert list(fair.take(1)) == ["A"]


def test_one_with_nothing_left_leaves_the_ring() -> None:
    fair = Ring({"A": Source(2), "B": Source(9)})
    fair.take(6)
    assert "A" not in fair
    assert "B" in fair


def test_a_withdrawn_source_is_not_asked() -> None:
    a = Source(9)
    fair = Ring({"A": a, "B": Source(9)})
    fair.remove("A")
    fair.take(100)
    assert a.calls == []


def test_few_records_from_many_partitions_do_not_ask_all_of_them() -> None:
    sources = {f"p{number}": Source(10) for number in range(1000)}
    Ring(sources).take(50)
    assert sum(len(source.calls) for source in sources.values()) == 50


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=12),
    st.one_of(st.integers(0, 12), st.integers(0, 200)),
)
def test_shares_are_max_min_fair(shape: list[tuple[int, int]], limit: int) -> None:
    have = {str(number): items for number, (items, _) in enumerate(shape)}
    sources = {str(n): Source(items, promised) for n, (items, promised) in enumerate(shape)}
    taken = counts(Ring(sources).take(limit))
    assert sum(taken.values()) == min(limit, sum(have.values()))
    for key, items in have.items():
        got = taken.get(key, 0)
        assert got <= items
        if got < items:
            # Who has records left got no less than anybody else, but for the odd record.
            assert all(got + 1 >= other for other in taken.values())
