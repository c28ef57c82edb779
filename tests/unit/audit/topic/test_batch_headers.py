"""Headers of record batches as audits read them are those that consumers see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from asyncrevoke.audit.topic.batch_reader import BATCHES, headers
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import ErrorCode, FetchedPartition
from asyncrevoke.client.protocol.records import decode_batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.protocol.records import RecordBatch

ORDERS = TopicPartition("orders", 3)
_GZIP = 1


def built(base: int, count: int, compression: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(2, compression, False, -1, -1, -1, 2**20)
    for number in range(count):
        builder.append(number, 1000 + number, b"key", b"value %d" % number, [])
    batch = bytearray(builder.build())
    batch[:8] = base.to_bytes(8, "big")
    return bytes(batch)


def split(data: bytes, *, whole: bool = False) -> Sequence[RecordBatch]:
    fetched = FetchedPartition(partition=ORDERS, error=ErrorCode.none, records=data)
    return decode_batches(fetched, True, whole=whole)


@pytest.mark.parametrize("compression", [0, _GZIP])
def test_both_are_the_same_and_compression_changes_nothing(compression: int) -> None:
    data = built(10, 7, compression) + built(17, 3, compression)
    whole = [
        record.value or b""
        for batch in split(data, whole=True)
        for record in batch.decode(*ORDERS, -1, 0)
    ]
    rows = [tuple(row.values()) for row in headers(3, whole).to_pylist()]
    assert rows == [(3, b.base_offset, b.next_offset, b.count, b.checksum, 0) for b in split(data)]
    assert [row[1:4] for row in rows] == [(10, 17, 7), (17, 20, 3)]


def test_the_checksum_covers_all_but_itself() -> None:
    (here,), (there,) = split(built(10, 7)), split(built(90, 7))
    assert here.checksum == there.checksum
    (more,) = split(built(10, 8))
    assert more.checksum != here.checksum


def test_a_batch_with_a_delete_horizon_counts_as_rewritten() -> None:
    batch = bytearray(built(10, 7))
    batch[22] |= 0x40
    assert headers(3, [bytes(batch)]).to_pylist()[0]["rewritten"] == 1


def test_of_no_batches_there_are_no_rows() -> None:
    assert headers(3, []).schema.names == list(BATCHES)
    assert headers(3, []).num_rows == 0
