"""Exceptions that forbid attributes, have no text, or a very long one: they fail as any other."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from unit.journal.journal_rows import attempts_of, rows_of

from asyncrevoke import BatchError, Consumer, Record, Retry
from asyncrevoke.client.errors import HandlerProcessError
from asyncrevoke.client.printable import error_text, named_error
from asyncrevoke.handlers.blocking.pickled_call import pickle_call, result_of, run_in_process
from asyncrevoke.handlers.policy.retry import Pause
from asyncrevoke.integrations.opentelemetry_tracing import OpenTelemetryTracing
from asyncrevoke.journal import Journal
from asyncrevoke.testing import TestConsumer
from asyncrevoke.web.dashboard.consumer_watch import ConsumerWatch
from asyncrevoke.web.dashboard.history import History

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    reason: str = "declined"


@dataclasses.dataclass(frozen=True, slots=True)
class SlottedError(Exception):
    reason: str = "declined"


@dataclasses.dataclass(eq=True)
class UnhashableError(Exception):
    reason: str = "declined"


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class ExitingError(Exception):
    def __str__(self) -> str:
        raise SystemExit("no text")

    __repr__ = __str__


class InterruptingError(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt

    __repr__ = __str__


class CancellingError(Exception):
    def __str__(self) -> str:
        raise asyncio.CancelledError

    __repr__ = __str__


class Nameless(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise SystemExit("no name")


class NoNameError(Exception, metaclass=Nameless):
    pass


class NoClassError(Exception):
    def __getattribute__(self, name: str) -> object:
        if name == "__class__":
            raise SystemExit("no class")
        return super().__getattribute__(name)


class FalseError(Exception):
    def __bool__(self) -> bool:
        return False


class NamelessError(Exception):
    __module__ = None  # type: ignore[assignment]  # as of a class that is made without one


class LongError(Exception):
    def __str__(self) -> str:
        return "x" * 5_000_000


uncooperative = pytest.mark.parametrize(
    "kind",
    [
        FrozenError, SlottedError, UnhashableError, MuteError, FalseError, LongError, ExitingError,
        InterruptingError, CancellingError,
    ],
)  # fmt: skip
unidentified = pytest.mark.parametrize("kind", [NoNameError, NoClassError], ids=["name", "class"])


class Observed:
    """A consumer with everything that observes failures: tracing, journal and dashboard."""

    def __init__(self, journal: Path) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.consumer = Consumer(group_id="billing", journal=Journal(journal))
        self.consumer.observe(OpenTelemetryTracing(provider))
        self.consumer.observe(ConsumerWatch(History("billing")))


@uncooperative
async def test_it_is_retried_and_becomes_a_dead_letter_with_its_name_and_trace(
    kind: type[Exception], tmp_path: Path
) -> None:
    observed = Observed(tmp_path)
    calls: list[bytes] = []

    @observed.consumer.handler(
        "orders", retry=Retry(attempts=3, backoff=0.1, retry_on=kind), dead_letter="dlq"
    )
    async def bill(order: bytes) -> None:
        calls.append(order)
        raise kind

    async with TestConsumer(observed.consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        await t.advance(5)
        (letter,) = t.dead_letters("dlq")
        assert t.committed("orders", 0) == 1
    assert len(calls) == 3
    headers = dict(letter.headers)
    assert (headers["asyncrevoke-error-type"] or b"").endswith(kind.__name__.encode())
    assert len(headers["asyncrevoke-error-message"] or b"") <= 1024
    spans = observed.exporter.get_finished_spans()
    assert len(spans) == 3
    context = spans[-1].get_span_context()
    assert context is not None
    assert f"{context.span_id:016x}".encode() in (headers["traceparent"] or b"")
    (event,) = spans[-1].events
    assert event.attributes is not None
    assert str(event.attributes["exception.type"]).endswith(kind.__name__)
    assert len(str(event.attributes["exception.message"])) <= 8000
    assert attempts_of(tmp_path) == [
        (0, 0, 1, "retried"),
        (0, 0, 2, "retried"),
        (0, 0, 3, "dead_lettered"),
    ]
    assert {row["error_type"] for row in rows_of(tmp_path, "ATTEMPT")} == {kind.__name__}


@unidentified
@pytest.mark.parametrize("batch", [False, True])
async def test_one_that_hides_its_class_is_retried_and_becomes_a_dead_letter(
    kind: type[Exception], batch: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    observed = Observed(tmp_path)
    calls: list[object] = []

    handler = observed.consumer.handler(
        "orders", retry=Retry(attempts=2, backoff=0.1), dead_letter="dlq", batch=batch
    )

    async def bill(order: bytes) -> None:
        calls.append(order)
        raise kind

    async def bill_all(orders: list[bytes]) -> None:
        calls.append(orders)
        raise BatchError({0: kind()})

    handler(bill_all if batch else bill)

    async with TestConsumer(observed.consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        await t.advance(5)
        (letter,) = t.dead_letters("dlq")
    assert len(calls) == 2
    message = dict(letter.headers)["asyncrevoke-error-message"] or b""
    assert type.__dict__["__name__"].__get__(kind).encode() in message
    assert b"raises SystemExit when its class or name is looked at" in message
    assert "handler failed; record sent to the dead letter topic" in caplog.text


@unidentified
async def test_a_consumer_stops_with_an_error_in_place_of_one_that_hides_its_class(
    kind: type[Exception],
) -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders")
    async def bill(order: bytes) -> None:
        raise kind

    with pytest.raises(RuntimeError, match="when its class or name is looked at"):
        async with TestConsumer(consumer, partitions=1) as t:
            await t.publish("orders", b"1")
            await t.advance(5)


@pytest.mark.parametrize("where", ["itself", "cause", "context", "group"])
async def test_the_log_has_the_beginning_of_its_text(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders", on_error="skip")
    async def bill(order: bytes) -> None:
        if where == "itself":
            raise LongError
        if where == "cause":
            raise ValueError("rejected") from LongError()
        if where == "group":
            raise ExceptionGroup("several", [LongError()])
        try:
            raise LongError
        except LongError:
            raise ValueError("rejected")  # noqa: B904 - its context

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        await t.advance(1)
    assert "handler failed; record skipped" in caplog.text
    assert "in bill" in caplog.text
    assert len(caplog.text) < 30_000
    if where != "group":
        assert "LongError: xxx" in caplog.text


@uncooperative
async def test_the_consumer_stops_with_it_and_other_calls_end(kind: type[Exception]) -> None:
    @asynccontextmanager
    async def resources() -> AsyncGenerator[None]:
        yield

    consumer = Consumer(group_id="billing", resources=resources)
    ended: list[bytes] = []

    @consumer.handler("orders")
    async def bill(order: bytes) -> None:
        if order == b"bad":
            raise kind
        await asyncio.sleep(1)
        ended.append(order)

    with pytest.raises(kind):
        async with TestConsumer(consumer, partitions=1) as t:
            for value in (b"good", b"bad"):
                await t.publish("orders", value, key=value)
            await t.advance(5)
    assert ended == [b"good"], "its call was not cancelled"


@uncooperative
async def test_each_value_of_a_batch_can_fail_with_it(kind: type[Exception]) -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders", batch=True, max_records=2, dead_letter="dlq")
    async def store(orders: list[bytes]) -> None:
        raise BatchError({1: kind()})

    async with TestConsumer(consumer, partitions=1) as t:
        for value in (b"1", b"2"):
            await t.publish("orders", value)
        await t.advance(2)
        (letter,) = t.dead_letters("dlq")
        assert letter.value == b"2"


@uncooperative
async def test_health_says_why_its_partition_is_paused(kind: type[Exception]) -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders", on_error=Pause(probe_after=30))
    async def bill(order: bytes) -> None:
        raise kind

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        await t.advance(1)
        (paused,) = consumer.health().failure_pauses
        assert paused.error.startswith(kind.__name__)
        assert len(paused.error) <= 250


@uncooperative
async def test_a_probe_says_that_the_consumer_has_failed_with_it(kind: type[Exception]) -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders")
    async def bill(order: bytes) -> None:
        raise kind

    async with TestConsumer(consumer, partitions=1) as t:
        with pytest.raises(kind):
            await t.publish("orders", b"1")
        probe = consumer.probe()
        assert not probe.live
        assert probe.reasons == (f"it has failed: {kind.__name__}, see the log",)


@pytest.mark.parametrize("kind", [FrozenError, MuteError, FalseError, NamelessError])
async def test_a_decoder_can_fail_with_it(kind: type[Exception]) -> None:
    consumer = Consumer(group_id="billing")

    def decode(record: Record) -> object:
        raise kind

    @consumer.handler("orders", decoder=decode, dead_letter="dlq")
    async def bill(order: object) -> None: ...

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        (letter,) = t.dead_letters("dlq")
    message = dict(letter.headers)["asyncrevoke-error-message"] or b""
    assert kind.__name__.encode() in message


def fail_with(kind: type[Exception]) -> None:
    raise kind


def run_beside(call: bytes) -> bytes:
    """What a worker process does; in its main thread it would ignore SIGINT and SIGTERM from now
    on, and all processes that later tests start would inherit that."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run_in_process, "bill", call).result()


