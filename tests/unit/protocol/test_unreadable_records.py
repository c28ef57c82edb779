"""Records that a producer has made unreadable: found before objects are made of them, and each one
told apart from those around it."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from wire.frames.corrupt_records import fetched
from wire.frames.raw_batches import Header, raw_batch, record, sized, varint

from asyncrevoke.client.core.partition.record_buffer import LARGE_BATCH, RecordBuffer
from asyncrevoke.client.errors import CorruptRecordError, UnreadableRecordError
from asyncrevoke.client.model import Record, TopicPartition, UnreadableRecord
from asyncrevoke.client.protocol import record_maker as record_maker_module
from asyncrevoke.client.protocol.content_limits import MAX_RECORD_HEADERS
from asyncrevoke.client.protocol.records import (
    LARGEST_UNPACKED,
    CorruptBatch,
    UnreadableBatch,
    decode_batches,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

TP = TopicPartition("t", 0)
EMPTY: Header = (b"", b"")


def read(data: bytes, from_offset: int = 0, limit: int = LARGEST_UNPACKED) -> Sequence[Record]:
    (batch,) = decode_batches(fetched(data), read_committed=False, limit=limit)
    return batch.decode("t", 0, 7, from_offset)


def readable(records: Sequence[Record]) -> list[int]:
    return [each.offset for each in records if not isinstance(each, UnreadableRecord)]


def unreadable(records: Sequence[Record]) -> dict[int, str]:
    return {each.offset: each.detail for each in records if isinstance(each, UnreadableRecord)}


_BOMB = """
import resource
import sys
from wire.frames.raw_batches import header_bomb
from wire.frames.corrupt_records import fetched
from asyncrevoke.client.protocol.records import decode_batches
data = header_bomb()
assert len(data) < 6000, len(data)
limit = 700 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
(batch,) = decode_batches(fetched(data), False)
(record,) = batch.decode("t", 0, 7, 0)
print(type(record).__name__, record.offset, len(record.headers), record.detail)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="what bounds memory is Linux's")
def test_thirty_million_empty_headers_in_a_few_kilobytes_are_rejected_in_little_memory() -> None:
    tests = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", _BOMB],
        env={"PYTHONPATH": f"{tests}:{tests.parent}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(
        f"UnreadableRecord 0 0 the record has more than {MAX_RECORD_HEADERS} headers"
    )


@pytest.mark.parametrize(
    ("corrupt", "why"),
    [
        (record(1, headers=[EMPTY] * (MAX_RECORD_HEADERS + 1)), "more than 10000 headers"),
        (record(1, header_count=2**62), "more than 10000 headers"),
        (record(1, header_count=3, headers=[EMPTY]), ""),
        (record(1, header_count=-1), ""),
        (record(1, headers=[(None, b"value")]), ""),
        (record(1, headers=[(b"\xff", b"value")]), "not UTF-8"),
        (record(1, header_count=1, after=b"\x08key\x7f"), ""),
        (record(1, after=b"x"), ""),
        (sized(b"\0\0" + varint(1) + varint(-1) + varint(2**63 - 60) + bytes(20)), ""),
        (record(1, header_count=1, after=varint(2**63 - 60) + bytes(20)), ""),
        (record(1, header_count=1, after=sized(b"key") + varint(2**63 - 60) + bytes(20)), ""),
        (record(1, key=b"key")[:-5] + b"\x7e" * 5, ""),
    ],
)
@pytest.mark.parametrize("filler", [b"v", bytes(2 * LARGE_BATCH)], ids=["small", "large"])
def test_a_record_that_cannot_be_read_does_not_keep_those_around_it(
    corrupt: bytes, why: str, filler: bytes
) -> None:
    batch = raw_batch(record(0), corrupt, record(2, value=filler), base_offset=40)
    records = read(batch)
    assert readable(records) == [40, 42]
    (detail,) = unreadable(records).values()
    assert why in detail
    assert "value" not in detail.replace("key or value", "")
    assert [each.offset for each in records] == [40, 41, 42]
    assert {each.tracker_id for each in records} == {7}
    # Who seeks past it meets it no more.
    assert [read_range.offset for read_range in read(batch, 42)] == [42]
    assert readable(read(batch, 42)) == [42]


def test_as_many_headers_as_a_record_may_have_are_read() -> None:
    (one,) = read(raw_batch(record(headers=[(b"a", b"b")] * MAX_RECORD_HEADERS)))
    assert one.headers == (("a", b"b"),) * MAX_RECORD_HEADERS


@pytest.mark.parametrize(
    "batch",
    [
        raw_batch(record(0), record(1, length=3), record(2)),
        raw_batch(record(0), record(1, length=-1), record(2)),
        raw_batch(record(0), record(1, length=2**40), record(2)),
        raw_batch(record(0), record(1), count=1, last_offset_delta=1),
        raw_batch(record(0), record(1), count=3),
        raw_batch(record(0), record(1), count=2**31 - 1, last_offset_delta=2**31 - 1),
        raw_batch(record(0), record(5), record(1), last_offset_delta=9),
        raw_batch(record(0), record(-1)),
        raw_batch(record(0), b"\xff" * 11),
        raw_batch(*(record(n, header_count=-1) for n in range(200))),
    ],
    ids=[
        "a short length",
        "a negative length",
        "a long length",
        "too low a count",
        "too high a count",
        "the highest count",
        "an offset beyond the next",
        "an offset before the batch",
        "an endless number",
        "many that cannot be read",
    ],
)
def test_a_batch_whose_records_cannot_be_delimited_is_unreadable_as_a_whole(batch: bytes) -> None:
    with pytest.raises(UnreadableBatch):
        read(batch)


