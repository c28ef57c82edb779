"""What many topics and partitions cost, whether a cluster has them or a broker makes them up."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from typing_extensions import override
from unit.core.scripted_environment import ScriptedRequests, metadata, topic, tp

from asyncrevoke.client.core.metadata.topic import KnownTopic, TopicIds, read_topics
from asyncrevoke.client.protocol.messages import ErrorCode, MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from asyncrevoke.client.protocol.messages import TopicMetadata


def lines_of(call: Callable[[], object]) -> int:
    """How many lines of Python a call executes, comparisons of a comprehension included."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event in ("line", "call")
        frame.f_trace_lines = True
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def learnt(known: KnownTopic, now: float, response: TopicMetadata) -> tuple[bool, bool]:
    topics = read_topics([response], None, {response.name: known}, with_replicas=False)
    metadata, partitions = topics[response.name]
    assert partitions is not None
    return known.learn(now, metadata, partitions)


def test_taking_in_what_was_read_does_not_grow_with_the_partitions() -> None:
    def cost(size: int) -> int:
        known = KnownTopic(topic("orders", {}))
        responses = [
            topic("orders", dict.fromkeys(range(size), 1)),
            topic("orders", dict.fromkeys(range(size), 2), epoch=1),
            topic("orders", dict.fromkeys(range(size // 2, 2 * size), 2), epoch=1),
            topic("orders", dict.fromkeys(range(size // 2, 2 * size), 2), epoch=1),
        ]
        lines = 0
        for now, response in enumerate(responses):
            found = read_topics([response], None, {"orders": known}, with_replicas=True)
            told, partitions = found["orders"]
            assert partitions is not None
            lines += lines_of(partial(known.learn, now * 2.0, told, partitions))
        assert known.numbers == tuple(range(size // 2, 2 * size))
        return lines

    assert cost(1000) == cost(10)


def test_reading_a_response_takes_steps_in_proportion_to_its_partitions() -> None:
    def cost(size: int) -> int:
        known = KnownTopic(topic("orders", {}))
        learnt(known, 0.0, topic("orders", dict.fromkeys(range(size), 1)))
        others = topic("orders", dict.fromkeys(range(size, 2 * size), 1))
        return lines_of(lambda: read_topics([others], None, {"orders": known}, with_replicas=False))

    small, large = cost(200), cost(800)
    assert large < small * 4 * 1.2


def test_the_latest_known_leader_of_a_partition_is_kept() -> None:
    known = KnownTopic(topic("orders", {}))
    learnt(known, 0.0, topic("orders", {0: 1, 1: 1}, epoch=5))
    learnt(known, 1.0, topic("orders", {0: 2, 1: 2}, epoch=4))
    assert {number: leader.leader_id for number, leader in known.leaders.items()} == {0: 1, 1: 1}
    # A partition that the response does not name is kept with its leader until a second one.
    assert learnt(known, 2.0, topic("orders", {0: 2}, epoch=6)) == (False, False)
    assert list(known.numbers) == [0, 1]
    assert known.leader_ids == {1, 2}
    assert learnt(known, 4.0, topic("orders", {0: 2}, epoch=6)) == (True, True)
    assert list(known.numbers) == [0]
    assert known.leader_ids == {2}


def test_learning_makes_no_object_for_a_partition() -> None:
    known = KnownTopic(topic("orders", {}))
    for now, epoch in enumerate((5, 6, 6)):
        response = topic("orders", dict.fromkeys(range(3), 1), epoch=epoch)
        learnt(known, float(now), response)
        assert all(
            known.leaders[partition.partition] is partition for partition in response.partitions
        )


def test_of_a_partition_that_a_response_names_twice_the_latest_leader_is_kept() -> None:
    known = KnownTopic(topic("orders", {}))
    newer, older = topic("orders", {0: 1}, epoch=5), topic("orders", {0: 2, -1: 2}, epoch=4)
    response = replace(newer, partitions=newer.partitions + older.partitions)
    assert learnt(known, 0.0, response) == (True, True)
    assert known.leaders == {0: newer.partitions[0]}
    assert known.leader_ids == {1}


class CountedNumber(int):
    """A number of a partition that counts with how many others it is compared."""

    compared = 0

    @override
    def __eq__(self, other: object) -> bool:
        CountedNumber.compared += 1
        return int(self) == other

    @override
    def __hash__(self) -> int:
        return hash(int(self))


def test_a_partition_is_looked_up_without_comparing_it_with_all_of_its_topic() -> None:
    world = ScriptedRequests()
    world.know(topic("orders", dict.fromkeys(range(1000), 1)))
    ids = TopicIds(world.cluster)
    ids.learn()
    CountedNumber.compared = 0
    assert ids.exists(tp(CountedNumber(900)))
    assert CountedNumber.compared < 20


def test_unrequested_topics_in_metadata_are_ignored() -> None:
    world = ScriptedRequests()
    world.know(topic("orders", {0: 1}))
    world.cluster.refresh(world.now, "again")
    world.advance(1.0)
    send, _ = world.only(MetadataRequest)
    strangers = (f"stranger-{number}" for number in range(50))
    world.reply(
        send,
        metadata(
            topic("orders", {0: 1}),
            topic("rejected", {}, error=ErrorCode.topic_authorization_failed),
            topic("invalid", {}, error=ErrorCode.invalid_topic_exception),
            *(topic(name, {0: 1}) for name in strangers),
        ),
    )
    assert world.cluster.topics() == {"orders"}
    assert world.cluster.leader(tp(0, "stranger-1")) is None
    assert world.errors == []
