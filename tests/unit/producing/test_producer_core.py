"""What a producer sends, and what follows from each response."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from kio.schema.produce.v8.response import ProduceResponse

from asyncrevoke.client.core.io.effects import Failed, FailureKind, Node, Replied
from asyncrevoke.client.errors import PublishError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.producing.producer_core import ProducerCore
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

TP, E = TopicPartition("t", 0), ErrorCode


class Sink:
    def __init__(self) -> None:
        self.acknowledged: list[object] = []
        self.failed: list[tuple[object, str]] = []
        self.offsets: list[tuple[TopicPartition, int]] = []

    def results_acknowledged(
        self, tokens: Sequence[object], partition: TopicPartition, offset: int, /
    ) -> None:
        self.acknowledged += tokens
        self.offsets += [(partition, offset + number) for number in range(len(tokens))]

    def results_failed(self, tokens: Sequence[object], error: Exception, /) -> None:
        self.failed += ((token, str(error)) for token in tokens)


class Setting:
    """A core that knows a topic with partitions led by two brokers, and has a producer id."""

    def __init__(
        self,
        partitions: int = 2,
        memory: int = 1 << 20,
        compression: int = 0,
        *,
        idempotent: bool = True,
    ) -> None:
        self.core = ProducerCore(
            [Node(-1, "boot", 1)],
            request_timeout=10,
            delivery_timeout=30,
            metadata_max_age=300,
            compression=compression,
            memory=memory,
            idempotent=idempotent,
        )
        self.sink = Sink()
        self.partitions = partitions
        self.now = 0.0
        assert not self.append(b"early")
        (asks,) = self.core.requests(0)
        assert isinstance(asks.message, MetadataRequest)
        self.reply(asks, self.metadata())

    def metadata(self, error: ErrorCode = E.none) -> MetadataResponse:
        return MetadataResponse(
            brokers=(
                BrokerMetadata(node_id=0, host="a", port=1),
                BrokerMetadata(node_id=1, host="b", port=1),
            ),
            topics=(
                TopicMetadata(
                    error=error,
                    name="t",
                    partitions=tuple(
                        PartitionMetadata(error=E.none, partition=n, leader_id=n % 2)
                        for n in range(0 if error is not E.none else self.partitions)
                    ),
                ),
            ),
        )

    def append(self, value: bytes, partition: int | None = 0, key: bytes | None = None) -> bool:
        return self.core.append(
            self.now, "t", partition, key, value, [], 1_700_000_000_000, self.sink, value
        )

    def reply(self, outgoing: Outgoing, message: object) -> None:
        self.core.response_received(self.now, outgoing, Replied(0, message))  # type: ignore[arg-type]

    def start(self) -> None:
        """Respond to the request for a producer id."""
        (asks,) = self.core.requests(self.now)
        assert isinstance(asks.message, InitProducerIdRequest)
        self.reply(asks, EntityResponse(entity=producer_id_response(77)))

    def sent(self) -> Outgoing:
        """The only Produce that is sent now."""
        (outgoing,) = [
            request
            for request in self.core.requests(self.now)
            if not isinstance(request.message, MetadataRequest)
        ]
        assert isinstance(outgoing.message, ProduceRequest)
        return outgoing

    def respond(self, outgoing: Outgoing, *errors: ErrorCode) -> None:
        partitions = [queue.partition for queue in outgoing.queues]
        responses = dict(zip(partitions, errors, strict=True))
        offsets = {partition: 1000 * partition.partition for partition in partitions}
        self.reply(outgoing, EntityResponse(entity=produce_response(responses, offsets)))


def batches(outgoing: Outgoing) -> dict[TopicPartition, Any]:
    assert isinstance(outgoing.message, ProduceRequest)
    found: dict[TopicPartition, Any] = {
        tp: DefaultRecordBatch(data) for tp, data in produced_batches(outgoing.message)
    }
    assert all(batch.validate_crc() for batch in found.values())
    return found


def sequence(outgoing: Outgoing) -> tuple[int, int, int]:
    batch = batches(outgoing)[TP]
    return batch.producer_id, batch.producer_epoch, batch.base_sequence


def values(outgoing: Outgoing) -> list[bytes | None]:
    return [record.value for record in batches(outgoing)[TP]]


@pytest.fixture
def setting() -> Setting:
    setting = Setting()
    assert setting.append(b"0")
    setting.start()
    return setting


def test_nothing_is_sent_before_something_is_published() -> None:
    core = ProducerCore(
        [Node(-1, "boot", 1)],
        request_timeout=10,
        delivery_timeout=30,
        metadata_max_age=300,
        compression=0,
        memory=1,
    )
    assert core.requests(0) == []
    assert core.next_at(0) == float("inf")


def test_what_comes_while_a_request_is_in_flight_is_the_next_batch(setting: Setting) -> None:
    first = setting.sent()
    assert first.node == Node(0, "a", 1)
    assert values(first) == [b"0"]
    assert sequence(first) == (77, 0, 0)
    for value in (b"1", b"2", b"3"):
        assert setting.append(value)
    assert setting.core.requests(0) == []
    setting.respond(first, E.none)
    assert setting.sink.acknowledged == [b"0"]
    second = setting.sent()
    assert values(second) == [b"1", b"2", b"3"]
    assert sequence(second) == (77, 0, 1)
    setting.respond(second, E.none)
    assert setting.append(b"4")
    assert sequence(setting.sent()) == (77, 0, 4)
    assert setting.sink.failed == []


def test_each_broker_has_one_request_at_a_time(setting: Setting) -> None:
    assert setting.append(b"other", partition=1)
    a, b = setting.core.requests(0)
    assert {a.node.node_id, b.node.node_id} == {0, 1}
    assert setting.append(b"more", partition=1)
    setting.respond(a, E.none)
    assert setting.core.requests(0) == []
    setting.respond(b, E.none)
    assert len(setting.core.requests(0)) == 1


@pytest.mark.parametrize("kind", [FailureKind.DISCONNECTED, FailureKind.TIMEOUT])
def test_a_batch_without_a_response_is_sent_again_with_the_same_sequence(
    setting: Setting, kind: FailureKind
) -> None:
    first = setting.sent()
    assert setting.append(b"1")
    setting.core.response_received(0, first, Failed(0, kind, "gone"))
    assert setting.core.next_at(setting.now) > 0
    setting.now = 1
    again = setting.sent()
    assert (values(again), sequence(again)) == ([b"0"], (77, 0, 0))
    setting.respond(again, E.duplicate_sequence_number)
    assert setting.sink.acknowledged == [b"0"]
    assert sequence(setting.sent()) == (77, 0, 1)


@pytest.mark.parametrize(
    "error",
    [E.not_leader_or_follower, E.not_enough_replicas, E.request_timed_out, E.kafka_storage_error],
)
def test_a_retriable_error_sends_the_same_batch_again(setting: Setting, error: ErrorCode) -> None:
    setting.respond(setting.sent(), error)
    assert setting.sink.failed == []
    setting.now = 1
    again = setting.sent()
    assert (values(again), sequence(again)) == ([b"0"], (77, 0, 0))


def test_old_metadata_are_learned_again(setting: Setting) -> None:
    setting.respond(setting.sent(), E.not_leader_or_follower)
    setting.now = 1
    assert any(isinstance(request.message, MetadataRequest) for request in setting.core.requests(1))


@pytest.mark.parametrize(
    "error",
    [E.out_of_order_sequence_number, E.unknown_producer_id, E.invalid_producer_epoch],
)
def test_an_unknown_sequence_begins_a_new_epoch_of_this_partition(
    setting: Setting, error: ErrorCode
) -> None:
    setting.respond(setting.sent(), error)
    setting.now = 1
    again = setting.sent()
    assert (values(again), sequence(again)) == ([b"0"], (77, 1, 0))
    setting.respond(again, E.none)
    assert setting.append(b"other", partition=1)
    (other,) = setting.core.requests(1)
    batch = batches(other)[TopicPartition("t", 1)]
    assert (batch.producer_epoch, batch.base_sequence) == (0, 0)


def test_a_rejected_batch_fails_and_uses_up_no_sequence(setting: Setting) -> None:
    first = setting.sent()
    assert setting.append(b"1")
    setting.respond(first, E.topic_authorization_failed)
    ((token, why),) = setting.sink.failed
    assert token == b"0"
    assert "grant WRITE" in why
    assert sequence(setting.sent()) == (77, 0, 0)


def test_a_batch_in_doubt_that_is_given_up_begins_a_new_epoch(setting: Setting) -> None:
    first = setting.sent()
    setting.core.response_received(0, first, Failed(0, FailureKind.DISCONNECTED, "gone"))
    setting.now = 29
    assert setting.append(b"1")
    setting.now = 31
    setting.core.expire(31)
    ((token, why),) = setting.sink.failed
    assert token == b"0"
    assert "within 30 s: gone" in why
    assert sequence(setting.sent()) == (77, 1, 0)


def test_a_batch_that_is_too_large_is_split_until_one_record_is_rejected() -> None:
    setting = Setting()
    for value in (b"0", b"1", b"large", b"3", b"4"):
        assert setting.append(value)
    setting.start()
    sequences: list[tuple[int, int, int]] = []
    while setting.core.queued:
        outgoing = setting.sent()
        sequences.append(sequence(outgoing))
        setting.respond(outgoing, E.message_too_large if b"large" in values(outgoing) else E.none)
    assert setting.sink.acknowledged == [b"0", b"1", b"3", b"4"]
    ((token, why),) = setting.sink.failed
    assert token == b"large"
    assert "max.message.bytes" in why
    # Numbers are used up by what is written only.
    assert sequences == [(77, 0, n) for n in (0, 0, 2, 2, 2, 2)]
    assert setting.core.queued_bytes == 0


def test_sinks_learn_where_their_records_were_written() -> None:
    setting = Setting()
    other = Sink()
    for partition in (0, 1):
        for sink in (setting.sink, setting.sink, other, setting.sink):
            assert setting.core.append(0, "t", partition, None, b"v", [], 0, sink, None)
    setting.start()
    for outgoing in setting.core.requests(0):
        if isinstance(outgoing.message, ProduceRequest):
            setting.respond(outgoing, E.none)
    tp1 = TopicPartition("t", 1)
    assert setting.sink.offsets == [
        (TP, 0),
        (TP, 1),
        (TP, 3),
        (tp1, 1000),
        (tp1, 1001),
        (tp1, 1003),
    ]
    assert other.offsets == [(TP, 2), (tp1, 1002)]


def test_a_full_memory_takes_nothing_until_something_is_acknowledged() -> None:
    setting = Setting(memory=10)
    assert setting.append(b"x" * 10)
    assert not setting.append(b"y")
    setting.start()
    setting.respond(setting.sent(), E.none)
    assert setting.append(b"y")


def test_a_partition_that_does_not_exist_is_an_error() -> None:
    setting = Setting(partitions=2)
    with pytest.raises(PublishError, match="there is no partition 2: it has 2"):
        setting.append(b"x", partition=2)


def test_a_missing_topic_is_asked_for_until_the_time_is_over() -> None:
    setting = Setting()
    setting.core.topics.want(0, "t2")
    (asks,) = setting.core.requests(0)
    missing = TopicMetadata(error=E.unknown_topic_or_partition, name="t2")
    response = setting.metadata()
    setting.reply(
        asks, MetadataResponse(brokers=response.brokers, topics=(*response.topics, missing))
    )
    assert setting.core.why_not("t2", in_time=True) is None
    assert 0 < setting.core.next_at(setting.now) < 1
    error = setting.core.why_not("t2", in_time=False)
    assert error is not None
    assert "asyncrevoke topics create t2 --bootstrap-servers " in str(error)


def test_a_topic_that_may_not_be_seen_is_rejected_at_once() -> None:
    setting = Setting()
    setting.core.topics.want(0, "t2")
    (asks,) = setting.core.requests(0)
    rejected = TopicMetadata(error=E.topic_authorization_failed, name="t2")
    response = setting.metadata()
    setting.reply(
        asks, MetadataResponse(brokers=response.brokers, topics=(*response.topics, rejected))
    )
    error = setting.core.why_not("t2", in_time=True)
    assert error is not None
    assert "grant WRITE" in str(error)


def test_all_fail_when_the_producer_ends(setting: Setting) -> None:
    setting.sent()
    assert setting.append(b"1")
    setting.core.fail_all(RuntimeError("closed"))
    assert setting.sink.failed == [(b"0", "closed"), (b"1", "closed")]
    assert setting.core.queued == 0


def test_nothing_is_due_while_a_retry_waits_for_its_broker() -> None:
    setting = Setting(partitions=4)
    assert setting.append(b"0")
    setting.start()
    setting.respond(setting.sent(), E.not_enough_replicas)
    assert setting.append(b"other", partition=2)
    busy = setting.sent()
    assert [queue.partition.partition for queue in busy.queues] == [2]
    setting.now = 5  # the broker has not responded, and the wait of the retry is over
    assert setting.core.requests(5) == []
    assert setting.core.next_at(5) > 5


def test_bytes_of_split_batches_are_counted_exactly() -> None:
    setting = Setting()
    for number in range(300):
        assert setting.append(b"large" if number == 299 else b"%d" % number)
    setting.start()
    while setting.core.queued:
        outgoing = setting.sent()
        setting.respond(outgoing, E.message_too_large if b"large" in values(outgoing) else E.none)
    assert setting.core.queued_bytes == 0
    assert len(setting.sink.acknowledged) == 299


@pytest.mark.parametrize(
    ("compression", "name"), [(1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd")]
)
def test_batches_are_compressed_and_split_all_the_same(compression: int, name: str) -> None:
    setting = Setting(compression=compression)
    for number in range(100):
        assert setting.append(b"x" * 50 + b"%d" % number)
    setting.start()
    outgoing = setting.sent()
    batch = batches(outgoing)[TP]
    assert batch.compression_type == compression, name
    assert len(values(outgoing)) == 100
    setting.respond(outgoing, E.message_too_large)
    half = setting.sent()
    assert batches(half)[TP].compression_type == compression
    assert len(values(half)) == 50


def test_nothing_is_due_when_the_only_topic_was_given_up() -> None:
    core = ProducerCore(
        [Node(-1, "boot", 1)],
        request_timeout=10,
        delivery_timeout=30,
        metadata_max_age=300,
        compression=0,
        memory=1,
    )
    core.topics.want(0.0, "gone")
    (asks,) = core.requests(0.0)
    unknown = TopicMetadata(error=E.unknown_topic_or_partition, name="gone", partitions=())
    brokers = (BrokerMetadata(node_id=0, host="a", port=1),)
    core.response_received(
        0.0, asks, Replied(0, MetadataResponse(brokers=brokers, topics=(unknown,)))
    )
    assert isinstance(core.why_not("gone", in_time=False), PublishError)
    assert core.requests(60.0) == []
    assert core.next_at(60.0) == float("inf")


def test_a_partition_with_two_results_in_a_response_has_none() -> None:
    setting = Setting()
    assert setting.append(b"a")
    setting.start()
    sent = setting.sent()
    (topic,) = produce_response({TP: E.not_enough_replicas}).responses
    (other,) = produce_response({TP: E.none}).responses
    setting.reply(sent, EntityResponse(entity=ProduceResponse(responses=(topic, other))))
    assert (setting.sink.acknowledged, setting.sink.failed) == ([], [])
    assert setting.core.queued == 1


@pytest.mark.parametrize("producer_id", [-1, -(2**63)])
def test_a_producer_id_that_is_none_is_asked_for_again(producer_id: int) -> None:
    setting = Setting()
    assert setting.append(b"a")
    (asks,) = setting.core.requests(setting.now)
    setting.reply(asks, EntityResponse(entity=producer_id_response(producer_id)))
    assert setting.core.requests(setting.now) == []
    setting.now += 1
    (again,) = setting.core.requests(setting.now)
    assert isinstance(again.message, InitProducerIdRequest)


def test_metadata_that_cannot_be_true_are_asked_for_again() -> None:
    setting = Setting()
    setting.core.topics.want(setting.now, "other")
    broker = BrokerMetadata(node_id=-5, host="", port=0)
    for _ in range(4):
        (asks,) = setting.core.requests(setting.now)
        assert isinstance(asks.message, MetadataRequest)
        assert asks.node.node_id != -5
        setting.reply(asks, MetadataResponse(brokers=(broker,), topics=()))
        setting.now += 1


def test_brokers_that_ask_for_a_bootstrap_are_forgotten() -> None:
    setting = Setting()
    setting.core.topics.want(setting.now, "other")
    asked: list[int] = []
    required = MetadataResponse(error=E.rebootstrap_required, brokers=(), topics=())
    for _ in range(4):
        (asks,) = setting.core.requests(setting.now)
        asked.append(asks.node.node_id)
        setting.reply(asks, required)
        setting.now += 1
    assert max(asked[1:]) < 0


def test_a_response_that_comes_after_all_has_failed_changes_nothing() -> None:
    setting = Setting()
    assert setting.append(b"a")
    assert setting.append(b"b", partition=1)
    setting.start()
    sent = [request for request in setting.core.requests(setting.now) if request.queues]
    setting.core.fail_all(PublishError("t", "closed"))
    setting.reply(sent[0], EntityResponse(entity=produce_response({TP: E.none})))
    setting.core.response_received(setting.now, sent[1], Failed(0, FailureKind.DISCONNECTED, ""))
    assert (len(setting.sink.failed), setting.sink.acknowledged) == (2, [])


@pytest.mark.parametrize("topic", ["", ".", "x" * 40_000, "\ud800", "a b"])
def test_a_result_for_a_name_that_no_topic_can_have_fails_alone(topic: str) -> None:
    setting = Setting()
    with pytest.raises(PublishError):
        setting.core.append(0.0, topic, None, None, b"", [], 0, setting.sink, 1)
    assert setting.core.requests(0.0) == []
