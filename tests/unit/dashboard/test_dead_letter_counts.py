"""The dashboard counts dead letters by topic, origin and error."""

from __future__ import annotations

from asyncrevoke import Consumer, Retry, RetryTopic
from asyncrevoke.dashboard.consumer_watch import ConsumerWatch
from asyncrevoke.dashboard.history import History
from asyncrevoke.dashboard.page import parts
from asyncrevoke.testing import TestConsumer


class HostileError(Exception):
    pass


async def test_dead_letters_are_counted_and_records_of_retry_topics_are_not() -> None:
    history = History("billing")
    consumer = Consumer(group_id="billing")
    consumer.observe(ConsumerWatch(history))

    @consumer.handler(
        "orders",
        retry=Retry(attempts=1),
        retry_topic=RetryTopic("orders.retry", delay=10, attempts=1),
        dead_letter="orders.dlq",
    )
    async def bill(value: int) -> None:
        raise HostileError(value)

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", 1)
        assert not history.dead_letters, "it waits in the retry topic"
        await t.advance(20)
        assert history.dead_letters == {("orders.dlq", "orders", "HostileError"): 1}
        shown = parts(history, 0)["dead_letters"]
        assert "<td>orders</td><td>HostileError</td><td>1</td>" in shown


def test_counts_are_bounded_and_escaped() -> None:
    history = History("billing")
    for number in range(1000):
        history.count_dead_letter("dlq", "orders", f"<b>{number}\x1b")
    assert len(history.dead_letters) <= 201
    assert history.dead_letters["others", "", ""] == 800
    shown = parts(history, 0)["dead_letters"]
    assert "<b>" not in shown
    assert "\x1b" not in shown
