"""What Spark asks of a stream, on a real broker: topics that change while a query reads them."""

from __future__ import annotations

import logging
import time
import uuid
from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from spark.real_topics import create_again, delete, delete_records, produce, set_partitions

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.spark.errors import DataLossError
from asyncrevoke.spark.source import stream_reader
from asyncrevoke.spark.source.options import SourceOptions
from asyncrevoke.spark.source.stream_reader import StreamReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.spark.source.range_rows import Part

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

ALL = ReadAllAvailable()
Offsets = dict[str, Any]


class Query:
    """Calls a reader as Spark does: ``at`` is the end of the last batch."""

    def __init__(self, broker: RunningBroker, *columns: str, **options: str) -> None:
        given = {"bootstrap_servers": broker.bootstrap_servers, **options}
        names = ["topic", "partition", "offset", *columns]
        self.reader = StreamReader(SourceOptions.of(given), names)
        self.at: Offsets = {}
        self.tasks: list[Part] = []

    def begin(self) -> None:
        self.at = cast("Offsets", self.reader.initialOffset())

    def read(self, limit: int | None = None) -> list[tuple[str, int, int]]:
        """The topics, partitions and offsets of the next batch."""
        end = self.reader.latestOffset(self.at, ALL if limit is None else ReadMaxRows(limit))
        self.tasks = [cast("Part", partition) for partition in self.reader.partitions(self.at, end)]
        rows = [
            row
            for task in self.tasks
            for batch in self.reader.read(task)
            for row in zip(
                *(batch.column(name).to_pylist() for name in ("topic", "partition", "offset")),
                strict=True,
            )
        ]
        self.at = end
        return sorted(rows)

    def stop(self) -> None:
        self.reader.stop()


@pytest.fixture
def topic(kafka_broker: RunningBroker) -> str:
    name = f"stream-{uuid.uuid4().hex[:8]}"
    kafka_broker.create_topic(name, 1)
    return name


@pytest.fixture
def queries() -> Iterator[list[Query]]:
    """The queries to stop."""
    opened: list[Query] = []
    yield opened
    for each in opened:
        each.stop()


def rows(topic: str, *offsets: int, partition: int = 0) -> list[tuple[str, int, int]]:
    return [(topic, partition, offset) for offset in offsets]


def test_a_topic_created_again_is_an_error_even_if_it_has_more_records(
    kafka_broker: RunningBroker, topic: str, queries: list[Query]
) -> None:
    query = Query(kafka_broker, topic=topic)
    queries.append(query)
    query.begin()
    produce(kafka_broker, topic, 2)
    assert query.read() == rows(topic, 0, 1)
    create_again(kafka_broker, topic, 1)
    produce(kafka_broker, topic, 3)
    with pytest.raises(DataLossError, match=r"deleted and created again .* new checkpoint"):
        query.read()


def test_without_fail_on_data_loss_a_topic_created_again_is_read_from_its_beginning(
    kafka_broker: RunningBroker,
    topic: str,
    queries: list[Query],
    caplog: pytest.LogCaptureFixture,
) -> None:
    query = Query(kafka_broker, topic=topic, failOnDataLoss="false")
    queries.append(query)
    query.begin()
    produce(kafka_broker, topic, 2)
    assert query.read() == rows(topic, 0, 1)
    create_again(kafka_broker, topic, 1)
    produce(kafka_broker, topic, 3)
    with caplog.at_level(logging.WARNING):
        assert query.read() == rows(topic, 0, 1, 2)
    lost = [message for message in caplog.messages if "records lost" in message]
    assert len(lost) == 1
    assert f"topic {topic} was deleted and created again" in lost[0]
    assert "the query is at offsets {0: 2} of the deleted topic" in lost[0]
    assert query.read() == []
    delete(kafka_broker, topic)
    assert query.read() == []


