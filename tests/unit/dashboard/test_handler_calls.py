"""The page shows rate, errors, p99 and running calls of each handler."""

from __future__ import annotations

import asyncio

import pytest
from unit.dashboard.table_rows import table_rows

from asyncrevoke import Consumer
from asyncrevoke.testing import TestConsumer
from asyncrevoke.web.dashboard.consumer_watch import ConsumerWatch
from asyncrevoke.web.dashboard.history import HandlerCalls, HandlerFigures, History
from asyncrevoke.web.dashboard.page import parts


def test_p99_is_at_most_five_percent_too_high() -> None:
    calls = HandlerCalls(0.0)
    calls.completed([0.010] * 989 + [0.2] * 11)
    assert calls.figures(60.0, "till", "bill", ()).p99 == pytest.approx(0.2, rel=0.05)
    calls = HandlerCalls(0.0)
    calls.completed([0.010] * 990 + [0.2] * 10)
    assert calls.figures(60.0, "till", "bill", ()).p99 == pytest.approx(0.01, rel=0.05)


def test_figures_are_of_the_last_minute() -> None:
    calls, figures = HandlerCalls(0.0), list[HandlerFigures]()
    for second in range(1, 121):
        calls.completed([0.01] * (100 if second <= 60 else 10))
        calls.failed(ValueError())
        calls.failed(asyncio.CancelledError())
        figures.append(calls.figures(float(second), "till", "bill", ()))
    assert (figures[29].rate, figures[29].errors) == (100, 30)
    assert (figures[-1].rate, figures[-1].errors) == (10, 60)
    later = calls.figures(1000.0, "till", "bill", ())
    assert (later.rate, later.errors, later.p99) == (0, 0, None)


async def test_each_handler_has_its_figures_on_the_page() -> None:
    history = History("billing", clock=lambda: asyncio.get_running_loop().time())
    consumer = Consumer(group_id="billing", client_id="till")
    consumer.observe(ConsumerWatch(history))

    @consumer.handler("orders", on_error="skip")
    async def bill(order: int) -> None:
        await asyncio.sleep(0.5)
        if order < 0:
            raise ValueError(order)

    @consumer.handler("payments")
    async def settle(payment: int) -> None:
        await asyncio.sleep(100)

    async with TestConsumer(consumer, partitions=1) as t:
        for order in (1, 2, -1):
            await t.publish("orders", order)
        await t.publish("payments", 1)
        await t.advance(5)
        heading, first, second = table_rows(parts(history, 0)["handlers"])
        assert heading == [
            "handler", "calls per second", "errors", "p99", "in flight", "longest", "member",
        ]  # fmt: skip
        assert first[0].endswith(".bill")
        assert (first[2], first[4:]) == ("1", ["0", "", "till"])
        assert first[3].endswith("s"), "a time"
        assert second[0].endswith(".settle")
        assert (second[2:5], second[6]) == (["0", "", "1"], "till")
        assert parts(history, 60)["handlers"].strip() == "", "known for now only"
        await t.advance(200)
    assert history.handlers == {}
