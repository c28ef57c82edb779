"""What a producer takes of the metadata of a topic."""

from __future__ import annotations

import tracemalloc

from unit.producing.test_producer_core import E, Setting

from asyncrevoke.client.core.io.effects import Node
from asyncrevoke.client.producing.queueing.partitioner import Partitioner
from asyncrevoke.client.producing.queueing.result_topics import ResultTopic, ResultTopics
from asyncrevoke.client.producing.record_batch import ResultBatch
from asyncrevoke.client.protocol.messages import (
    BrokerMetadata,
    ErrorCode,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)


def described(*numbers: int, leader_id: int = 7) -> TopicMetadata:
    partitions = tuple(
        PartitionMetadata(
            error=ErrorCode.none, partition=number, leader_id=-1 if number == 1 else leader_id
        )
        for number in numbers
    )
    return TopicMetadata(error=ErrorCode.none, name="invoices", partitions=partitions)


def test_a_topic_has_the_partitions_that_its_metadata_names() -> None:
    topic = ResultTopic("invoices")
    topic.learn(described(2, 0, 3))
    assert (list(topic.leaders), list(topic.led), topic.count) == ([7, -1, 7], [0, 2], 3)
    topic.learn(described(2, 0, 1, 3))
    assert (list(topic.leaders), list(topic.led), topic.count) == ([7, -1, 7, 7], [0, 2, 3], 4)
    known = topic.partitions()
    topic.learn(described(0, 2, leader_id=8))
    assert (list(topic.leaders), topic.count) == ([8, -1, -1, -1], 4), "of an older response"
    assert (known.count, list(known.led)) == (4, [0, 2, 3]), "what was returned does not change"


def test_partition_numbers_that_no_topic_can_have_are_ignored() -> None:
    topic = ResultTopic("invoices")
    topic.learn(described(0, 2**31 - 1, -1))
    assert (list(topic.leaders), topic.count) == ([7, -1, -1], 3)


def test_a_partition_costs_four_bytes_until_a_result_is_queued_for_it() -> None:
    count = 200_000
    metadata = described(*range(count))
    topic = ResultTopic("invoices")
    tracemalloc.start()
    try:
        topic.learn(metadata)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * count
    assert topic.queue(count - 1) is topic.queue(count - 1)
    assert len(topic.queues) == 1


def test_results_are_queued_for_the_partitions_that_they_are_for_alone() -> None:
    setting = Setting(partitions=50_000)
    for partition in (7, 49_999, 7):
        assert setting.append(b"%d" % partition, partition)
    setting.start()
    for outgoing in setting.core.requests(0):
        setting.respond(outgoing, *[E.none] * len(outgoing.queues))
    assert sorted(setting.sink.acknowledged, key=str) == [b"49999", b"7", b"7"]
    assert len(setting.core.topics["t"].queues) == 2


def test_records_without_a_key_go_to_the_next_partition_with_a_leader_in_turn() -> None:
    for led, count, expected in (
        ([1, 4, 6], 7, [1, 4, 6, 1]),
        (range(3), 3, [0, 1, 2, 0]),
        ([], 2, [0, 1, 0, 1]),
    ):
        partitioner, chosen = Partitioner(), list[int]()
        for _ in range(4):
            chosen.append(partitioner.without_key(led, count))
            partitioner.batch_closed(chosen[-1], led, count)
        assert chosen == expected, led


def test_a_missing_topic_is_forgotten_when_no_record_has_waited_for_request_timeout() -> None:
    topics = ResultTopics([Node(-1, "a", 1)], metadata_max_age=300.0, request_timeout=10.0)
    missing = TopicMetadata(error=ErrorCode.unknown_topic_or_partition, name="t")
    response = MetadataResponse(
        brokers=(BrokerMetadata(node_id=0, host="a", port=1),), topics=(missing,)
    )
    for now in (0.0, 8.0):
        topics.want(now, "t")
        assert topics.request(now) is not None
        topics.received(now, Node(-1, "a", 1), response, {})
    assert topics.request(17.0) is not None
    topics.received(17.0, Node(-1, "a", 1), response, {})
    assert topics.missing == {"t"}
    assert topics.request(19.0) is None
    assert topics.missing == frozenset()


def test_a_topic_that_was_deleted_is_missing_while_records_wait_for_it() -> None:
    topic = ResultTopic("t")
    topic.learn(described(1, 0))
    topic.learn(TopicMetadata(error=ErrorCode.unknown_topic_or_partition, name="t"))
    assert not topic.is_missing
    topic.queue(0).batches.append(ResultBatch(10.0, 0))
    assert topic.is_missing