def test_a_batch_that_is_planned_again_after_its_topic_was_created_again_is_an_error(
    kafka_broker: RunningBroker, topic: str, queries: list[Query]
) -> None:
    query = Query(kafka_broker, topic=topic)
    queries.append(query)
    query.begin()
    produce(kafka_broker, topic, 2)
    end = query.reader.latestOffset(query.at, ALL)
    (part,) = query.reader.partitions(query.at, end)
    create_again(kafka_broker, topic, 1)
    produce(kafka_broker, topic, 3)
    with pytest.raises(DataLossError, match="created again after its ranges were planned"):
        list(query.reader.read(part))
    restarted = Query(kafka_broker, topic=topic)
    queries.append(restarted)
    with pytest.raises(DataLossError, match="deleted and created again"):
        restarted.reader.partitions(query.at, end)
    lenient = Query(kafka_broker, topic=topic, missing="clip")
    queries.append(lenient)
    (nothing,) = lenient.reader.partitions(query.at, end)
    assert list(lenient.reader.read(nothing)) == []


@pytest.mark.parametrize("form", ["of former versions", "of Spark's connector"])
def test_a_checkpoint_without_topic_ids_goes_on(
    kafka_broker: RunningBroker, topic: str, queries: list[Query], form: str
) -> None:
    produce(kafka_broker, topic, 4)
    query = Query(kafka_broker, topic=topic)
    queries.append(query)
    query.at = {"0": 1} if form == "of former versions" else {topic: {"0": 1}}
    assert query.read() == rows(topic, 1, 2, 3)
    assert query.at[topic]["topic_id"] is not None
    create_again(kafka_broker, topic, 1)
    produce(kafka_broker, topic, 5)
    with pytest.raises(DataLossError, match="deleted and created again"):
        query.read()


def test_new_partitions_and_topics_of_a_pattern_are_read_from_their_beginning(
    kafka_broker: RunningBroker, topic: str, queries: list[Query]
) -> None:
    other = f"{topic}-b"
    query = Query(kafka_broker, subscribePattern=f"{topic}.*", start="latest")
    queries.append(query)
    produce(kafka_broker, topic, 3)
    query.begin()
    assert query.read() == []
    kafka_broker.create_topic(other, 1)
    produce(kafka_broker, other, 2)
    produce(kafka_broker, topic, 1)
    assert query.read() == rows(topic, 3) + rows(other, 0, 1)
    set_partitions(kafka_broker, other, 2)
    produce(kafka_broker, other, 2, partition=1)
    assert query.read() == rows(other, 0, 1, partition=1)


@pytest.mark.parametrize("whole_topic", [False, True], ids=["partition", "topic"])
def test_a_new_partition_whose_first_records_are_gone_is_an_error(
    kafka_broker: RunningBroker,
    topic: str,
    queries: list[Query],
    caplog: pytest.LogCaptureFixture,
    whole_topic: bool,
) -> None:
    query = Query(kafka_broker, subscribe_pattern=f"{topic}.*")
    queries.append(query)
    produce(kafka_broker, topic, 2)
    query.begin()
    assert query.read() == rows(topic, 0, 1)
    added, partition = (f"{topic}-b", 0) if whole_topic else (topic, 1)
    if whole_topic:
        kafka_broker.create_topic(added, 1)
    else:
        set_partitions(kafka_broker, topic, 2)
    produce(kafka_broker, added, 5, partition=partition)
    delete_records(kafka_broker, added, partition, before=3)
    message = rf"{added}-{partition} is new to the query and begins at offset 3 instead of 0.*clip"
    with pytest.raises(DataLossError, match=message):
        query.read()
    lenient = Query(kafka_broker, subscribe_pattern=f"{topic}.*", missing="clip")
    queries.append(lenient)
    lenient.at = query.at
    with caplog.at_level(logging.WARNING):
        assert lenient.read() == rows(added, 3, 4, partition=partition)
    assert any("missing=3" in each or "'missing': 3" in each for each in caplog.messages)
    query.at = lenient.at
    assert query.read() == []


def test_a_batch_that_begins_before_a_partition_was_added_is_planned_again_as_before(
    kafka_broker: RunningBroker, topic: str, queries: list[Query]
) -> None:
    query = Query(kafka_broker, topic=topic)
    queries.append(query)
    query.begin()
    set_partitions(kafka_broker, topic, 2)
    produce(kafka_broker, topic, 4, partition=1)
    end = query.reader.latestOffset(query.at, ALL)
    delete_records(kafka_broker, topic, 1, before=4)
    restarted = Query(kafka_broker, topic=topic)
    queries.append(restarted)
    with pytest.raises(DataLossError, match=f"{topic}-1 is new to the query"):
        restarted.reader.partitions(query.at, end)


