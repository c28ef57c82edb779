"""What a producer takes of the metadata of a topic."""

from __future__ import annotations

from asyncrevoke.producing.queueing.result_topic import ResultTopic
from asyncrevoke.protocol.messages import ErrorCode, PartitionMetadata, TopicMetadata


def described(*numbers: int) -> TopicMetadata:
    partitions = tuple(
        PartitionMetadata(error=ErrorCode.none, partition=number, leader_id=7) for number in numbers
    )
    return TopicMetadata(error=ErrorCode.none, name="invoices", partitions=partitions)


def test_a_topic_has_a_queue_for_each_partition_that_it_names() -> None:
    topic = ResultTopic("invoices")
    topic.learn(described(2, 0, 1))
    assert (topic.leaders, topic.led, len(topic.queues)) == ([7, 7, 7], [0, 1, 2], 3)


def test_partition_numbers_that_no_topic_can_have_cost_no_queues() -> None:
    topic = ResultTopic("invoices")
    topic.learn(described(0, 2**31 - 1, -1))
    assert (topic.leaders, len(topic.queues)) == ([7, -1, -1], 3)
