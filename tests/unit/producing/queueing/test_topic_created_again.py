"""Results for a topic that is deleted and created again with other partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from asyncrevoke.client.core.io.effects import Failed, FailureKind, Node, Replied
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.producing.encoded_records import EncodedRecords
from asyncrevoke.client.producing.producer_core import ProducerCore
from asyncrevoke.client.producing.queueing.result_topics import ResultTopic
from asyncrevoke.client.producing.requests import (
    InitProducerIdRequest,
    Outgoing,
    ProduceRequest,
    produce_response,
    produced_batches,
    producer_id_response,
)
from asyncrevoke.client.protocol.messages import (
    BrokerMetadata,
    EntityResponse,
    ErrorCode,
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

OLD, NEW = b"o" * 16, b"n" * 16


class Sink:
    def __init__(self) -> None:
        self.acknowledged: list[object] = []
        self.failed: list[tuple[object, str]] = []

    def results_acknowledged(
        self, tokens: Sequence[object], _partition: TopicPartition, _offset: int, /
    ) -> None:
        self.acknowledged += tokens

    def results_failed(self, tokens: Sequence[object], error: Exception, /) -> None:
        self.failed += [(token, str(error)) for token in tokens]


def described(topic_id: bytes, partitions: int) -> TopicMetadata:
    return TopicMetadata(
        error=ErrorCode.none,
        name="t",
        topic_id=topic_id,
        partitions=tuple(
            PartitionMetadata(error=ErrorCode.none, partition=n, leader_id=0)
            for n in range(partitions)
        ),
    )


class Publishing:
    """A producer of results for a topic, which has other partitions when the test says so."""

    def __init__(self, partitions: int, topic_id: bytes = OLD) -> None:
        self.core = ProducerCore(
            [Node(-1, "boot", 1)],
            request_timeout=10,
            delivery_timeout=30,
            metadata_max_age=300,
            compression=1,
            memory=1 << 20,
        )
        self.sink, self.now = Sink(), 0.0
        self.topic = described(topic_id, partitions)
        assert not self.append(b"early", b"k0")
        self.respond_to_metadata()
        assert self.append(b"first", b"k0")
        (asks,) = self.core.requests(0)
        assert isinstance(asks.message, InitProducerIdRequest)
        self.reply(asks, EntityResponse(entity=producer_id_response(77)))

    def append(self, value: bytes, key: bytes | None, partition: int | None = None) -> bool:
        at = 1_700_000_000_000
        return self.core.append(self.now, "t", partition, key, value, [], at, self.sink, value)

    def reply(self, outgoing: Outgoing, message: object) -> None:
        self.core.response_received(self.now, outgoing, Replied(0, message))  # type: ignore[arg-type]

    def respond_to_metadata(self) -> None:
        """Respond to the request for metadata; what is produced beside it finds no topic."""
        asked = False
        for outgoing in self.core.requests(self.now):
            if isinstance(outgoing.message, MetadataRequest):
                brokers = (BrokerMetadata(node_id=0, host="a", port=1),)
                self.reply(outgoing, MetadataResponse(brokers=brokers, topics=(self.topic,)))
                asked = True
            else:
                self.reject(outgoing)
        assert asked

    def reject(self, outgoing: Outgoing) -> None:
        numbers = [queue.partition.partition for queue in outgoing.queues]
        self.respond(outgoing, dict.fromkeys(numbers, ErrorCode.unknown_topic_or_partition))

    def sent(self) -> Outgoing:
        (outgoing,) = (
            request
            for request in self.core.requests(self.now)
            if isinstance(request.message, ProduceRequest)
        )
        return outgoing

    def respond(self, outgoing: Outgoing, errors: dict[int, ErrorCode] | None = None) -> None:
        responses = {
            queue.partition: (errors or {}).get(queue.partition.partition, ErrorCode.none)
            for queue in outgoing.queues
        }
        self.reply(outgoing, EntityResponse(entity=produce_response(responses, {})))

    def is_created_again(self, partitions: int, topic_id: bytes = NEW) -> None:
        """The broker rejects what is sent, and the next metadata has the new topic."""
        self.reject(self.sent())
        self.topic = described(topic_id, partitions)
        self.now += 1
        self.respond_to_metadata()
        self.now += 1

    def written(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """Let the broker write all that is queued: partition, key and value."""
        found: list[tuple[int, bytes | None, bytes | None]] = []
        while self.core.queued:
            outgoing = self.sent()
            assert isinstance(outgoing.message, ProduceRequest)
            for partition, data in produced_batches(outgoing.message):
                found += [
                    (partition.partition, record.key, record.value)
                    for record in DefaultRecordBatch(bytes(data))
                ]
            self.respond(outgoing)
        return found


KEYS = [b"k%d" % number for number in range(20)]


def test_queued_results_of_partitions_that_are_gone_are_partitioned_anew() -> None:
    publishing = Publishing(4)
    for key in KEYS:
        assert publishing.append(b"a" + key, key)
    assert publishing.append(b"without key", None)
    publishing.is_created_again(1)
    for key in KEYS:
        assert publishing.append(b"b" + key, key)
    written = publishing.written()
    assert {partition for partition, _, _ in written} == {0}
    assert sorted(value or b"" for _, _, value in written) == sorted(
        [b"first", b"without key", *(b"a" + key for key in KEYS), *(b"b" + key for key in KEYS)]
    )
    for key in KEYS:
        of_key = [value for _, each, value in written if each == key]
        assert of_key[-2:] == [b"a" + key, b"b" + key], "the order of the key is kept"
    assert publishing.sink.failed == []
    assert len(publishing.sink.acknowledged) == len(written)
    assert publishing.core.queued_bytes == 0


def ids_of(outgoing: Outgoing) -> dict[str, bytes] | None:
    assert isinstance(outgoing.message, ProduceRequest)
    return outgoing.message.topic_ids


@pytest.mark.parametrize("error", [ErrorCode.unknown_topic_id, ErrorCode.inconsistent_topic_id])
def test_a_broker_that_knows_the_topic_by_another_id_gets_no_result_before_new_metadata(
    error: ErrorCode,
) -> None:
    publishing = Publishing(4)
    assert publishing.append(b"chosen", b"k1", partition=3)
    sent = publishing.sent()
    assert ids_of(sent) == {"t": OLD}
    publishing.respond(sent, {queue.partition.partition: error for queue in sent.queues})
    publishing.topic = described(NEW, 2)
    # Metadata are requested after the first pause, not at the next metadata_max_age.
    publishing.now += 0.1
    publishing.respond_to_metadata()
    publishing.now += 1
    again = publishing.sent()
    assert ids_of(again) == {"t": NEW}
    publishing.respond(again)
    assert publishing.sink.acknowledged == [b"first"]
    assert publishing.sink.failed == [
        (b"chosen", "not published to t: there is no partition 3: it has 2")
    ]


@pytest.mark.parametrize(("before", "after"), [(3, 7), (7, 3)])
def test_with_another_number_of_partitions_all_queued_results_are_partitioned_anew(
    before: int, after: int
) -> None:
    publishing = Publishing(before)
    for key in KEYS:
        assert publishing.append(b"a" + key, key)
    assert publishing.append(b"chosen", b"k9", partition=1)
    publishing.is_created_again(after)
    for key in KEYS:
        assert publishing.append(b"b" + key, key)
    written = publishing.written()
    assert sorted(value or b"" for _, _, value in written) == sorted(
        [b"first", b"chosen", *(b"a" + key for key in KEYS), *(b"b" + key for key in KEYS)]
    )
    created_again = topic_of(after)
    for partition, of_record, value in written:
        assert partition == (1 if value == b"chosen" else created_again.partition_of(of_record))
    for key in KEYS:
        of_key = [value for _, each, value in written if each == key and value != b"chosen"]
        assert of_key[-2:] == [b"a" + key, b"b" + key], "the order of the key is kept"
    assert publishing.sink.failed == []
    assert len(publishing.sink.acknowledged) == len(written)
    assert publishing.core.queued_bytes == 0


def test_a_batch_that_may_be_written_is_sent_again_to_its_partition_before_others_move() -> None:
    publishing = Publishing(3)
    values = {b"v%d" % n: b"k%d" % n for n in range(10)}
    sent = publishing.sent()
    (number,) = (queue.partition.partition for queue in sent.queues)
    for value, key in values.items():
        assert publishing.append(value, key, None)
    publishing.topic = described(NEW, 7)
    publishing.core.response_received(0, sent, Failed(0, FailureKind.TIMEOUT, "no response"))
    publishing.now = 1
    publishing.respond_to_metadata()
    publishing.now = 2
    written = publishing.written()
    partitions = {value: partition for partition, _, value in written}
    assert partitions[b"first"] == number
    created_again = topic_of(7)
    assert {value: partitions[value] for value in values} == {
        value: created_again.partition_of(key) for value, key in values.items()
    }
    assert publishing.sink.failed == []


def test_results_are_written_by_name_to_a_topic_without_id() -> None:
    assert ids_of(Publishing(1, bytes(16)).sent()) is None


def test_a_result_with_a_chosen_partition_fails_when_that_is_gone() -> None:
    publishing = Publishing(4)
    assert publishing.append(b"chosen", b"k1", partition=3)
    assert publishing.append(b"kept", b"k1", partition=0)
    publishing.is_created_again(2)
    assert b"kept" in {value for _, _, value in publishing.written()}
    assert publishing.sink.failed == [
        (b"chosen", "not published to t: there is no partition 3: it has 2")
    ]
    assert publishing.core.queued_bytes == 0


def test_encoded_batches_have_chosen_partitions() -> None:
    publishing = Publishing(2)
    records = one_encoded(b"v")
    assert publishing.core.append_batch(
        publishing.now, TopicPartition("t", 1), records, publishing.sink, [b"v"]
    )
    publishing.is_created_again(1)
    assert [value for _, _, value in publishing.written()] == [b"first"]
    assert [token for token, _ in publishing.sink.failed] == [b"v"]


def test_partitions_of_the_same_topic_never_become_fewer() -> None:
    """A broker that lags behind describes the topic before partitions were added."""
    publishing = Publishing(4)
    for key in KEYS:
        assert publishing.append(b"a" + key, key)
    before = {key: topic_of(4).partition_of(key) for key in KEYS}
    publishing.is_created_again(1, OLD)
    publishing.topic = described(OLD, 4)
    publishing.now += 10
    publishing.respond_to_metadata()
    publishing.now += 10
    written = {key: number for number, key, value in publishing.written() if value != b"first"}
    assert written == before


@pytest.mark.parametrize("topic_id", [OLD, bytes(16)])
def test_a_topic_without_another_id_is_the_same_one(topic_id: bytes) -> None:
    topic = ResultTopic("t")
    topic.learn(described(OLD, 4))
    queues = [topic.queue(number) for number in range(4)]
    topic.learn(described(topic_id, 1))
    assert not any(topic.is_gone(queue) for queue in queues)


def test_a_partition_that_comes_back_has_another_queue() -> None:
    topic = ResultTopic("t")
    topic.learn(described(OLD, 2))
    first = topic.queue(1)
    topic.learn(described(NEW, 1))
    topic.learn(described(NEW, 2))
    assert topic.is_gone(first)
    assert not topic.is_gone(topic.queue(1))


def one_encoded(value: bytes) -> EncodedRecords:
    """One encoded record with this value."""
    body = b"\x00\x00\x00\x01" + bytes([len(value) * 2]) + value + b"\x00"
    return EncodedRecords(1, 1_700_000_000_000, 1_700_000_000_000, bytes([len(body) * 2]) + body)


def topic_of(partitions: int) -> ResultTopic:
    topic = ResultTopic("t")
    topic.learn(described(OLD, partitions))
    return topic