def test_a_pattern_may_match_no_topic_yet(
    kafka_broker: RunningBroker, topic: str, queries: list[Query]
) -> None:
    query = Query(kafka_broker, subscribe_pattern=f"{topic}-.*")
    queries.append(query)
    query.begin()
    assert query.read() == []
    kafka_broker.create_topic(f"{topic}-a", 1)
    produce(kafka_broker, f"{topic}-a", 1)
    assert query.read() == rows(f"{topic}-a", 0)


def test_several_topics_share_the_limit_of_a_batch(
    kafka_broker: RunningBroker, topic: str, queries: list[Query]
) -> None:
    other = f"{topic}-b"
    kafka_broker.create_topic(other, 1)
    produce(kafka_broker, topic, 30)
    produce(kafka_broker, other, 10)
    query = Query(kafka_broker, topic=f"{other},{topic}")
    queries.append(query)
    query.begin()
    assert query.read(limit=4) == rows(topic, 0, 1, 2) + rows(other, 0)


@pytest.mark.parametrize("columns", [(), ("headers",), ("unreadable",)])
def test_one_task_reads_a_small_batch_of_several_partitions_and_topics(
    kafka_broker: RunningBroker, topic: str, queries: list[Query], columns: tuple[str, ...]
) -> None:
    other = f"{topic}-b"
    kafka_broker.create_topic(other, 1)
    set_partitions(kafka_broker, topic, 3)
    query = Query(kafka_broker, *columns, topic=f"{other},{topic}")
    queries.append(query)
    query.begin()
    for _ in range(2):
        at = query.at
        for partition in range(3):
            produce(kafka_broker, topic, 2 + partition, partition=partition)
        produce(kafka_broker, other, 3)
        read = query.read()
        assert len(query.tasks) == 1
        assert read == [
            (offset_range.topic, offset_range.partition, offset)
            for offset_range in query.tasks[0].ranges
            for offset in range(offset_range.start, offset_range.end)
        ]
        assert len(read) == 12
        assert query.at != at


def test_a_batch_has_a_task_for_each_partition_if_they_have_enough_offsets(
    kafka_broker: RunningBroker, topic: str, queries: list[Query]
) -> None:
    set_partitions(kafka_broker, topic, 3)
    query = Query(kafka_broker, topic=topic, min_offsets_per_task="2")
    queries.append(query)
    query.begin()
    for partition in range(3):
        produce(kafka_broker, topic, 2, partition=partition)
    assert len(query.read()) == 6
    assert len(query.tasks) == 3


def test_a_task_of_several_partitions_names_the_one_that_has_lost_records(
    kafka_broker: RunningBroker, topic: str, queries: list[Query]
) -> None:
    set_partitions(kafka_broker, topic, 2)
    query = Query(kafka_broker, topic=topic)
    queries.append(query)
    for partition in range(2):
        produce(kafka_broker, topic, 3, partition=partition)
    query.begin()
    end = query.reader.latestOffset(query.at, ALL)
    (task,) = query.reader.partitions(query.at, end)
    delete_records(kafka_broker, topic, 1, before=2)
    with pytest.raises(DataLossError, match=rf"^{topic}-1 begins at offset 2, after the planned"):
        list(query.reader.read(task))


@pytest.mark.parametrize("columns", [(), ("headers",)], ids=["batches", "records"])
def test_without_fail_on_data_loss_a_task_reads_what_is_left_when_it_begins(
    kafka_broker: RunningBroker, topic: str, queries: list[Query], columns: tuple[str, ...]
) -> None:
    set_partitions(kafka_broker, topic, 3)
    query = Query(kafka_broker, *columns, topic=topic, failOnDataLoss="false")
    queries.append(query)
    for partition in range(3):
        produce(kafka_broker, topic, 3, partition=partition)
    query.begin()
    end = query.reader.latestOffset(query.at, ALL)
    (task,) = query.reader.partitions(query.at, end)
    delete_records(kafka_broker, topic, 1, before=2)
    delete_records(kafka_broker, topic, 2, before=3)
    read = [
        (partition, offset)
        for batch in query.reader.read(task)
        for partition, offset in zip(
            batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True
        )
    ]
    assert sorted(read) == [(0, 0), (0, 1), (0, 2), (1, 2)]


