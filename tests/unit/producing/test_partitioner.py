"""Partitions are those that Java's producer chooses."""

from __future__ import annotations

import random

import pytest
from aiokafka import partitioner as aiokafkas

from asyncrevoke.client.producing.queueing.partitioner import Partitioner, murmur2


# From Apache Kafka's own UtilsTest.
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hashes_are_those_of_java(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected & 0xFFFFFFFF


def test_hashes_are_those_of_aiokafka_for_any_length() -> None:
    rng = random.Random(1)
    for length in range(40):
        data = rng.randbytes(length)
        expected: object = aiokafkas.murmur2(data)
        assert murmur2(data) == expected


def test_a_key_moves_when_partitions_are_added() -> None:
    partitioner = Partitioner()
    assert partitioner.of_key(b"foobar", 3) == (murmur2(b"foobar") & 0x7FFFFFFF) % 3
    assert partitioner.of_key(b"foobar", 7) == (murmur2(b"foobar") & 0x7FFFFFFF) % 7


def test_records_without_a_key_stay_with_one_partition_until_its_batch_is_closed() -> None:
    partitioner = Partitioner()
    led = [1, 2, 4]
    assert [partitioner.without_key(led, 5) for _ in range(3)] == [1, 1, 1]
    partitioner.batch_closed(1, led, 5)
    assert partitioner.without_key(led, 5) == 2
    partitioner.batch_closed(4, led, 5)  # of another key
    assert partitioner.without_key(led, 5) == 2
    partitioner.batch_closed(2, led, 5)
    partitioner.batch_closed(4, led, 5)
    assert partitioner.without_key(led, 5) == 1


def test_long_keys_are_not_remembered() -> None:
    partitioner = Partitioner()
    for key in (b"k" * 256, b"k" * 257):
        assert partitioner.of_key(key, 3) == (murmur2(key) & 0x7FFFFFFF) % 3
    assert list(partitioner.cached(3)) == [b"k" * 256]


def test_the_partition_of_records_without_a_key_stays_when_partitions_are_added() -> None:
    partitioner = Partitioner()
    partitioner.without_key([1, 2], 3)
    assert partitioner.cached(5) == {None: 1}
