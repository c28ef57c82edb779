"""Records that were encoded together: their batch, and what the responses to it lead to."""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from unit.producing.test_producer_core import TP, E, Setting

from asyncrevoke.client.errors import PublishError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.producing.encoded_records import EncodedRecords
from asyncrevoke.client.producing.record_batch import BatchSequence, ResultBatch
from asyncrevoke.client.producing.requests import ProduceRequest, produced_batches

_HEADER = 61
FIRST = 1_700_000_000_000


def encoded(*values: bytes) -> EncodedRecords:
    """Records with these values, one millisecond apart, as aiokafka encodes them."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, 0, 1 << 24)
    for number, value in enumerate(values):
        assert builder.append(number, FIRST + number, b"k", value, [("h", value)]) is not None
    last = FIRST + len(values) - 1
    return EncodedRecords(len(values), FIRST, last, memoryview(builder.build())[_HEADER:])


def queue(setting: Setting, *values: bytes, partition: TopicPartition = TP) -> bool:
    return setting.core.append_batch(
        setting.now, partition, encoded(*values), setting.sink, list(values)
    )


@pytest.mark.parametrize("compression", range(5))
def test_the_batch_of_encoded_records_is_read_as_any_other(compression: int) -> None:
    values = [b"%d" % number * 50 for number in range(30)]
    batch = ResultBatch.of_encoded(0, compression, encoded(*values), Setting().sink, values)
    data = bytes(batch.with_sequence(BatchSequence(7, 1, 5)))
    read = DefaultRecordBatch(data)
    assert read.validate_crc()
    assert (read.producer_id, read.producer_epoch, read.base_sequence) == (7, 1, 5)
    assert (read.first_timestamp, read.max_timestamp) == (FIRST, FIRST + 29)
    assert read.last_offset_delta == 29
    assert read.compression_type == compression
    assert [
        (read_range.offset, read_range.timestamp, read_range.key, read_range.value)
        for read_range in read
    ] == [(number, FIRST + number, b"k", value) for number, value in enumerate(values)]


def test_records_that_compression_makes_larger_are_not_compressed() -> None:
    built = encoded(b"x").build(1)
    assert DefaultRecordBatch(bytes(built)).compression_type == 0


def test_encoded_records_are_acknowledged_together_after_what_was_queued_before() -> None:
    setting = Setting()
    assert setting.append(b"before")
    assert queue(setting, b"1", b"2", b"3")
    assert setting.append(b"after")
    setting.start()
    sent: list[list[bytes]] = []
    while setting.core.queued:
        outgoing = setting.sent()
        assert isinstance(outgoing.message, ProduceRequest)
        ((_, data),) = produced_batches(outgoing.message)
        sent.append([record.value or b"" for record in DefaultRecordBatch(data)])
        setting.respond(outgoing, E.none)
    assert sent == [[b"before"], [b"1", b"2", b"3"], [b"after"]]
    assert setting.sink.acknowledged == [b"before", b"1", b"2", b"3", b"after"]
    assert not setting.core.queued_bytes


def test_a_batch_that_is_too_large_is_split_until_one_record_is_rejected() -> None:
    setting = Setting()
    assert queue(setting, b"1", b"large", b"3")
    setting.start()
    while setting.core.queued:
        outgoing = setting.sent()
        assert isinstance(outgoing.message, ProduceRequest)
        ((_, data),) = produced_batches(outgoing.message)
        too_large = any(record.value == b"large" for record in DefaultRecordBatch(data))
        setting.respond(outgoing, E.message_too_large if too_large else E.none)
    assert setting.sink.acknowledged == [b"1", b"3"]
    ((token, why),) = setting.sink.failed
    assert token == b"large"
    assert "max.message.bytes" in why


def test_encoded_records_wait_while_the_memory_is_full() -> None:
    setting = Setting(memory=100)
    assert queue(setting, b"x" * 200)
    assert not queue(setting, b"y")
    setting.start()
    setting.respond(setting.sent(), E.none)
    assert queue(setting, b"y")


def test_encoded_records_for_a_partition_that_does_not_exist_are_rejected() -> None:
    setting = Setting(partitions=2)
    with pytest.raises(PublishError, match="there is no partition 2: it has 2"):
        queue(setting, b"x", partition=TopicPartition("t", 2))
    assert not setting.core.queued


def test_the_partitions_of_a_topic_are_asked_for_once_and_then_known() -> None:
    setting = Setting(partitions=3)
    known = setting.core.partitions(0, "t")
    assert known is not None
    assert (known.count, list(known.led)) == (3, [0, 1, 2])
    assert setting.core.partitions(0, "other") is None
    (asks,) = setting.core.requests(0)
    assert "other" in str(asks.message)
    with pytest.raises(PublishError, match="no topic can have this name"):
        setting.core.partitions(0, "a topic")
