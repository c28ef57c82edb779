"""The thread that keeps a membership while the event loop is blocked."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import pytest
import pytest_asyncio
from unit.runtime.scripted_core import NODE, until

from asyncrevoke.client.core.io.effects import (
    BackgroundHeartbeat,
    BackgroundHeartbeatReply,
    Channel,
    Failed,
    FailureKind,
    Replied,
    Send,
)
from asyncrevoke.client.protocol.messages import ErrorCode, HeartbeatRequest, HeartbeatResponse
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.client.runtime.loop import blocked_loop
from asyncrevoke.client.runtime.loop.blocked_loop import HeartbeatThread, LoopLag

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator

    from asyncrevoke.client.core.core import Core
    from asyncrevoke.client.protocol.messages import Request, Response
    from asyncrevoke.client.runtime.loop.driver import Driver
    from asyncrevoke.client.runtime.net.channels import Channels

PATIENCE = 0.1
INTERVAL = 0.05
BEAT = HeartbeatRequest(group_id="billing", generation=3, member_id="one", group_instance_id=None)
AFTER = HeartbeatRequest(group_id="billing", generation=4, member_id="one", group_instance_id=None)
NAME = "asyncrevoke heartbeat"


class Brokers:
    """Connections of the thread. Heartbeats get ``error`` in a response; hanging, none."""

    def __init__(self) -> None:
        self.sent: list[tuple[float, Send]] = []
        self.threads: set[str] = set()
        self.opened = 0
        self.closed = 0
        self.closes_at_once = True
        # Keeps the thread within a request, if there is one.
        self.busy: threading.Event | None = None
        self.hangs = False
        self.fails: FailureKind | None = None
        self.error = ErrorCode.none

    def open(self) -> Brokers:
        self.opened += 1
        return self

    async def request(self, send: Send) -> Replied | Failed:
        self.sent.append((time.monotonic(), send))
        self.threads.add(threading.current_thread().name)
        if self.busy is not None:
            self.busy.wait()
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails is not None:
            return Failed(send.request_id, self.fails, "not there")
        return Replied(send.request_id, HeartbeatResponse(error=self.error))

    async def close(self) -> None:
        if not self.closes_at_once:
            await asyncio.sleep(0.2)
        self.closed += 1


class Watched:
    """A thread, the loop lag that ticks for it, and what it has delivered."""

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        self.alive_for = 60.0
        self.told: list[BackgroundHeartbeatReply] = []
        loop = asyncio.get_running_loop()
        log = EventLog()
        driver = cast("Driver", self)
        self.thread = HeartbeatThread(
            driver,
            connect=cast("Callable[[], Channels]", brokers.open),
            core=cast("Core", self),
            log=log,
            blocked_after=PATIENCE,
        )
        self.lag = LoopLag(loop, PATIENCE, log, driver)
        self.lag.start()

    def loop_ticked(self, late: float) -> str | None:
        return self.thread.tick()

    def handle(self, reply: BackgroundHeartbeatReply) -> None:
        self.told.append(reply)

    def alive_until(self, now: float) -> float:
        return now + self.alive_for

    def set_heartbeat(self, number: int = 1) -> None:
        self.thread.set_heartbeat(BackgroundHeartbeat(number, BEAT, NODE, INTERVAL, 5.0, after))

    def send_none(self) -> None:
        self.thread.set_heartbeat(None)

    async def aclose(self) -> None:
        self.lag.stop()
        await self.thread.aclose()


def after(response: Response) -> Request | None:
    """The next one has the next generation."""
    if isinstance(response, HeartbeatResponse) and response.error is ErrorCode.none:
        return AFTER
    return None


def block(until: float | threading.Event) -> None:
    """Keep the loop from running for some seconds, or until something else has happened."""
    if isinstance(until, threading.Event):
        assert until.wait(30)
    else:
        time.sleep(until)


class Watching(logging.Handler):
    """Sets ``seen`` when a line has some words."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self.seen = threading.Event()
        self._words = words

    def emit(self, record: logging.LogRecord) -> None:
        if self._words in record.getMessage():
            self.seen.set()


