"""The dashboard counts results by topic and handler."""

from __future__ import annotations

from unit.dashboard.table_rows import table_rows

from asyncrevoke import Consumer, HandlerContext
from asyncrevoke.testing import TestConsumer
from asyncrevoke.web.dashboard.consumer_watch import ConsumerWatch
from asyncrevoke.web.dashboard.history import History
from asyncrevoke.web.dashboard.page import parts


async def test_results_are_counted_when_they_are_acknowledged() -> None:
    history = History("billing")
    consumer = Consumer(group_id="billing")
    consumer.observe(ConsumerWatch(history))

    @consumer.handler("orders", publish_to="invoices")
    async def bill(order: bytes, context: HandlerContext) -> bytes:
        await context.publish("receipts", order)
        return order

    async with TestConsumer(consumer, partitions=1) as t:
        assert parts(history, 0)["results"].strip() == "", "nothing is shown without results"
        await t.publish("orders", b"1")
        await t.publish("orders", b"2")
        handler = f"{__name__}.test_results_are_counted_when_they_are_acknowledged.bill"
        assert history.results == {("invoices", handler): 2, ("receipts", handler): 2}
        shown = parts(history, 0)["results"]
        assert ["invoices", handler, "2"] in table_rows(shown)


def test_counts_are_bounded_and_escaped() -> None:
    history = History("billing")
    for number in range(1000):
        history.count_results("invoices", f"<b>{number}\x1b", 2)
    assert len(history.results) <= 201
    assert history.results["others", ""] == 1600
    shown = parts(history, 0)["results"]
    assert "<b>" not in shown
    assert "\x1b" not in shown