@uncooperative
def test_a_process_raises_it(kind: type[Exception]) -> None:
    call = pickle_call("process", "bill", fail_with, [kind], {})
    with pytest.raises(kind) as raised:
        result_of(run_beside(call))
    assert "in fail_with" in str(raised.value.__cause__)


@dataclasses.dataclass(frozen=True)
class UnavailableError(ConnectionError):
    service: str
    seconds: int


class TwoArgumentsError(Exception):
    def __init__(self, service: str, seconds: int) -> None:
        super().__init__(f"{service} for {seconds} s")
        self.service = service


class LockedError(Exception):
    def __init__(self) -> None:
        self.lock = threading.Lock()


def fail_with_arguments(kind: Callable[..., Exception]) -> None:
    raise kind(service="bank", seconds=3)


@pytest.mark.parametrize("kind", [UnavailableError, TwoArgumentsError])
def test_a_process_raises_an_exception_whose_constructor_takes_other_arguments(
    kind: type[UnavailableError | TwoArgumentsError],
) -> None:
    call = pickle_call("process", "bill", fail_with_arguments, [kind], {})
    with pytest.raises(kind) as raised:
        result_of(run_beside(call))
    assert vars(raised.value)["service"] == "bank"


def test_an_exception_whose_content_cannot_be_pickled_is_named() -> None:
    call = pickle_call("process", "bill", fail_with, [LockedError], {})
    with pytest.raises(HandlerProcessError, match="bill raised LockedError, which cannot be"):
        run_beside(call)


def test_the_text_of_an_error_without_text_says_so() -> None:
    assert error_text(MuteError()) == "(str() of this error raised RuntimeError)"
    assert named_error(MuteError()) == f"MuteError: {error_text(MuteError())}"
    assert named_error(ValueError()) == "ValueError"
    assert error_text(LongError(), 10) == "x" * 10
    assert json.dumps(named_error(FalseError("no"))) == '"FalseError: no"'
