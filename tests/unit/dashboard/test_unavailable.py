"""The page names missing topics, and partitions that are paused, with the reason."""

from __future__ import annotations

import asyncio

from unit.dashboard.table_rows import table_rows

from asyncrevoke import Consumer, Health, Outage, Pause, TopicPartition
from asyncrevoke.client.runtime.hooks.observers import ConsumerSnapshot, Observed
from asyncrevoke.testing import TestConsumer
from asyncrevoke.web.dashboard.consumer_watch import ConsumerWatch
from asyncrevoke.web.dashboard.history import History
from asyncrevoke.web.dashboard.page import parts


async def test_a_paused_partition_is_named_without_the_message_of_the_error() -> None:
    history = History("billing", clock=lambda: asyncio.get_running_loop().time())
    consumer = Consumer(group_id="billing", client_id="till")
    consumer.observe(ConsumerWatch(history))

    @consumer.handler("orders", on_error=Pause(probe_after=60))
    async def bill(order: str) -> None:
        raise ConnectionError(order)

    async with TestConsumer(consumer, partitions=1) as t:
        assert parts(history, 0)["unavailable"].strip() == ""
        await t.publish("orders", "secret")
        await t.advance(2)
        shown = parts(history, 0)["unavailable"]
    (_, (name, reason, member)) = table_rows(shown)
    assert (name, member) == ("orders-0", "till")
    assert reason.startswith("paused until ")
    assert reason.endswith(".bill succeeds with offset 0: ConnectionError, 1 attempt")
    assert "secret" not in shown


class Observing(Observed):
    """An entered consumer that reports this health."""

    def __init__(self, health: Health) -> None:
        self.group_id, self.client_id, self.share = "billing", "till", None
        self._health = health

    def snapshot(self) -> ConsumerSnapshot:
        return ConsumerSnapshot(0.0, self._health, ())


def test_missing_and_rejected_topics_and_silent_brokers_are_named() -> None:
    history = History("billing")
    watch = ConsumerWatch(history)
    health = Health("stable", None, None, None, 0, 0, 0, frozenset({TopicPartition("orders", 1)}))
    watch.on_open(
        Observing(
            health._replace(
                missing_topics=frozenset({"refunds", "orders.dlq"}),
                rejected_topics=frozenset({"payments"}),
                unreachable_brokers=("kafka-2:9092",),
                throttled_brokers={"kafka-3:9092": 19.6},
                outages=(Outage("registry:8081", "ConnectError: secret", 61.2),),
            )
        )
    )
    watch.on_tick(0)
    assert table_rows(parts(history, 0)["unavailable"]) == [
        ["name", "reason", "member"],
        ["orders.dlq", "the topic does not exist", "till"],
        ["refunds", "the topic does not exist", "till"],
        ["payments", "the brokers reject requests for the topic", "till"],
        ["kafka-2:9092", "the broker does not respond", "till"],
        ["registry:8081", "the registry has not responded for 61 s: ConnectError", "till"],
        ["kafka-3:9092", "a quota throttles this consumer for 20 s more", "till"],
        ["orders-1", "the partition is paused", "till"],
    ]
    watch.on_close()
    assert history.unavailable == {}
