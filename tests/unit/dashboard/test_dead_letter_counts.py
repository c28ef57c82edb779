"""The dashboard counts dead letters by topic, origin and error."""

from __future__ import annotations

from httpx import ASGITransport, AsyncClient, Response
from starlette.applications import Starlette
from unit.dashboard.table_rows import table_rows

from asyncrevoke import Consumer, Record, Retry, RetryTopic
from asyncrevoke.integrations.starlette import dashboard_routes
from asyncrevoke.testing import TestConsumer
from asyncrevoke.web.dashboard.consumer_watch import ConsumerWatch
from asyncrevoke.web.dashboard.history import History
from asyncrevoke.web.dashboard.page import parts


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
        await t.advance(2)
        assert history.samples("asyncrevoke", 0, history.clock())[-1].dead_letters == 0
        await t.advance(20)
        assert history.dead_letters == {("orders.dlq", "orders", "HostileError"): 1}
        shown = parts(history, 0)["dead_letters"]
        assert ["orders.dlq", "orders", "HostileError", "1"] in table_rows(shown)


async def test_values_are_kept_only_if_the_application_shows_them() -> None:
    pages: dict[bool, str] = {}
    letters: dict[bool, Response] = {}
    for values in (False, True):
        consumer = Consumer(group_id="billing")
        dashboard = Starlette(routes=dashboard_routes(consumer, dead_letter_values=values))

        @consumer.handler("orders", dead_letter="orders.dlq")
        async def bill(value: str) -> None:
            raise HostileError(f"cannot bill {value}")

        async with (
            TestConsumer(consumer, partitions=1) as t,
            AsyncClient(transport=ASGITransport(dashboard), base_url="http://page") as client,
        ):
            await t.publish("orders", "<b>secret\x1b", key=b"customer-7")
            pages[values] = (await client.get("/dashboard/view")).text
            assert "secret" not in pages[values]
            letters[values] = await client.get("/dashboard/dead-letter?number=1")
            for wrong in ("0", "2", "", "x", "-1", "9" * 5000):
                page = await client.get(f"/dashboard/dead-letter?number={wrong}")
                assert page.status_code == 404, wrong
            elsewhere = {"Sec-Fetch-Site": "cross-site"}
            refused = await client.get("/dashboard/dead-letter?number=1", headers=elsewhere)
            assert refused.status_code == 403
    assert "dead-letter?number=1" in pages[True]
    assert "dead-letter?number=" not in pages[False]
    assert letters[False].status_code == 404
    assert table_rows(letters[True].json()["dead_letter"]) == [
        ["error", "cannot bill &lt;b&gt;secret\\x1b"],
        ["key", "customer-7"],
        ["value", "&lt;b&gt;secret\\x1b"],
    ]


def test_kept_dead_letters_are_bounded() -> None:
    history = History("billing")
    headers = tuple((f"header-{number}", b"h" * 100_000) for number in range(1000))
    record = Record("orders", 0, 5, 0, 0, b"k" * 100_000, b"\xff" * 100_000, headers)
    for _ in range(1000):
        history.keep_dead_letter("till", "orders.dlq", record, ValueError("e" * 100_000))
    assert len(history.letters) == 50
    contents = history.letters[-1].contents
    assert len(contents) == 53
    assert max(len(text) for _, text in contents) < 10_000
    assert contents[-1][1].endswith("… (100,000 bytes)")


def test_counts_are_bounded_and_escaped() -> None:
    history = History("billing")
    for number in range(1000):
        history.count_dead_letter("dlq", "orders", f"<b>{number}\x1b")
    assert len(history.dead_letters) <= 201
    assert history.dead_letters["others", "", ""] == 800
    shown = parts(history, 0)["dead_letters"]
    assert "<b>" not in shown
    assert "\x1b" not in shown
