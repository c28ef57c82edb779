"""Rows become the records that aiokafka reads, in the partitions of Java's producer."""

from __future__ import annotations

import random
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from aiokafka.record.default_records import DefaultRecordBatch

from asyncrevoke.client.columns.arrow import pa
from asyncrevoke.client.errors import AsyncRevokeError
from asyncrevoke.client.producing.queueing.partitioner import Partitioner, murmur2
from asyncrevoke.client.producing.queueing.result_topics import OutputPartitions
from asyncrevoke.client.producing.record_batch import BATCH_BYTES
from asyncrevoke.spark.sink.record_encoding import BinaryColumn
from asyncrevoke.spark.sink.task import RowEncoder, murmur2_of, resized

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TIME = pa.timestamp("us", tz="UTC")
KNOWN = OutputPartitions(4, (0, 1, 2, 3))
TASK = "partition 0 of the DataFrame"


def read(batches: Any) -> dict[int, list[tuple[Any, ...]]]:
    """The row number and fields of each record by partition, in the order of the log."""
    records: dict[int, list[tuple[Any, ...]]] = {}
    for partition, encoded, rows in batches:
        batch = DefaultRecordBatch(bytes(encoded.build(0)))
        assert batch.first_timestamp == encoded.first_timestamp
        found = list(batch)
        assert [candidate.offset for candidate in found] == list(range(len(rows)))
        assert max(candidate.timestamp for candidate in found) == batch.max_timestamp
        for row, each in zip(rows, found, strict=True):
            fields = (int(row), each.key, each.value, each.timestamp, list(each.headers))
            records.setdefault(partition.partition, []).append(fields)
    return records


def random_bytes(chance: random.Random, longest: int) -> bytes | None:
    length = chance.choice([-1, 0, 1, 2, 3, 4, 63, 64, longest])
    return None if length < 0 else chance.randbytes(length)


@pytest.mark.parametrize("seed", range(8))
def test_every_field_of_every_row_is_read_again(seed: int) -> None:
    chance = random.Random(seed)
    count = 400
    rows: list[dict[str, Any]] = [
        {
            "key": random_bytes(chance, 300),
            "value": random_bytes(chance, 20_000 if chance.random() < 0.1 else 200),
            "partition": chance.choice([None, 0, 3]),
            "timestamp": chance.choice([0, 1, 1_700_000_000_000, 1_800_000_000_000]),
            "headers": chance.choice(
                [None, [], [("a", b"1")], [("é", None), ("", b""), ("b" * 100, b"x" * 300)] * 40]
            ),
        }
        for _ in range(count)
    ]
    batch = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([each["key"] for each in rows], pa.binary()),
            "value": pa.array([each["value"] for each in rows], pa.binary()),
            "partition": pa.array([each["partition"] for each in rows], pa.int32()),
            "timestamp": pa.array([each["timestamp"] * 1000 + 999 for each in rows], TIME),
            "headers": pa.array(
                [
                    each["headers"] and [{"key": k, "value": v} for k, v in each["headers"]]
                    for each in rows
                ],
                HEADERS,
            ),
        }
    )
    encoder = RowEncoder("t", TASK)
    records: dict[int, list[tuple[Any, ...]]] = {}
    for piece in resized(batch.slice(first, 150) for first in range(0, count, 150)):
        for topic, part, numbers in encoder.by_topic(piece):
            for partition, found in read(encoder.encode(topic, KNOWN, part, numbers)).items():
                records.setdefault(partition, []).extend(found)
    assert sorted(row for found in records.values() for row, *_ in found) == list(range(count))
    by_key = Partitioner()
    for partition, found in records.items():
        assert [row for row, *_ in found] == sorted(row for row, *_ in found)
        for row, key, value, timestamp, headers in found:
            wanted = rows[int(row)]
            assert (key, value, timestamp) == (
                wanted["key"],
                wanted["value"],
                wanted["timestamp"],
            )
            assert headers == (wanted["headers"] or [])
            if wanted["partition"] is not None:
                assert partition == wanted["partition"]
            elif key is not None:
                assert partition == by_key.of_key(key, 4)


def test_keys_have_the_hashes_of_javas_producer() -> None:
    chance = random.Random(1)
    keys = [chance.randbytes(length) for length in [*range(300), 5000, 0, 4]]
    column = BinaryColumn.of(pa.array([b"before", *keys, None], pa.binary()).slice(1))
    assert murmur2_of(column).tolist() == [murmur2(key) for key in [*keys, b""]]
    assert murmur2_of(BinaryColumn.of(pa.array(["é", "ab"]))).tolist() == [
        murmur2("é".encode()),
        murmur2(b"ab"),
    ]
    assert murmur2_of(BinaryColumn.of(pa.nulls(2))).tolist() == [murmur2(b"")] * 2


