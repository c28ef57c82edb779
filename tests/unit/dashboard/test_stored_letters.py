"""The page lists dead letter topics: which ones, and what it shows and rejects."""

from __future__ import annotations

import asyncio

import pytest
from httpx import ASGITransport, AsyncClient, Response
from starlette.applications import Starlette
from unit.dashboard.table_rows import table_rows

from asyncrevoke import Consumer, ConsumerConfig, Record
from asyncrevoke.dead_letters.dead_letter_filter import DeadLetterFilter
from asyncrevoke.dead_letters.stored_dead_letter import StoredDeadLetter
from asyncrevoke.integrations.starlette import dashboard_routes
from asyncrevoke.web.dashboard.app import Dashboard
from asyncrevoke.web.dashboard.history import History
from asyncrevoke.web.dashboard.page import parts, stored_letters
from asyncrevoke.web.dashboard.stored_letters import StoredLetters, TopicReading

TOPIC = "orders.dlq"
ALL = DeadLetterFilter()


def letter(number: int, error: str = "ValueError", origin: str = "orders") -> StoredDeadLetter:
    record = Record(TOPIC, 0, number, 1_000 * number, 0, None, None)
    return StoredDeadLetter(record, origin, 3, 40 + number, number, error, "", 2, 1)


def reading(*letters: StoredDeadLetter, skipped: int = 0, whole: bool = True) -> TopicReading:
    return TopicReading(TOPIC, 0.0, letters, skipped, 0, whole)


def shown(read: TopicReading, chosen: DeadLetterFilter = ALL, *, values: bool = False) -> str:
    return stored_letters(read, chosen, values=values)["dead_letter"]


async def get(routes: Dashboard, path: str, **headers: str) -> Response:
    transport = ASGITransport(Starlette(routes=routes.routes()))
    async with AsyncClient(transport=transport, base_url="http://page") as client:
        return await client.get(f"/dashboard/{path}", headers=headers)


def test_dead_letters_are_counted_by_origin_and_error_and_the_newest_are_listed() -> None:
    html = shown(reading(letter(3), letter(2, "app.BillError"), letter(1)))
    assert table_rows(html) == [
        ["origin", "error", "count", "first record (UTC)", "last record (UTC)", "dead letters"],
        ["orders-3", "ValueError", "2", "1970-01-01 00:00:00", "1970-01-01 00:00:00", "List"],
        ["orders-3", "app.BillError", "1", "1970-01-01 00:00:00", "1970-01-01 00:00:00", "List"],
        ["record", "error", "failed (UTC)", "attempts", "replays", "dead letter"],
        ["orders-3 at 43", "ValueError", "1970-01-01 00:00:03", "2", "1", "0:3"],
        ["orders-3 at 42", "app.BillError", "1970-01-01 00:00:02", "2", "1", "0:2"],
        ["orders-3 at 41", "ValueError", "1970-01-01 00:00:01", "2", "1", "0:1"],
    ]
    assert "earlier offsets" not in html
    assert "place=" not in html
    assert ">3 dead letters" in html
    assert ">1 dead letter<" in shown(reading(letter(1)))


def test_a_part_of_a_topic_is_named_as_a_part() -> None:
    html = shown(reading(letter(1), skipped=12_000, whole=False))
    assert "12,000 earlier offsets are not read" in html
    assert "reading ended at its limit" in html


def test_only_dead_letters_of_the_chosen_origin_and_error_are_listed() -> None:
    chosen = DeadLetterFilter(origin_topics=frozenset(["b"]), errors=frozenset(["KeyError"]))
    read = reading(letter(1), letter(2, "KeyError"), letter(3, "KeyError", "b"))
    html = shown(read, chosen, values=True)
    assert "b-3 at 43" in html
    assert "orders-3" not in html
    assert "dead-letters?topic=orders.dlq&place=0:3" in html


def test_texts_of_dead_letters_are_escaped_and_their_rows_are_bounded() -> None:
    letters = [letter(number, f"<b>&x={number}\x1b", "orders") for number in range(1, 200)]
    html = shown(reading(*letters))
    assert "<b>" not in html
    assert "\x1b" not in html
    assert "error=%3Cb%3E%26x%3D1%1B" in html
    assert html.count("and 149 more") == 2
    assert "9999999999999 ms" in shown(reading(letter(9_999_999_999_999_999)))


def test_the_page_offers_the_dead_letter_topics_of_the_handlers() -> None:
    assert "List orders.dlq" in parts(History("billing"), 0, [TOPIC])["dead_letters"]
    assert "List" not in parts(History("billing"), 60, [TOPIC])["dead_letters"]


async def test_handlers_that_are_registered_after_the_page_are_offered_too() -> None:
    consumer = Consumer(group_id="billing")
    app = Starlette(routes=dashboard_routes(consumer))

    @consumer.handler("orders", dead_letter=TOPIC)
    async def bill(value: bytes) -> None: ...

    async with AsyncClient(transport=ASGITransport(app), base_url="http://page") as client:
        page = (await client.get("/dashboard/view")).json()
    assert "dead-letters?topic=orders.dlq" in page["dead_letters"]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("dead-letters", "'' is not a dead letter topic of this page"),
        ("dead-letters?topic=orders", "'orders' is not a dead letter topic of this page"),
        ("dead-letters?topic=orders.dlq&place=0:1", "this page shows no contents of dead letters"),
        ("dead-letters?topic=orders.dlq&place=x", "place must be PARTITION:OFFSET"),
        ("dead-letters?topic=orders.dlq&origin_partition=x", "origin_partition must be a number"),
        ("dead-letters?topic=orders.dlq&origin_topic=a/b", "a/b"),
    ],
)
async def test_requests_for_other_topics_and_contents_are_rejected(path: str, why: str) -> None:
    config = ConsumerConfig(bootstrap_servers="127.0.0.1:1")
    page = await get(Dashboard(History("billing"), StoredLetters(lambda: {TOPIC: config})), path)
    assert page.status_code == 404
    assert why in page.text


async def test_pages_of_other_sites_list_no_dead_letter_topic() -> None:
    page = Dashboard(History("billing"))
    other = await get(page, "dead-letters?topic=orders.dlq", **{"Sec-Fetch-Site": "cross-site"})
    assert other.status_code == 403


async def test_one_topic_is_read_at_a_time() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1000):
            pass
        writer.close()

    broker = await asyncio.start_server(silent, "127.0.0.1", 0)
    port: int = broker.sockets[0].getsockname()[1]
    config = ConsumerConfig(bootstrap_servers=f"127.0.0.1:{port}")
    page = Dashboard(History("billing"), StoredLetters(lambda: {TOPIC: config}))
    path = f"dead-letters?topic={TOPIC}"
    first = asyncio.create_task(get(page, path))
    await asyncio.sleep(0.1)
    second = await get(page, path)
    assert (second.status_code, second.text) == (
        404,
        "another viewer reads a dead letter topic: try again",
    )
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    broker.close()