def test_a_wrong_checksum_is_no_producers_doing() -> None:
    batch = bytearray(raw_batch(record(header_count=2**40)))
    struct.pack_into(">I", batch, 17, 0)
    with pytest.raises(CorruptBatch, match="checksum") as caught:
        read(bytes(batch))
    assert not isinstance(caught.value, UnreadableBatch)


def test_records_and_headers_of_a_batch_are_limited_together() -> None:
    # 4096 objects.
    limit = 2**20
    assert len(read(raw_batch(*(record(n) for n in range(4000))), limit=limit)) == 4000
    with pytest.raises(UnreadableBatch, match="more than 4096 records and headers"):
        read(raw_batch(*(record(n) for n in range(5000))), limit=limit)


@pytest.mark.parametrize("corrupt", [False, True])
def test_headers_of_a_large_batch_count_together_whether_all_can_be_read_or_not(
    corrupt: bool,
) -> None:
    records = [record(n, value=bytes(2000), headers=[EMPTY] * 500) for n in range(1000)]
    batch = raw_batch(*records, record(1000, header_count=-1 if corrupt else 0), codec=4)
    with pytest.raises(UnreadableBatch, match="records and headers"):
        read(batch, limit=2**26)
    assert len(read(batch, limit=2**28)) == 1001


def test_a_large_batch_is_read_whole_whatever_lengths_its_records_have() -> None:
    sizes = [0, 1, 50, 64, 127, 128, 8000, 9000, 65_000, 65_536, 70_000, 300_000] * 4
    records = [record(n, value=bytes(size), headers=[EMPTY]) for n, size in enumerate(sizes)]
    batch = raw_batch(*records, base_offset=5)
    assert len(batch) > LARGE_BATCH
    found = read(batch)
    assert [len(candidate.value or b"") for candidate in found] == sizes
    assert [candidate.offset for candidate in found] == list(range(5, 5 + len(sizes)))
    assert not unreadable(found)


@pytest.mark.parametrize("header_count", [0, 30_000])
def test_the_parser_gets_a_large_batch_in_pieces_that_hold_no_other_thread_up(
    monkeypatch: pytest.MonkeyPatch, header_count: int
) -> None:
    # What one call may read: it holds the interpreter lock, which heartbeats wait for.
    given: list[int] = []
    create = vars(record_maker_module)["parser"]

    def noted(data: bytes) -> object:
        given.append(len(data))
        return create(data)

    monkeypatch.setattr(record_maker_module, "parser", noted)
    lies = record(5000, length=9, header_count=header_count)
    batch = raw_batch(*(record(n, value=bytes(300)) for n in range(5000)), lies, codec=4)
    with pytest.raises(UnreadableBatch):
        read(batch)
    assert len(given) > 20
    assert max(given) < 70_000


def test_many_short_records_are_decoded_elsewhere_like_a_large_batch() -> None:
    short = raw_batch(*(record(n, key=None, value=None) for n in range(60_000)))
    (batch,) = decode_batches(fetched(short), read_committed=False)
    assert batch.size < LARGE_BATCH < batch.unpacked_size


# -- what becomes of them ---------------------------------------------------------------------


def filled(batch: bytes, position: int = 0) -> RecordBuffer:
    buffer = RecordBuffer(TP, 7, position)
    buffer.append(decode_batches(fetched(batch), read_committed=False))
    return buffer


SPOILED = raw_batch(record(0), record(1, header_count=-1), record(2), record(3))


def test_a_loop_gets_what_is_before_it_then_an_error_that_says_where_to_seek() -> None:
    buffer = filled(SPOILED)
    assert [each.offset for each in buffer.take(10)] == [0]
    assert buffer.position == 1
    with pytest.raises(UnreadableRecordError, match=r"t-0 at offset 1: .*seek past it") as caught:
        buffer.take(10)
    assert isinstance(caught.value, CorruptRecordError)
    assert (caught.value.offset, caught.value.next_offset) == (1, 2)
    assert buffer.position == 1
    past = filled(SPOILED, 2)
    assert [each.offset for each in past.take(10)] == [2, 3]


def test_where_a_whole_batch_cannot_be_read_the_error_says_where_it_ends() -> None:
    batch = raw_batch(record(0), record(1), count=3, base_offset=10)
    with pytest.raises(UnreadableRecordError, match="up to offset 12; seek past it") as caught:
        filled(batch, 11).take(10)
    assert (caught.value.offset, caught.value.next_offset) == (11, 13)


def test_with_handlers_it_is_the_last_record_of_a_step() -> None:
    buffer = filled(SPOILED)
    taken = buffer.take(10, unreadable=True)
    assert [each.offset for each in taken] == [0, 1]
    assert isinstance(taken[-1], UnreadableRecord)
    assert buffer.position == 2
    assert [each.offset for each in buffer.take(10, unreadable=True)] == [2, 3]
    assert (buffer.position, buffer.buffered) == (4, 0)


def test_with_handlers_a_whole_batch_is_passed_at_once() -> None:
    buffer = filled(raw_batch(record(0), record(1), count=3, base_offset=10))
    (one,) = buffer.take(10, unreadable=True)
    assert isinstance(one, UnreadableRecord)
    assert (one.offset, one.next_offset) == (10, 13)
    assert (buffer.position, buffer.buffered) == (13, 0)
