from __future__ import annotations

import json
from collections import UserDict
from typing import TYPE_CHECKING

import pytest

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.spark.errors import DataLossError
from asyncrevoke.spark.reading.log_bounds import LogBounds
from asyncrevoke.spark.reading.topic_selection import TopicSelection
from asyncrevoke.spark.source.stream_offsets import (
    StreamOffsets,
    advance,
    check_no_loss,
    count_between,
    find_loss,
)

if TYPE_CHECKING:
    from collections.abc import ItemsView

FIRST_ID, SECOND_ID = "xtzWWN4bTjitpL3kfd9s5g", "5ZBzWTRuQvWPXJYyJ6p1hA"


def tp(number: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, number)


def log(last: dict[int, int], first: dict[int, int] | None = None) -> LogBounds:
    begins = dict.fromkeys(last, 0) | (first or {})
    return LogBounds(
        {"orders": FIRST_ID},
        {tp(number): at for number, at in begins.items()},
        {tp(number): at for number, at in last.items()},
    )


def offsets(topic_id: str | None = FIRST_ID, **by_number: int) -> StreamOffsets:
    at = {tp(int(name.removeprefix("p"))): offset for name, offset in by_number.items()}
    return StreamOffsets({"orders": topic_id}, at)


def test_without_a_limit_a_batch_takes_all_that_there_is() -> None:
    assert advance({tp(0): 5, tp(1): 0}, log({0: 9, 1: 4}), None) == {tp(0): 9, tp(1): 4}


def test_a_limit_is_shared_by_partitions_in_proportion_to_their_lag() -> None:
    start = {tp(0): 0, tp(1): 0, tp(2): 7}
    assert advance(start, log({0: 1000, 1: 1, 2: 7}), 100) == {tp(0): 99, tp(1): 1, tp(2): 7}


def test_a_new_partition_begins_where_its_log_does() -> None:
    end = advance({tp(0): 5}, log({0: 5, 1: 8}, first={1: 3}), 2)
    assert end == {tp(0): 5, tp(1): 5}


def test_a_batch_by_batch_walk_reaches_the_end() -> None:
    position, last, steps = {tp(0): 0, tp(1): 10}, log({0: 57, 1: 31}), 0
    while position != last.last:
        position = advance(position, last, 10)
        steps += 1
    assert steps < 20


def test_the_offsets_of_a_batch_are_counted_with_those_of_new_partitions() -> None:
    bounds = log({0: 9, 1: 8}, first={1: 3})
    assert count_between({tp(0): 5}, bounds.last, bounds) == 4 + 5


def test_offsets_are_written_with_topic_ids_in_the_order_of_partitions() -> None:
    found = StreamOffsets(
        {"orders": FIRST_ID, "clicks": None}, {tp(10): 7, tp(9): 8, tp(0, "clicks"): 1}
    )
    assert json.dumps(found.to_json()) == (
        '{"clicks": {"topic_id": null, "offsets": {"0": 1}}, '
        f'"orders": {{"topic_id": "{FIRST_ID}", "offsets": {{"9": 8, "10": 7}}}}}}'
    )
    assert StreamOffsets.from_json(found.to_json()) == found


def test_checkpoints_without_topic_ids_are_read() -> None:
    expected = StreamOffsets({"orders": None}, {tp(0): 5})
    assert StreamOffsets.from_json({"0": 5}, "orders") == expected
    assert StreamOffsets.from_json({"orders": {"0": 5}}) == expected
    assert StreamOffsets.from_json({}) == StreamOffsets({}, {})


@pytest.mark.parametrize("given", [{"0": 5}, {"orders": {"0": -1}}, {"orders": {"x": 1}}, [1], "a"])
def test_offsets_of_another_source_are_an_error(given: object) -> None:
    with pytest.raises(ConfigError, match=r"another source wrote it; .* begin with a new one"):
        StreamOffsets.from_json(given)


