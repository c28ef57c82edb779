"""The page of a consumer: what it knows, what it shows, and that nobody who looks can slow it."""

from __future__ import annotations

import asyncio
import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import pytest
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient
from starlette.applications import Starlette
from unit.dashboard.table_rows import table_rows

from asyncrevoke import ConfigError, Consumer, TopicPartition
from asyncrevoke.integrations.fastapi import dashboard_router
from asyncrevoke.testing import TestConsumer
from asyncrevoke.web.dashboard.app import Dashboard
from asyncrevoke.web.dashboard.consumer_watch import ConsumerWatch
from asyncrevoke.web.dashboard.history import History, Pending, Sample
from asyncrevoke.web.dashboard.page import parts

if TYPE_CHECKING:
    from collections.abc import MutableMapping

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def watched() -> tuple[Consumer, History]:
    """A consumer whose handler takes two seconds, and what is known of it."""
    history = History("billing", clock=lambda: asyncio.get_running_loop().time())
    consumer = Consumer(group_id="billing", client_id="till")
    consumer.observe(ConsumerWatch(history))

    @consumer.handler("orders", on_error="skip")
    async def bill(order: bytes) -> None:
        await asyncio.sleep(2)

    return consumer, history


def states(history: History, partition: TopicPartition) -> list[tuple[str, str]]:
    return [(span.owner, span.state) for span in history.lane(partition)]


async def test_a_revocation_goes_from_owned_over_draining_to_released() -> None:
    consumer, history = watched()
    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1", partition=0)
        await t.revoke(FIRST)
        (pending,) = history.pending["till"]
        assert (pending.partition, pending.state) == (FIRST, "draining")
        assert pending.waits_for == "offset 0 in bill"
        page = parts(history, 0)
        assert 'data-partition="orders-0" data-state="draining"' in page["revocations"]
        await t.advance(5)
        assert history.pending["till"] == ()
        page = parts(history, 0)
        assert "other members or none <b>1</b>" in page["owners"]
        assert "1 without an owner here" in page["lanes"]
        assert "nobody" not in page["owners"] + page["lanes"] + page["places"]
    seen = states(history, FIRST)
    assert [state for state in seen if state[1] != "requested"] == [
        ("till", "held"),
        ("till", "draining"),
        *([("till", "committing")] if ("till", "committing") in seen else []),
        ("", "held"),
    ]
    notes = [note.text for note in history.notes(float("inf"), 100)]
    assert any(text.startswith("released orders-0 after") for text in notes)
    assert "revocation requested: orders-0" in notes


async def test_a_partition_that_is_lost_is_shown_as_lost() -> None:
    consumer, history = watched()
    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1", partition=0)
        await t.lose(FIRST)
    assert ("till", "lost") in states(history, FIRST)


async def test_figures_are_taken_each_second() -> None:
    consumer, history = watched()
    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1", partition=0)
        await t.publish("orders", b"2", partition=0)
        await t.advance(1.5)
        newest = history.samples("till", 0, history.clock())[-1]
        assert (newest.records, newest.in_flight, newest.lag) == (2, 2, 0)
        assert newest.oldest is not None
        assert newest.oldest > 0


def test_what_was_can_be_looked_at_for_ten_minutes() -> None:
    clock = Clock()
    history = History("billing", clock)
    history.hold(FIRST, "till-1")
    for second in range(800):
        clock.now += 1
        history.sample("till-1", Sample(clock.now, second, in_flight=second))
        if second == 500:
            history.hold(FIRST, "till-2")
            history.note("till-1", "has released orders-0")
    assert "<b>1</b>" in parts(history, 0)["owners"]
    assert "till-2" in parts(history, 0)["owners"]
    assert "till-1 <b>1</b>" in parts(history, 400)["owners"]
    assert "<dd>399</dd>" in parts(history, 400)["figures"]
    assert parts(history, 400)["notes"] == ""
    assert len(history.samples("till-1", 0, clock.now)) < 700


def test_samples_within_a_second_count_once() -> None:
    clock = Clock()
    history = History("billing", clock)
    for half in range(20):
        clock.now += 0.5
        for owner in "till-1", "till-2":
            history.sample(owner, Sample(clock.now, 50 * half, in_flight=3, lag=7))
    figures = parts(history, 0)["figures"]
    assert "<dt>records per second</dt><dd>200</dd>" in figures
    assert "<dt>lag</dt><dd>14</dd>" in figures
    assert "<dt>in flight</dt><dd>6</dd>" in figures


