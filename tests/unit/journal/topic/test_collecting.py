"""How far ``journal collect`` reads a topic, and what it says if it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import pytest
from unit.journal.topic.test_collected_journals import piece
from unit.journal.written_journal import A, B

from asyncrevoke import ConfigError, ConsumerConfig, JournalError, PollResult, Record
from asyncrevoke import TopicPartition as Partition
from asyncrevoke.journal.topic import collecting
from asyncrevoke.journal.topic.collecting import collect

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

ONE, TWO = Partition("billing-journal", 0), Partition("billing-journal", 1)


class Topic:
    """A topic of two partitions. One poll returns all records of a partition from its position on,
    also those beyond the end that was looked up."""

    def __init__(self) -> None:
        self.logs: dict[Partition, list[bytes]] = {ONE: [], TWO: []}
        self.starts = {ONE: 0, TWO: 0}
        # Appended to the first partition after its end was looked up.
        self.late: list[bytes] = []
        self.lost: frozenset[Partition] = frozenset()
        self.stalls = False
        self.closed = False
        self._positions: dict[Partition, int] = {}
        self._paused: set[Partition] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.closed = True

    async def beginning_offsets(self, *_partitions: Partition) -> dict[Partition, int]:
        return self.starts

    async def end_offsets(self, *_partitions: Partition) -> dict[Partition, int]:
        ends = {tp: self.starts[tp] + len(log) for tp, log in self.logs.items()}
        self.logs[ONE] += self.late
        self.late = []
        return ends

    def assign(self, partitions: Sequence[Partition]) -> None:
        self._positions = dict.fromkeys(partitions, -1)

    def resume(self, *_partitions: Partition) -> None:
        self._paused.clear()

    def pause(self, partition: Partition) -> None:
        self._paused.add(partition)

    def fetch_until(self, _ends: Mapping[Partition, int]) -> None: ...

    def seek(self, partition: Partition, offset: int) -> None:
        self._positions[partition] = offset

    def position(self, partition: Partition) -> int:
        return self._positions[partition]

    async def poll(self, _timeout: float, _most: int | None) -> PollResult:
        slices: dict[Partition, list[Record]] = {}
        for tp, position in self._positions.items():
            start, log = self.starts[tp], self.logs[tp]
            if tp not in self._paused and not self.stalls and position < start + len(log):
                slices[tp] = [
                    Record(*tp, start + n, 0, 0, None, log[n], (), 1)
                    for n in range(position - start, len(log))
                ]
                self._positions[tp] = start + len(log)
        return PollResult(slices, lost=self.lost)


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    topic = Topic()

    async def partitions(_topic: str, _config: ConsumerConfig) -> list[Partition]:
        return [ONE, TWO]

    def consumer_of(_config: ConsumerConfig) -> Topic:
        return topic

    monkeypatch.setattr(collecting, "consumer_of", consumer_of)
    monkeypatch.setattr(collecting, "_partitions", partitions)
    return topic


async def nothing_committed(_group: str) -> Mapping[Partition, int]:
    return {}


async def test_all_partitions_are_read_from_the_start_of_their_logs(
    topic: Topic, tmp_path: Path
) -> None:
    topic.starts = {ONE: 100, TWO: 7}
    topic.logs = {ONE: [piece(A), piece(A, 11)], TWO: [piece(B)]}
    assert await collect(ONE.topic, tmp_path / "c", ConsumerConfig()) == (2, 32, 0)
    assert topic.closed


async def test_rows_written_while_the_committed_offsets_are_requested_are_read(
    topic: Topic, tmp_path: Path
) -> None:
    topic.logs = {ONE: [piece(A)], TWO: []}

    async def committed_by(group: str) -> Mapping[Partition, int]:
        assert group == "billing"
        topic.logs[ONE].append(piece(A, 11))
        topic.logs[TWO].append(piece(B))
        return {}

    found = await collect(ONE.topic, tmp_path / "c", ConsumerConfig(), committed_by=committed_by)
    assert found == (2, 32, 0)


async def test_no_record_that_was_fetched_beyond_the_end_is_lost(
    topic: Topic, tmp_path: Path
) -> None:
    topic.logs = {ONE: [piece(A)], TWO: []}
    topic.late = [piece(A, 11)]
    found = await collect(
        ONE.topic, tmp_path / "c", ConsumerConfig(), committed_by=nothing_committed
    )
    assert found == (1, 21, 0)


async def test_a_topic_that_is_deleted_meanwhile_is_an_error(topic: Topic, tmp_path: Path) -> None:
    topic.logs = {ONE: [piece(A)], TWO: [piece(B)]}
    topic.lost = frozenset([TWO])
    with pytest.raises(JournalError, match="billing-journal-1 was deleted while it was read"):
        await collect(ONE.topic, tmp_path / "c", ConsumerConfig())
    assert topic.closed


async def test_reading_without_progress_ends(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "_NO_PROGRESS", 0.0)
    topic.logs = {ONE: [piece(A)], TWO: []}
    topic.stalls = True
    with pytest.raises(JournalError, match=r"journal-0 cannot be read beyond offset 0.*to 1"):
        await collect(ONE.topic, tmp_path / "c", ConsumerConfig())
    assert topic.closed


async def test_a_broker_that_cannot_be_reached_is_named_at_once(tmp_path: Path) -> None:
    config = ConsumerConfig(bootstrap_servers="127.0.0.1:1")
    with pytest.raises(JournalError, match=r"'billing-journal' cannot be read.*127\.0\.0\.1:1"):
        await collect("billing-journal", tmp_path / "c", config)
    with pytest.raises(ConfigError, match="'no topic' is not a valid topic name"):
        await collect("no topic", tmp_path / "c", config)
    assert not (tmp_path / "c").exists()