def encoded(
    columns: dict[str, Any], known: OutputPartitions = KNOWN, topic: str | None = "t"
) -> list[Any]:
    encoder = RowEncoder(topic, TASK)
    batch = pa.RecordBatch.from_pydict(columns)
    return [
        each
        for name, rows, numbers in encoder.by_topic(batch)
        for each in encoder.encode(name, known, rows, numbers)
    ]


def test_rows_without_a_key_fill_a_batch_of_one_partition_and_then_the_next_with_a_leader() -> None:
    batches = encoded({"value": pa.array([b"v" * 1000] * 1000)}, OutputPartitions(6, (1, 4)))
    assert all(len(batch.records.content) <= BATCH_BYTES + 2000 for batch in batches)
    by_row = sorted(
        (int(row), batch.partition.partition) for batch in batches for row in batch.rows
    )
    partitions = [partition for _, partition in by_row]
    assert set(partitions) == {1, 4}
    changes = [row for row in range(1, 1000) if partitions[row] != partitions[row - 1]]
    assert len(changes) == 1000 * 1032 // BATCH_BYTES


def test_rows_of_one_key_are_cut_into_batches_of_bounded_size() -> None:
    count = 3000
    batches = encoded({"key": ["k"] * count, "value": pa.array([b"v" * 500] * count)})
    assert len({batch.partition for batch in batches}) == 1
    sizes = [len(batch.records.content) for batch in batches]
    assert max(sizes) <= BATCH_BYTES
    assert len(sizes) == -(-count * 533 // BATCH_BYTES)
    assert [int(row) for batch in batches for row in batch.rows] == list(range(count))


@pytest.mark.parametrize(
    "headers",
    [
        pa.array([None, None], HEADERS),
        pa.array([[], []], HEADERS),
        pa.array([[], None], HEADERS),
        pa.array([[{"key": "cut", "value": b"off"}], None, []], HEADERS).slice(1),
    ],
)
def test_rows_of_which_none_has_a_header_are_written_without_headers(headers: Any) -> None:
    batches = encoded({"key": ["k", "k"], "value": ["a", "b"], "headers": headers})
    ((_, records),) = read(batches).items()
    assert [(row, value, found) for row, _, value, _, found in records] == [
        (0, b"a", []),
        (1, b"b", []),
    ]


def test_a_column_names_the_topic_of_each_row() -> None:
    batches = encoded({"value": ["0", "1", "2"], "topic": ["a", "b", "a"]}, topic=None)
    rows: dict[str, list[int]] = {"a": [], "b": []}
    for batch in batches:
        rows[batch.partition.topic] += [int(row) for row in batch.rows]
    assert rows == {"a": [0, 2], "b": [1]}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"value": ["x", "y"], "partition": pa.array([0, 4], pa.int32())}, "row 1 .* partition 4"),
        (
            {"value": ["x", "y"], "partition": pa.array([-1, 0], pa.int32())},
            "row 0 .* partition -1",
        ),
        ({"value": ["x"], "timestamp": pa.array([-1], TIME)}, "row 0 .* before 1970"),
        (
            {
                "value": ["x", "y", "z"],
                "headers": pa.array(
                    [[{"key": "a"}], [], [{"key": "b"}, {"key": None, "value": b"1"}]], HEADERS
                ),
            },
            "row 2 .* headers has no key",
        ),
        (
            {"value": ["x"], "headers": pa.array([[None]], HEADERS)},
            "row 0 .* headers has no key",
        ),
        ({"value": ["x", "y"], "topic": ["a", None]}, "row 1 .* topic is null"),
    ],
)
def test_a_row_that_cannot_be_written_is_named(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(AsyncRevokeError, match=message):
        encoded(columns, topic=None if "topic" in columns else "t")


def test_a_task_that_names_too_many_topics_is_rejected() -> None:
    with pytest.raises(AsyncRevokeError, match="at most 1000 topics"):
        encoded({"value": ["x"] * 1001, "topic": [f"t{n}" for n in range(1001)]}, topic=None)


def test_pieces_join_small_batches_and_split_large_ones() -> None:
    values = [b"x" * (10 if number % 50 else 5000) for number in range(1000)]
    column = pa.array(values, pa.binary())
    batches = [
        pa.RecordBatch.from_arrays([column.slice(first, size)], names=["value"])
        for first, size in ((0, 3), (3, 2), (5, 0), (5, 900), (905, 95))
    ]
    parts = list(resized(batches, 8000))
    assert [value for part in parts for value in part.column("value").to_pylist()] == values
    assert all(part.nbytes < 16_000 for part in parts)
    assert all(part.nbytes >= 8000 for part in parts[:-1])
