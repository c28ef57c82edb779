"""The page in a real browser."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer
from browser.serving import serving
from playwright.async_api import expect

from asyncrevoke import Consumer, ConsumerConfig, Record, TopicPartition
from asyncrevoke.client.runtime.hooks.observers import Observer
from asyncrevoke.dead_letters.stored_dead_letter import StoredDeadLetter
from asyncrevoke.integrations.starlette import dashboard_routes
from asyncrevoke.web.dashboard.app import Dashboard
from asyncrevoke.web.dashboard.history import (
    HandlerFigures,
    History,
    Pending,
    Place,
    Sample,
    Unavailable,
)
from asyncrevoke.web.dashboard.server import served
from asyncrevoke.web.dashboard.stored_letters import StoredLetters, TopicReading

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from playwright.async_api import Browser

    from asyncrevoke.broker import RunningBroker

# Notes when an element first appears, by the browser's own clock, which is the machine's.
APPEARS = """selector => new Promise(found => {
  const now = () => performance.timeOrigin + performance.now();
  const look = () => document.querySelector(selector) && found(now());
  if (!look()) new MutationObserver((_, watching) => { if (look()) watching.disconnect(); })
    .observe(document.body, {childList: true, subtree: true});
})"""


def history_of(partitions: int, owners: int = 3) -> History:
    """So many partitions, held by turns, for two minutes."""
    now = [time.time() - 120]
    history = History("billing", clock=lambda: now[0])
    for number in range(partitions):
        history.hold(TopicPartition("orders", number), f"till-{number % owners}")
    for second in range(120):
        now[0] += 1
        for owner in range(owners):
            history.sample(f"till-{owner}", Sample(now[0], 100 * second, second % 7, second % 30))
        changing = TopicPartition("orders", second % partitions)
        history.hold(changing, f"till-{second % owners}")
    history.clock = time.time
    return history


def fill_tables(history: History) -> None:
    """Revocations under way, partitions by lag, and what happened."""
    tp = TopicPartition("orders-of-a-customer-with-a-long-name", 11)
    history.hold(tp, "till-2", "draining")
    history.pending["till-2"] = (
        Pending(tp, "till-2", "draining", time.time() - 2, "offset 4711 in bill and 12 more"),
        Pending(TopicPartition("orders", 5), "till-2", "requested", time.time()),
    )
    history.places["till"] = tuple(
        Place(TopicPartition("orders", n), f"till-{n % 3}", n, 1000 * n, 1000 * n, 17**n % 99991)
        for n in range(12)
    )
    history.handlers["till"] = tuple(
        HandlerFigures(f"till-{n}", f"billing.handlers.{name}", 120.4, 3 * n, 0.25, 7, 12.0)
        for n, name in enumerate(("bill", "refund_to_the_customer_of_another_country"))
    )
    history.unavailable["till"] = (
        Unavailable("orders.of-a-topic-with-a-long-name.dlq", "the topic does not exist"),
    )
    letter = Record("orders", 3, 4711, 0, 0, b"k", b"<script>", (("trace", b"1"),))
    history.count_dead_letter("orders.dlq", "orders", "ValueError")
    history.keep_dead_letter("till-1", "orders.dlq", letter, ValueError("no customer"))
    history.sample("till-1", Sample(time.time(), 12_000, 7, 1234, 3, 2.5, "stable"))
    for text in "revocation requested: orders-5", "released orders-4 after 0.12 s":
        history.note("till-2", text)


async def test_a_screen_shows_it_all(browser: Browser, pictures: Path) -> None:
    history = history_of(12)
    fill_tables(history)
    now = time.time()
    history.clock = lambda: now  # the figures do not become old while the browser starts
    async with serving(Dashboard(history).routes()) as url:
        for scheme in ("light", "dark"):
            page = await browser.new_page(
                viewport={"width": 1100, "height": 900},
                color_scheme="dark" if scheme == "dark" else "light",
            )
            await page.goto(f"{url}/dashboard")
            await page.wait_for_selector("[data-state=draining]", state="attached")
            assert "orders-10" in await page.inner_text("#places")
            assert "billing.handlers.bill" in await page.inner_text("#handlers")
            assert "the topic does not exist" in await page.inner_text("#unavailable")
            assert "released orders-4" in await page.inner_text("#notes")
            assert "stable" in await page.inner_text("#figures")
            await page.screenshot(path=pictures / f"screen-{scheme}.png", full_page=True)


async def test_a_revocation_is_on_the_page_within_a_third_of_a_second(browser: Browser) -> None:
    history = history_of(12)
    async with serving(Dashboard(history).routes()) as url:
        page = await browser.new_page()
        await page.goto(f"{url}/dashboard")
        await page.wait_for_selector("#lanes path", state="attached")
        delays: list[float] = []
        for number in range(6):
            tp = TopicPartition("orders", number)
            selector = f'[data-partition="orders-{number}"][data-state="requested"]'
            appeared = asyncio.create_task(page.evaluate(APPEARS, selector))
            await page.evaluate("0")  # the browser watches by now
            requested = time.time()
            history.hold(tp, f"till-{number % 3}", "requested")
            pending = Pending(tp, f"till-{number % 3}", "requested", requested)
            history.pending["till"] = (*history.pending.get("till", ()), pending)
            history.changed()
            async with asyncio.timeout(10):
                delays.append((await appeared) / 1000 - requested)
    assert max(delays) <= 0.3, delays


@pytest.mark.broker
async def test_a_revocation_of_a_real_group_is_on_the_page_within_a_third_of_a_second(
    browser: Browser, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    address, go_on, requested = kafka_broker.bootstrap_servers, asyncio.Event(), list[float]()
    running = asyncio.Event()

    class Requests(Observer):
        def on_event(self, event: str, fields: Mapping[str, object]) -> None:
            if event == "revocation requested":
                requested.append(time.time())

    def member(client_id: str) -> Consumer:
        consumer = Consumer(
            bootstrap_servers=address, group_id=kafka_topic, client_id=client_id, order_by=None
        )

        @consumer.handler(kafka_topic)
        async def bill(order: bytes) -> None:
            running.set()
            await go_on.wait()

        return consumer

    first = member("till-1")
    first.observe(Requests())
    async with (
        asyncio.timeout(60),
        serving(dashboard_routes(first)) as url,
        first,
        AIOKafkaProducer(bootstrap_servers=address) as producer,
    ):
        for number in range(4):  # so that whatever goes has something to finish first
            await producer.send_and_wait(kafka_topic, b"order", partition=number)
        await running.wait()
        page = await browser.new_page()
        await page.goto(f"{url}/dashboard")
        await page.wait_for_selector("#lanes path", state="attached")
        appeared = asyncio.create_task(page.evaluate(APPEARS, "#revocations [data-state]"))
        async with member("till-2"):
            appeared_at = (await appeared) / 1000
            go_on.set()
    assert appeared_at - requested[0] <= 0.3


async def test_a_thousand_partitions_leave_the_page_responsive(
    browser: Browser, pictures: Path
) -> None:
    history = history_of(1000)
    dashboard = Dashboard(history)
    async with serving(dashboard.routes()) as url:
        page = await browser.new_page()
        await page.goto(f"{url}/dashboard")
        await page.wait_for_selector("#lanes path", state="attached")
        # The longest time in which the browser drew nothing, over twenty changes.
        await page.evaluate(
            """() => { window.longest = 0; let before = performance.now();
              const frame = now => { longest = Math.max(longest, now - before); before = now;
                requestAnimationFrame(frame); };
              requestAnimationFrame(frame); }"""
        )
        drawn = dashboard.renderings
        while dashboard.renderings < drawn + 20:
            history.hold(TopicPartition("orders", dashboard.renderings), "till-9")
            await asyncio.sleep(0.02)
        longest = float(await page.evaluate("longest"))
        began = time.perf_counter()
        await page.keyboard.press("Tab")
        assert time.perf_counter() - began < 1
        await page.screenshot(path=pictures / "thousand.png")
    assert longest < 500, longest


async def test_ten_minutes_are_replayed_by_keyboard(browser: Browser) -> None:
    history = history_of(12)
    async with serving(Dashboard(history).routes()) as url:
        page = await browser.new_page()
        await page.goto(f"{url}/dashboard")
        await page.wait_for_selector("#lanes path", state="attached")
        await page.focus("#ago")
        for _ in range(60):
            await page.keyboard.press("ArrowLeft")
        await expect(page.locator("#back")).to_have_text("60 s back")
        await expect(page.locator("#moment")).not_to_have_text(re.compile("^live"))
        await page.focus("#now")
        await page.keyboard.press("Enter")
        await expect(page.locator("#moment")).to_have_text(re.compile("^live"))
        await page.focus("#play")
        await page.keyboard.press("Space")
        await expect(page.locator("#back")).to_have_text(re.compile("^5[0-8][0-9] s back"))


async def test_each_control_is_reached_by_tab_and_shows_its_focus(browser: Browser) -> None:
    history = history_of(12)
    fill_tables(history)
    async with serving(Dashboard(history).routes()) as url:
        page = await browser.new_page(viewport={"width": 390, "height": 844})
        await page.goto(f"{url}/dashboard")
        await page.wait_for_selector("[data-open]", state="attached")
        reached: list[str] = []
        for _ in range(30):
            await page.keyboard.press("Tab")
            name, outline, width = await page.evaluate(
                """() => { const at = document.activeElement, style = getComputedStyle(at);
                  return [at.id || at.getAttribute("aria-label") || at.textContent,
                    style.outlineStyle, at.getBoundingClientRect().width]; }"""
            )
            if name in reached or await page.evaluate("document.activeElement === document.body"):
                break
            reached.append(name)
            assert outline == "solid", name
            assert width > 0, name
    assert reached == [
        "unavailable", "handlers", "Lanes of partitions over the last two minutes", "play", "ago",
        "now", "revocations", "places", "dead_letters", "Show", "notes",
    ]  # fmt: skip


async def test_a_dead_letter_is_opened_and_closed_by_keyboard(
    browser: Browser, pictures: Path
) -> None:
    history = history_of(12)
    fill_tables(history)
    said: list[str] = []
    async with serving(Dashboard(history).routes()) as url:
        page = await browser.new_page(viewport={"width": 390, "height": 844})
        page.on("pageerror", lambda error: said.append(str(error)))
        await page.goto(f"{url}/dashboard")
        await page.wait_for_selector("[data-open]", state="attached")
        assert "<script>" not in await page.inner_text("body"), "hidden until it is asked for"
        await page.focus("[data-open]")
        await page.keyboard.press("Enter")
        await expect(page.locator("dialog")).to_contain_text("<script>")
        await page.screenshot(path=pictures / "dead-letter.png")
        # A change of the table replaces the button that has had the focus.
        history.count_dead_letter("orders.dlq", "orders", "ValueError")
        await expect(page.locator("#dead_letters td").nth(2)).to_have_text("2")
        await page.keyboard.press("Escape")
        await expect(page.locator("dialog")).to_be_hidden()
        await expect(page.locator("[data-open]")).to_be_focused()
    assert said == []


class ReadLetters(StoredLetters):
    """Dead letters as if read from a topic."""

    async def newest(self, topic: str) -> TopicReading:
        letters = [
            StoredDeadLetter(
                Record(topic, 0, number, 1_764_000_000_000 - 60_000 * number, 0, None, None),
                *("orders", number % 3, 4711 + number, 1_764_000_000_000 - 90_000 * number),
                *(("app.CustomerNotFoundError", "TimeoutError")[number % 2], "", 3, 0),
            )
            for number in range(60)
        ]
        return TopicReading(topic, 0.0, tuple(letters), 12_345, 2, True)

    async def shown_contents(
        self, topic: str, partition: int, offset: int
    ) -> tuple[tuple[str, str], ...]:
        if offset > 7:
            return await super().shown_contents("other", partition, offset)
        return (("error", f"no customer in {topic}"), ("key", "k"), ("value", "<script>"))


@pytest.mark.parametrize("width", [390, 1280])
async def test_a_dead_letter_topic_is_listed_and_a_dead_letter_of_it_shown(
    browser: Browser, pictures: Path, width: int
) -> None:
    history = history_of(12)
    fill_tables(history)
    stored = ReadLetters(lambda: {"orders.dlq": ConsumerConfig()}, values=True)
    async with serving(Dashboard(history, stored).routes()) as url:
        page = await browser.new_page(viewport={"width": width, "height": 900})
        await page.goto(f"{url}/dashboard/")
        dialog = page.locator("dialog")
        await page.get_by_role("button", name="List orders.dlq").click()
        await expect(dialog).to_contain_text("60 dead letters, in the last part of the topic")
        await page.screenshot(path=pictures / f"dead-letter-topic-{width}.png")
        await dialog.get_by_role("button", name="List", exact=True).nth(1).click()
        await expect(dialog).to_contain_text("10 dead letters of this origin and error")
        await dialog.get_by_role("button", name="Show").first.click()
        await expect(dialog).to_contain_text("no customer in orders.dlq")
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("button", name="List orders.dlq")).to_be_focused()
        await page.keyboard.press("Enter")
        await dialog.get_by_role("button", name="Show").nth(8).click()
        await expect(dialog).to_contain_text("'other' is not a dead letter topic of this page")


async def test_the_page_loads_nothing_from_elsewhere_and_says_when_the_server_is_gone(
    browser: Browser,
) -> None:
    asked: list[str] = []
    errors: list[str] = []
    async with serving(Dashboard(history_of(4)).routes()) as url:
        page = await browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        await page.goto(f"{url}/dashboard")
        await page.wait_for_selector("#lanes path", state="attached")
    await expect(page.locator("#connection")).not_to_be_empty()
    assert all(each.startswith((url, "data:")) for each in asked), asked
    assert errors == []


async def test_the_page_needs_nothing_that_its_content_security_policy_forbids(
    browser: Browser, pictures: Path
) -> None:
    history = history_of(12)
    fill_tables(history)
    said: list[str] = []
    async with served(history) as url:
        page = await browser.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        await page.goto(url)
        await page.wait_for_selector("#lanes path", state="attached")
        tops = await page.evaluate(
            "[...document.querySelectorAll('.names span')].map(each => each.offsetTop)"
        )
        # The second topic has one partition.
        assert tops == [*(20 * row for row in range(12)), 0]
        lanes = await page.locator("svg.lanes").first.bounding_box()
        assert lanes is not None
        assert lanes["height"] == 240
        assert (
            await page.evaluate(
                "getComputedStyle(document.querySelector('.lanes path')).strokeWidth"
            )
            == "16px"
        )
        await page.screenshot(path=pictures / "own-port.png", full_page=True)
        assert said == []
        # What a name that reached the HTML unescaped could do.
        await page.evaluate(
            "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=alert(1)>')"
        )
        async with asyncio.timeout(10):
            while not said:
                await page.wait_for_timeout(20)
    assert all("Content Security Policy" in each for each in said), said


async def test_a_page_of_another_site_neither_frames_nor_reads_it(browser: Browser) -> None:
    async with served(history_of(4)) as url, serving([]) as elsewhere:
        page = await browser.new_page()
        await page.goto(f"{elsewhere}/")
        asked = "url => fetch(url, {mode: 'no-cors'}).then(() => 'responded', () => 'refused')"
        assert await page.evaluate(asked, url) == "refused"
        listened = """url => new Promise(heard => {
              const live = new EventSource(url + "live");
              live.onmessage = () => heard("responded"); live.onerror = () => heard("refused");
            })"""
        assert await page.evaluate(listened, url) == "refused"


async def test_a_phone_shows_it_without_scrolling_sideways(
    browser: Browser, pictures: Path
) -> None:
    history = history_of(12)
    fill_tables(history)
    async with serving(Dashboard(history).routes()) as url:
        for width, scheme in ((360, "light"), (390, "dark")):
            page = await browser.new_page(
                viewport={"width": width, "height": 740},
                color_scheme="dark" if scheme == "dark" else "light",
            )
            await page.goto(f"{url}/dashboard")
            await page.wait_for_selector("#lanes path", state="attached")
            await page.wait_for_selector("[data-state=draining]", state="attached")
            assert await page.evaluate("document.documentElement.scrollWidth") <= width
            # Nor do its tables: no cell is cut.
            for table in ("#places", "#handlers", "#revocations", "#dead_letters", "#unavailable"):
                box = page.locator(table)
                assert await box.evaluate("e => e.scrollWidth <= e.clientWidth"), table
            assert "in flight" in await page.locator("#places td").nth(3).evaluate(
                "e => getComputedStyle(e, '::before').content"
            )
            back = await page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert back == ("rgb(15, 23, 32)" if scheme == "dark" else "rgb(255, 255, 255)")
            await page.screenshot(path=pictures / f"phone-{scheme}.png", full_page=True)