async def test_the_partitions_that_are_furthest_behind_are_named() -> None:
    consumer, history = watched()
    async with TestConsumer(consumer, partitions=2) as t:
        for _ in range(3):
            await t.publish("orders", b"1", partition=1)
        await t.advance(1.5)
        (first, second) = history.places["till"]
        assert (first.in_flight, first.oldest, first.lag) == (0, None, 0)
        assert (second.in_flight, second.oldest, second.lag) == (3, 0, 0)
        table = parts(history, 0)["places"]
        heading, row, _ = table_rows(table)
        assert heading == ["partition", "owner", "lag", "committed", "in flight", "oldest offset"]
        assert row == ["orders-0", "till", "0", "0", "0", ""]
        assert "stable" in parts(history, 0)["figures"].lower()
        assert "now only" in parts(history, 60)["places"]
    assert history.places == {}


def test_the_page_names_a_topic_once_and_numbers_its_partitions() -> None:
    history = History("billing", Clock())
    for topic, count in (("orders", 12), ("payments", 1)):
        for number in range(count):
            history.hold(TopicPartition(topic, number), "till-1")
    shown = parts(history, 0)["lanes"]
    assert shown.count("<h3>orders</h3>") == shown.count("<h3>payments</h3>") == 1
    assert re.findall(r'data-top="(\d+)">(\d+)<', shown) == [
        *((str(20 * number), str(number)) for number in range(12)),
        ("0", "0"),
    ]
    assert "orders, 12 partitions over two minutes: till-1 has 12" in shown
    assert "payments, 1 partition over two minutes" in shown


def test_thin_lanes_have_labels_that_do_not_overlap() -> None:
    history = History("billing", Clock())
    for number in range(1000):
        history.hold(TopicPartition("orders", number), "till-1")
    tops = [int(top) for top in re.findall(r'data-top="(-?\d+)"', parts(history, 0)["lanes"])]
    assert len(tops) == 250
    assert {after - before for before, after in pairwise(tops)} == {20}


def test_the_legend_names_former_owners_while_their_lanes_are_shown() -> None:
    clock = Clock()
    history = History("billing", clock)
    history.hold(FIRST, "till-1")
    clock.now += 10
    history.hold(FIRST, "till-2")
    clock.now += 60
    assert "till-1 <b>0</b>" in parts(history, 0)["owners"]
    clock.now += 61
    assert "till-1" not in parts(history, 0)["owners"]


async def test_one_assigned_partition_is_noted_in_the_singular() -> None:
    consumer, history = watched()
    async with TestConsumer(consumer, partitions=1):
        assert "assigned 1 partition" in [note.text for note in history.notes(float("inf"), 9)]


def test_untrusted_names_are_escaped_in_html() -> None:
    history = History("<b>billing", Clock())
    evil = TopicPartition("<script>alert(1)</script>", 0)
    history.hold(evil, "<img src=x>", "draining")
    history.pending["<img src=x>"] = (Pending(evil, "<img src=x>", "draining", 0.0, "<i>"),)
    history.note("<img src=x>", "<script>")
    page = "".join(parts(history, 0).values())
    assert "<script" not in page
    assert "<img" not in page
    assert "<i>" not in page


def test_members_that_come_and_go_for_ever_are_forgotten() -> None:
    clock = Clock()
    history = History("billing", clock)
    for number in range(5000):
        clock.now += 1
        owner = history.join(f"till-{number}" + "x" * 10_000)
        history.hold(TopicPartition(f"orders-{number}", 0), owner)
        history.leave(TopicPartition(f"orders-{number}", 0), owner)
        history.hold(FIRST, owner)
        history.note(owner, "y" * 100_000)
        history.sample("billing", Sample(clock.now))
        assert history.lane(FIRST)[-1].owner in history.owners
    assert len(history.owners) <= 2000
    assert len(history.partitions()) <= 700
    assert max(len(note.text) for note in history.notes(clock.now, 500)) < 1100
    assert max(map(len, history.owners)) < 300
    assert all(len(html) < 2_000_000 for html in parts(history, 0).values())


def test_two_consumers_of_one_name_have_different_labels() -> None:
    history = History("billing")
    assert [history.join("till") for _ in range(3)] == ["till", "till #2", "till #3"]
    assert [history.join("a #b") for _ in range(2)] == ["a #b", "a #b #2"]


async def test_the_routes_only_read() -> None:
    dashboard = Dashboard(History("billing"))
    app = Starlette(routes=dashboard.routes())
    async with AsyncClient(transport=ASGITransport(app), base_url="http://page") as client:
        assert (await client.get("/dashboard")).headers["location"].endswith("/dashboard/")
        page = await client.get("/dashboard/")
        assert page.headers["content-type"].startswith("text/html")
        assert "http" not in page.text.replace('charset="utf-8"', "")  # nothing from elsewhere
        assert (await client.get("/dashboard/dashboard.js")).status_code == 200
        assert (await client.get("/dashboard/dashboard.css")).status_code == 200
        assert (await client.get("/dashboard/view?ago=60")).json()["title"] == "billing"
        for wrong in ("ago=x", "ago=-1", "ago=601", "ago=nan"):
            assert (await client.get(f"/dashboard/view?{wrong}")).status_code == 400
        for path in ("", "live", "view", "dashboard.js"):
            assert (await client.post(f"/dashboard/{path}")).status_code == 405