@contextmanager
def logged(words: str) -> Generator[threading.Event]:
    """Set once a line with these words is logged."""
    watching = Watching(words)
    logging.getLogger("asyncrevoke").addHandler(watching)
    try:
        yield watching.seen
    finally:
        logging.getLogger("asyncrevoke").removeHandler(watching)


def block_until(condition: Callable[[], object]) -> None:
    """Keep the loop from running until the thread has done something, and for two beats more."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "the thread does nothing"
        time.sleep(0.01)
    time.sleep(2 * INTERVAL)


def running() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == NAME]


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest_asyncio.fixture
async def watched(brokers: Brokers) -> AsyncIterator[Watched]:
    watched = Watched(brokers)
    yield watched
    await watched.aclose()


async def test_nothing_is_sent_while_the_loop_runs(watched: Watched, brokers: Brokers) -> None:
    watched.set_heartbeat()
    ran = [time.monotonic()]
    while ran[-1] - ran[0] < 5 * PATIENCE:
        await asyncio.sleep(PATIENCE / 10)
        ran.append(time.monotonic())
    # On a machine that had no time for it, the loop did not run: then the thread is right to send.
    standstills = [(a, b) for a, b in pairwise(ran) if b - a > PATIENCE / 2]
    assert all(any(a <= sent <= b for a, b in standstills) for sent, _ in brokers.sent)


async def test_the_thread_sends_heartbeats_while_the_loop_is_blocked_and_reports_when_it_runs(
    watched: Watched, brokers: Brokers
) -> None:
    watched.set_heartbeat()
    block_until(lambda: len(brokers.sent) >= 3)
    assert not watched.told
    sent = [send for _, send in brokers.sent]
    assert all(b - a >= 0.9 * INTERVAL for (a, _), (b, _) in pairwise(brokers.sent))
    assert {(send.node, send.channel) for send in sent} == {(NODE, Channel.HEARTBEAT)}
    assert [send.message for send in sent] == [BEAT] + (len(sent) - 1) * [AFTER]
    assert brokers.threads == {NAME}
    await until(lambda: len(watched.told) == len(brokers.sent))
    assert {told.heartbeat_id for told in watched.told} == {1}
    before = 0.0
    for told, (sent_at, _) in zip(watched.told, brokers.sent, strict=True):
        assert before < told.sent_at <= sent_at
        before = sent_at
    await until(lambda: brokers.closed == 1)


async def test_a_heartbeat_never_counts_as_sent_later_than_it_was(
    watched: Watched, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> float:
        now = time.monotonic()
        if threading.current_thread() is threading.main_thread():
            time.sleep(0.02)  # as if another process ran before the event loop's clock is read
        return now

    monkeypatch.setattr(blocked_loop, "_now", interrupted)
    watched.set_heartbeat()
    block_until(lambda: brokers.sent)
    await until(lambda: watched.told)
    assert watched.told[0].sent_at <= brokers.sent[0][0]


async def test_the_thread_sends_heartbeats_at_each_blockage(
    watched: Watched, brokers: Brokers
) -> None:
    watched.set_heartbeat()
    for _ in range(2):
        before = len(brokers.sent)
        block_until(lambda: len(brokers.sent) > before)  # noqa: B023 - called at once
        await until(lambda: brokers.closed == brokers.opened)


async def test_a_response_that_must_not_be_repeated_after_ends_it(
    watched: Watched, brokers: Brokers
) -> None:
    brokers.error = ErrorCode.unknown_member_id
    watched.set_heartbeat()
    block_until(lambda: brokers.sent)
    assert len(brokers.sent) == 1
    await until(lambda: watched.told)
    assert watched.told[0].reply == HeartbeatResponse(error=ErrorCode.unknown_member_id)


async def test_an_unreachable_broker_is_retried_and_logged_once(
    watched: Watched, brokers: Brokers
) -> None:
    brokers.fails = FailureKind.UNREACHABLE
    watched.set_heartbeat()
    block_until(lambda: len(brokers.sent) > 1)
    await until(lambda: brokers.closed)
    assert {send.message for _, send in brokers.sent} == {BEAT}
    assert [told.reply for told in watched.told] == [
        Failed(0, FailureKind.UNREACHABLE, "not there")
    ]


async def test_rejected_credentials_are_not_tried_again(watched: Watched, brokers: Brokers) -> None:
    brokers.fails = FailureKind.AUTHENTICATION
    watched.set_heartbeat()
    block_until(lambda: brokers.sent)
    assert len(brokers.sent) == 1


async def test_background_heartbeats_end_when_the_loop_is_blocked_too_long(
    watched: Watched, brokers: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    watched.alive_for = 3.0
    watched.set_heartbeat()
    with logged("max_poll_interval") as ended:
        block(ended)
    sent = len(brokers.sent)
    block(5 * INTERVAL)
    assert len(brokers.sent) == sent > 1
    assert brokers.sent[-1][0] - brokers.sent[0][0] < 3.1
    (line,) = (r.getMessage() for r in caplog.records if "max_poll_interval" in r.getMessage())
    assert line.endswith(" block'")


async def test_nothing_is_sent_when_the_core_has_stood_down(
    watched: Watched, brokers: Brokers
) -> None:
    watched.set_heartbeat()
    watched.send_none()
    block(5 * PATIENCE)
    assert not brokers.sent


def in_the_users_code(until: threading.Event) -> None:
    assert until.wait(30)


async def test_the_line_that_blocks_is_named_once_and_then_that_it_is_over(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    watched.set_heartbeat()
    with logged("event loop blocked") as named:
        in_the_users_code(named)
    await until(lambda: "event loop runs again" in caplog.text)
    lines = [record.getMessage() for record in caplog.records]
    (blocked,) = (line for line in lines if "event loop blocked" in line)
    line_number = in_the_users_code.__code__.co_firstlineno + 1
    assert f"{__file__}:{line_number} in_the_users_code" in blocked
    (over,) = (line for line in lines if "event loop runs again" in line)
    assert "in_the_users_code" in over


async def test_closing_ends_the_thread(brokers: Brokers) -> None:
    watched = Watched(brokers)
    watched.set_heartbeat()
    assert running()
    await watched.aclose()
    assert not running()
    await watched.aclose()


async def test_closing_does_not_wait_for_a_broker_that_hangs(brokers: Brokers) -> None:
    brokers.hangs = True
    watched = Watched(brokers)
    watched.set_heartbeat()
    block_until(lambda: brokers.sent)
    assert len(brokers.sent) == 1
    async with asyncio.timeout(2):
        await watched.aclose()
    assert not running()
    assert brokers.closed == 1
    assert not watched.told


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_stop_that_comes_when_the_thread_is_done_lets_it_close_its_connections(
    brokers: Brokers,
) -> None:
    watched = Watched(brokers)
    brokers.closes_at_once = False
    brokers.busy = threading.Event()
    watched.set_heartbeat()
    block_until(lambda: brokers.sent)
    assert len(brokers.sent) == 1
    watched.thread.tick()
    watched.thread.stop()
    brokers.busy.set()
    await watched.aclose()
    assert brokers.closed == 1
    assert not running()


async def test_no_thread_is_started_after_closing(brokers: Brokers) -> None:
    watched = Watched(brokers)
    await watched.aclose()
    watched.set_heartbeat()
    assert not running()


def test_a_loop_that_was_closed_without_us_does_not_keep_the_thread() -> None:
    brokers = Brokers()

    async def forgets_to_close() -> threading.Thread:
        Watched(brokers).set_heartbeat()
        (thread,) = (thread for thread in threading.enumerate() if thread.name == NAME)
        return thread

    thread = asyncio.run(forgets_to_close())
    thread.join(5)
    assert not thread.is_alive()


async def test_a_thread_that_fails_says_so(
    watched: Watched, brokers: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    def request(_send: Send) -> Replied:
        raise ZeroDivisionError

    brokers.request = request  # type: ignore[assignment, method-assign]
    watched.set_heartbeat()
    block_until(lambda: not running())
    await until(lambda: "heartbeat thread failed" in caplog.text)