@pytest.mark.parametrize(
    ("field", "value"), [("leader_epochs", {"0": 3}), ("version", 2), ("topic_id", 5)]
)
def test_a_checkpoint_of_a_later_version_is_an_error(field: str, value: object) -> None:
    given = {"orders": {"topic_id": None, "offsets": {"0": 5}, field: value}}
    with pytest.raises(ConfigError, match=f"'{field}': .* of topic 'orders', .* update asyncrev"):
        StreamOffsets.from_json(given)


@pytest.mark.parametrize(
    ("start", "sentence"),
    [
        (offsets(SECOND_ID, p0=2), r"deleted and created again .*and is xtzW.*offsets \{0: 2\}"),
        (offsets(p0=5), "orders-0 ends at offset 3, and the query is at 5"),
        (offsets(None, p0=5), "orders-0 ends at offset 3"),
        (offsets(p0=3, p1=4), "orders-1 was deleted"),
        (StreamOffsets({"clicks": None}, {}), "topic clicks was deleted"),
    ],
)
def test_what_a_query_has_lost_is_an_error_with_the_ways_out(
    start: StreamOffsets, sentence: str
) -> None:
    loss = find_loss(start, log({0: 3}))
    with pytest.raises(DataLossError, match=f'{sentence}.*new checkpoint.*missing="clip"'):
        check_no_loss(loss)
    assert not loss.apply(start).offsets.keys() - {tp(0)}


def test_nothing_is_lost_while_topic_and_offsets_are_those_of_the_log() -> None:
    for start in (offsets(p0=3), offsets(None, p0=0), StreamOffsets({}, {})):
        loss = find_loss(start, log({0: 3}))
        check_no_loss(loss)
        assert loss.apply(start) == start


def test_the_offsets_of_many_topics_are_looked_through_as_often_as_those_of_one() -> None:
    class Counted(UserDict[TopicPartition, int]):
        times = 0

        def items(self) -> ItemsView[TopicPartition, int]:
            self.times += 1
            return super().items()

    times: list[int] = []
    for count in (1, 50):
        names = [f"orders-{number}" for number in range(count)]
        given = Counted({TopicPartition(name, 0): 3 for name in names})
        ids = dict.fromkeys(names, "an id")
        find_loss(StreamOffsets(ids, given), LogBounds(ids, dict.fromkeys(given, 0), dict(given)))
        times.append(given.times)
    assert times[0] == times[1]


def test_a_broker_without_topic_ids_is_believed() -> None:
    check_no_loss(find_loss(offsets(p0=3), log({0: 3})._replace(topic_ids={"orders": None})))


@pytest.mark.parametrize(
    ("selection", "sentence"),
    [
        (TopicSelection(("orders",)), r"topic clicks, whose checkpoint is at offsets \{0: 7\}"),
        (TopicSelection(pattern="order.*"), "topic clicks, whose checkpoint"),
        (
            TopicSelection(("orders", "clicks"), None, {"orders": (0,), "clicks": (1,)}),
            "clicks-0, whose checkpoint is at offset 7",
        ),
    ],
)
def test_what_the_options_no_longer_select_is_not_said_to_be_deleted(
    selection: TopicSelection, sentence: str
) -> None:
    start = StreamOffsets({"orders": FIRST_ID, "clicks": None}, {tp(0): 3, tp(0, "clicks"): 7})
    bounds = log({0: 3})
    if selection.partitions is not None:
        bounds = bounds._replace(topic_ids={"orders": FIRST_ID, "clicks": None})
    loss = find_loss(start, bounds, selection)
    assert not loss.why
    with pytest.raises(DataLossError, match=f"no longer select.*{sentence}.*select it again"):
        check_no_loss(loss)
    assert loss.apply(start).offsets == {tp(0): 3}


def test_a_selected_topic_that_is_not_there_was_deleted() -> None:
    start = StreamOffsets({"clicks": None}, {tp(0, "clicks"): 7})
    loss = find_loss(start, log({0: 3}), TopicSelection(("orders", "clicks")))
    with pytest.raises(DataLossError, match="topic clicks was deleted"):
        check_no_loss(loss)