async def test_a_router_is_made_before_its_consumer_is_entered() -> None:
    consumer = Consumer("orders", bootstrap_servers="127.0.0.1:1", group_id="billing")
    app = FastAPI()
    app.include_router(dashboard_router(consumer))
    async with (
        consumer,
        AsyncClient(transport=ASGITransport(app), base_url="http://page") as client,
    ):
        notes = (await client.get("/dashboard/view")).json()["notes"]
    assert "consumer opened" in notes
    with pytest.raises(ConfigError, match="no consumer to look at"):
        dashboard_router()


async def test_a_stream_has_a_picture_at_once_and_one_after_each_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("asyncrevoke.web.dashboard.app._LATEST", 600.0)
    history = History("billing")
    stream = Dashboard(history).stream(600.0)
    assert await anext(stream) == b"retry: 50\n\n"
    first = json.loads((await anext(stream)).removeprefix(b"data: "))
    assert first["title"] == "billing"
    changed = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    history.hold(FIRST, "till", "draining")
    async with asyncio.timeout(10):
        second = json.loads((await changed).removeprefix(b"data: "))
    assert "orders" in second["lanes"]
    await stream.aclose()
    assert history.listeners == 0


def scope_of(path: str) -> MutableMapping[str, object]:
    return {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
    }


class StuckViewer:
    """A client of the stream that reads no picture to its end."""

    def __init__(self, history: History) -> None:
        self.dashboard = Dashboard(history)
        self.sent: list[object] = []
        self.stuck = asyncio.Event()

    async def watch(self) -> None:
        """Wait until the server closes the stream."""
        app = Starlette(routes=self.dashboard.routes())
        await app(scope_of("/dashboard/live"), self._receive, self._send)

    async def _send(self, message: MutableMapping[str, object]) -> None:
        self.sent.append(message)
        if cast("bytes", message.get("body", b"")).startswith(b"data"):
            self.stuck.set()
            await asyncio.Event().wait()

    async def _receive(self) -> MutableMapping[str, object]:
        await asyncio.Event().wait()
        raise AssertionError


async def test_no_pictures_are_rendered_for_a_dashboard_client_that_never_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("asyncrevoke.web.dashboard.app._WRITE_TIMEOUT", 600.0)
    history = History("billing")
    viewer = StuckViewer(history)
    watching = asyncio.create_task(viewer.watch())
    await viewer.stuck.wait()
    for number in range(2000):
        history.hold(TopicPartition("orders", number), "till")
        await asyncio.sleep(0)
    assert viewer.dashboard.renderings == 1
    assert len(viewer.sent) == 3  # the head, the time to come again, and a picture
    assert history.listeners == 1
    watching.cancel()
    await asyncio.wait([watching])


async def test_a_dashboard_client_that_never_reads_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("asyncrevoke.web.dashboard.app._STREAM", 0.3)
    monkeypatch.setattr("asyncrevoke.web.dashboard.app._WRITE_TIMEOUT", 0.3)
    history = History("billing")
    viewer = StuckViewer(history)
    async with asyncio.timeout(5):
        await viewer.watch()
    assert viewer.stuck.is_set()
    assert history.listeners == 0, "its place is free for others"


async def test_a_viewer_that_has_gone_ends_its_stream() -> None:
    history = History("billing")
    app = Starlette(routes=Dashboard(history).routes())
    reads, left = asyncio.Event(), asyncio.Event()

    async def send(message: MutableMapping[str, object]) -> None:
        reads.set()

    async def receive() -> MutableMapping[str, object]:
        await left.wait()
        return {"type": "http.disconnect"}

    scope = scope_of("/dashboard/live")
    viewer = asyncio.create_task(app(scope, receive, send))
    await reads.wait()
    left.set()
    async with asyncio.timeout(3):  # before the stream would end by itself
        await viewer
    assert history.listeners == 0


async def test_more_dashboard_clients_than_the_limit_get_an_error() -> None:
    history = History("billing")
    app = Starlette(routes=Dashboard(history).routes())
    viewers = [history.listening() for _ in range(32)]
    for viewer in viewers:
        viewer.__enter__()
    async with AsyncClient(transport=ASGITransport(app), base_url="http://page") as client:
        response = await client.get("/dashboard/live")
    assert (response.status_code, response.text) == (503, "the page already has 32 viewers")
    for viewer in viewers:
        viewer.__exit__(None, None, None)