def test_assigned_partitions_alone_are_read(
    kafka_broker: RunningBroker, topic: str, queries: list[Query]
) -> None:
    set_partitions(kafka_broker, topic, 3)
    for partition in range(3):
        produce(kafka_broker, topic, 2, partition=partition)
    query = Query(
        kafka_broker,
        assign=f'{{"{topic}": [2, 0]}}',
        startingOffsets=f'{{"{topic}": {{"0": 1, "2": -2}}}}',
    )
    queries.append(query)
    query.begin()
    assert query.read() == rows(topic, 1) + rows(topic, 0, 1, partition=2)
    missing = Query(kafka_broker, assign=f'{{"{topic}": [3]}}')
    queries.append(missing)
    with pytest.raises(ConfigError, match="has 3 partitions, none with the number 3"):
        missing.begin()


def test_a_batch_waits_for_its_least_offsets_until_the_longest_delay(
    kafka_broker: RunningBroker, topic: str, queries: list[Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(kafka_broker, topic=topic, minOffsetsPerTrigger="3", maxTriggerDelay="60s")
    queries.append(query)
    query.begin()
    produce(kafka_broker, topic, 1)
    assert query.read() == rows(topic, 0)  # nothing is known of an earlier batch
    produce(kafka_broker, topic, 2)
    before = query.at
    assert query.read() == []
    assert query.at == before
    produce(kafka_broker, topic, 1)
    assert query.read() == rows(topic, 1, 2, 3)
    produce(kafka_broker, topic, 1)
    assert query.read() == []
    monkeypatch.setattr(stream_reader, "monotonic", lambda: time.monotonic() + 61)
    assert query.read() == rows(topic, 4)


def test_a_query_of_what_is_available_now_ends_there(
    kafka_broker: RunningBroker, topic: str, queries: list[Query]
) -> None:
    produce(kafka_broker, topic, 3)
    query = Query(kafka_broker, topic=topic, min_offsets_per_trigger="100")
    queries.append(query)
    query.reader.prepareForTriggerAvailableNow()
    query.begin()
    produce(kafka_broker, topic, 3)
    set_partitions(kafka_broker, topic, 2)
    produce(kafka_broker, topic, 3, partition=1)
    assert query.read(limit=2) == rows(topic, 0, 1)
    assert query.read(limit=2) == rows(topic, 2)
    assert query.read(limit=2) == []
    end = cast("Offsets", query.reader.reportLatestOffset())
    assert end[topic]["offsets"] == {"0": 6, "1": 3}


def test_a_topic_that_the_options_no_longer_select_is_an_error_or_left_out(
    kafka_broker: RunningBroker,
    topic: str,
    queries: list[Query],
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = f"{topic}-b"
    kafka_broker.create_topic(other, 1)
    both = Query(kafka_broker, topic=f"{topic},{other}")
    queries.append(both)
    both.begin()
    produce(kafka_broker, topic, 1)
    produce(kafka_broker, other, 2)
    assert both.read() == rows(topic, 0) + rows(other, 0, 1)
    produce(kafka_broker, topic, 1)
    one, lenient = (
        Query(kafka_broker, topic=topic),
        Query(kafka_broker, topic=topic, missing="clip"),
    )
    queries += one, lenient
    one.at = lenient.at = both.at
    with pytest.raises(DataLossError, match=rf"no longer select topic {other}, .* \{{0: 2\}}"):
        one.read()
    with caplog.at_level(logging.WARNING):
        assert lenient.read() == rows(topic, 1)
    assert any(f"topic {other}, whose checkpoint" in message for message in caplog.messages)
    one.at = lenient.at
    assert one.read() == []


def test_a_topic_that_is_not_there_is_an_error_at_the_begin(
    kafka_broker: RunningBroker, queries: list[Query]
) -> None:
    query = Query(kafka_broker, topic="no-such-topic")
    queries.append(query)
    with pytest.raises(ConfigError, match="there is no topic 'no-such-topic'"):
        query.begin()
