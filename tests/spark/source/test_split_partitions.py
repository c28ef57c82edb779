"""Tables and streams whose partitions are split between tasks have the rows of those that are not.

On a real broker: plain records, transactions, and a topic that was compacted.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from aiokafka import AIOKafkaProducer
from spark.real_topics import delete_records, ended_ranges, produce

from asyncrevoke.broker import KafkaBroker
from asyncrevoke.client.groups.errors import GroupsError
from asyncrevoke.spark.errors import DataLossError
from asyncrevoke.spark.reading import partition_bytes
from asyncrevoke.spark.reading.worker import PythonWorker
from asyncrevoke.spark.source.options import SourceOptions
from asyncrevoke.spark.source.stream_reader import StreamReader
from asyncrevoke.spark.source.table_reader import TableReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.spark.source.range_rows import Part

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

COLUMNS = ["partition", "offset", "key", "value"]
Row = tuple[Any, ...]


def options_of(broker: RunningBroker, topic: str, **options: str) -> SourceOptions:
    return SourceOptions.of(
        {"bootstrap_servers": broker.bootstrap_servers, "topic": topic, **options}
    )


def read(reader: TableReader | StreamReader, tasks: Sequence[object]) -> list[list[Row]]:
    """The rows of each task."""
    return [
        [
            row
            for batch in reader.read(cast("Part", task))
            for row in zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True)
        ]
        for task in tasks
    ]


def table(broker: RunningBroker, topic: str, *more: str, **options: str) -> list[list[Row]]:
    """The rows of each task; ``more`` are columns that are read, too."""
    reader = TableReader(options_of(broker, topic, **options), [*COLUMNS, *more])
    return read(reader, reader.partitions())


def stream(broker: RunningBroker, topic: str, **options: str) -> list[list[Row]]:
    reader = StreamReader(options_of(broker, topic, **options), COLUMNS)
    try:
        start = cast("dict[str, Any]", reader.initialOffset())
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        return read(reader, reader.partitions(start, end))
    finally:
        reader.stop()


def check_same_rows(whole: list[list[Row]], split: list[list[Row]], tasks: int) -> None:
    """Each task has consecutive rows, and the tasks together those of the whole partition."""
    assert len(split) == tasks
    rows = [row for task in split for row in task]
    assert rows == [row for task in whole for row in task]
    assert len(rows) == len(set(rows)) > 0


@pytest.fixture
def topic(kafka_broker: RunningBroker) -> str:
    name = f"split-{uuid.uuid4().hex[:8]}"
    kafka_broker.create_topic(name, 2)
    return name


def test_a_partition_is_split_by_either_option(kafka_broker: RunningBroker, topic: str) -> None:
    produce(kafka_broker, topic, 1000)
    produce(kafka_broker, topic, 7, partition=1)
    whole = table(kafka_broker, topic)
    assert [len(task) for task in whole] == [1000, 7]
    check_same_rows(whole, table(kafka_broker, topic, minPartitions="5"), 5)
    # The connector splits a table by this option only if places are offsets, or with the other one.
    most = table(kafka_broker, topic, maxRecordsPerPartition="300")
    check_same_rows(whole, most, 5)
    assert [len(task) for task in most] == [250, 250, 250, 250, 7]
    both = table(kafka_broker, topic, min_partitions="9", max_records_per_partition="400")
    assert len(both) == 10
    check_same_rows(whole, both, 10)


@pytest.mark.parametrize("column", ["headers", "unreadable"])
def test_records_that_are_read_singly_are_split_too(
    kafka_broker: RunningBroker, topic: str, column: str
) -> None:
    produce(kafka_broker, topic, 100)
    option = {f"include_{column}": "true"}
    read_split = table(kafka_broker, topic, column, minPartitions="3", **option)
    assert [[row[1] for row in task] for task in read_split] == [
        list(range(33)),
        list(range(33, 66)),
        list(range(66, 100)),
    ]


def test_a_batch_of_a_stream_is_split_and_small_partitions_share_no_task(
    kafka_broker: RunningBroker, topic: str
) -> None:
    produce(kafka_broker, topic, 1000)
    produce(kafka_broker, topic, 7, partition=1)
    whole = stream(kafka_broker, topic)
    assert len(whole) == 1
    check_same_rows(whole, stream(kafka_broker, topic, minPartitions="5"), 5)
    check_same_rows(whole, stream(kafka_broker, topic, maxRecordsPerPartition="300"), 5)
    # Enough tasks, without splitting.
    check_same_rows(whole, stream(kafka_broker, topic, minPartitions="2"), 2)


@pytest.mark.parametrize("rights", [True, False], ids=["known", "unknown"])
def test_a_partition_of_larger_records_has_more_tasks_if_brokers_report_sizes(
    kafka_broker: RunningBroker, topic: str, monkeypatch: pytest.MonkeyPatch, rights: bool
) -> None:
    async def fill() -> None:
        servers = kafka_broker.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            for n in range(200):
                await producer.send(topic, b"x" * (5000 if n % 2 else 5), partition=n % 2)

    async def nothing(*_: object) -> dict[object, int]:
        raise GroupsError("not authorized")

    if not rights:
        monkeypatch.setattr(partition_bytes, "_sizes", nothing)
    asyncio.run(fill())
    whole = table(kafka_broker, topic)
    expected = [1, 5] if rights else [3, 3]
    for read_split in (table, stream):
        split = read_split(kafka_broker, topic, minPartitions="6")
        check_same_rows(whole, split, 6)
        assert [sum(task[0][0] == number for task in split) for number in (0, 1)] == expected


@pytest.mark.parametrize("column", ["timestamp", "headers"], ids=["in batches", "singly"])
def test_parts_that_retention_removes_before_they_are_read_are_an_error_or_left_out(
    kafka_broker: RunningBroker, topic: str, column: str
) -> None:
    produce(kafka_broker, topic, 100)
    strict, clipping = (
        TableReader(
            options_of(kafka_broker, topic, minPartitions="4", missing=missing),
            [*COLUMNS, column],
        )
        for missing in ("error", "clip")
    )
    first, second, *others = strict.partitions()
    tasks = clipping.partitions()
    # The first part is gone, and the second one begins in its middle.
    delete_records(kafka_broker, topic, 0, before=30)
    for task in (first, second):
        with pytest.raises(DataLossError, match=f"{topic}-0 begins at offset 30, after the plan"):
            read(strict, [task])
    left = [list(range(50, 75)), list(range(75, 100))]
    assert [[row[1] for row in task] for task in read(strict, others)] == left
    found = [[row[1] for row in task] for task in read(clipping, tasks)]
    assert found == [[], list(range(30, 50)), *left]


def test_parts_within_transactions_have_their_committed_records(
    kafka_broker: RunningBroker, topic: str
) -> None:
    async def fill() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=kafka_broker.bootstrap_servers, transactional_id=topic
        )
        async with producer:
            for number, abort in enumerate((False, True, False, True, True, False)):
                await producer.begin_transaction()
                for n in range(20):
                    await producer.send_and_wait(topic, b"%d %d" % (number, n), partition=0)
                await (producer.abort_transaction() if abort else producer.commit_transaction())

    asyncio.run(fill())
    ended_ranges(kafka_broker.bootstrap_servers, topic, 126, 0)
    whole = table(kafka_broker, topic)
    assert [len(task) for task in whole] == [60]
    # Parts begin and end inside of transactions, and some have aborted records alone.
    split = table(kafka_broker, topic, maxRecordsPerPartition="5")
    check_same_rows(whole, split, 26)
    assert not all(split)
    check_same_rows(whole, stream(kafka_broker, topic, minPartitions="17"), 17)


def test_parts_of_a_compacted_partition_have_the_records_that_are_left() -> None:
    name = "compacted"
    with KafkaBroker(properties={"log.cleaner.backoff.ms": "200"}) as broker:
        broker.create_topic(
            name,
            config={
                "cleanup.policy": "compact",
                "segment.ms": "500",
                "min.cleanable.dirty.ratio": "0.001",
                "max.compaction.lag.ms": "500",
            },
        )

        async def fill(numbers: range) -> None:
            async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
                for n in numbers:
                    # A batch each, so that whole batches go.
                    await producer.send_and_wait(name, b"%d" % n, b"%d" % (n % 10), partition=0)

        asyncio.run(fill(range(200)))
        deadline = time.monotonic() + 60
        rolled = 200
        while len(whole := table(broker, name)[0]) > 60:
            assert time.monotonic() < deadline, len(whole)
            # The active segment is not compacted, and a record begins another one.
            asyncio.run(fill(range(rolled, rolled + 1)))
            rolled += 1
            time.sleep(0.5)
        # Later compactions remove records that are read before.
        split = table(broker, name, minPartitions="20")
        assert len(split) == 20
        assert not all(split)
        rows = [row for task in split for row in task]
        newest = {key: offset for _, offset, key, _ in rows}
        assert len(newest) == 10
        assert {row for row in whole if row[1] == newest[row[2]]} <= set(rows) <= set(whole)
        assert [row[1] for row in rows] == sorted({row[1] for row in rows})
        # Idle consumers would look for this broker.
        worker = PythonWorker.current()
        worker.run(worker.consumers.aclose())
