"""Decoders whose schema registry does not respond for a while."""

from __future__ import annotations

from urllib.error import HTTPError, URLError

import httpx
import pytest
import urllib3
from confluent_kafka.schema_registry.error import SchemaRegistryError

from asyncrevoke import Consumer, DecodeError, Pause, Record, Retry, RetryTopic
from asyncrevoke.handlers.decoding.decoders import is_temporary
from asyncrevoke.testing import TestConsumer

REQUEST = httpx.Request("GET", "http://registry")


def http_error(status: int) -> httpx.HTTPStatusError:
    response = httpx.Response(status, request=REQUEST)
    return httpx.HTTPStatusError("rejected", request=REQUEST, response=response)


def caused(cause: BaseException) -> Exception:
    try:
        raise ValueError("no schema") from cause
    except ValueError as error:
        return error


def named_like(package: str, name: str) -> type[Exception]:
    """An error of a package that may not be installed; here of one that a class inherits from."""
    base = type(name, (Exception,), {"__module__": f"{package}._exceptions"})
    return type("RemoteProtocolError", (base,), {})


class HostileError(Exception):
    @property
    def response(self) -> object:
        raise RuntimeError("no attribute")


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError(),
        TimeoutError(),
        URLError("no route"),
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("late"),
        http_error(503),
        http_error(429),
        urllib3.exceptions.NewConnectionError,
        SchemaRegistryError(500, 50001, "error in the backend"),
        caused(ConnectionError()),
        named_like("httpx2", "TransportError")("disconnected"),
    ],
)
def test_an_error_of_the_registry_is_temporary(error: BaseException | type[Exception]) -> None:
    if isinstance(error, type):
        error = error.__new__(error)
    assert is_temporary(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no Avro"),
        KeyError("id"),
        SchemaRegistryError(404, 40403, "schema not found"),
        HTTPError("http://registry", 404, "not found", {}, None),  # type: ignore[arg-type]
        http_error(401),
        caused(KeyError("id")),
        HostileError(),
    ],
)
def test_an_error_of_the_value_is_not(error: BaseException) -> None:
    assert not is_temporary(error)


class Registry:
    """A decoder that needs a registry, which is down until ``up_at`` of the test's time."""

    def __init__(self, up_at: float = 4) -> None:
        self.test: TestConsumer | None = None
        self.up_at = up_at
        self.calls = 0
        self.handled: list[int] = []

    def decode(self, record: Record) -> int:
        self.calls += 1
        assert self.test is not None
        if self.test.time < self.up_at:
            raise ConnectionError("the registry does not respond")
        return int(record.value or b"")

    async def publish(self, t: TestConsumer, count: int) -> None:
        self.test = t
        self.up_at += t.time
        for number in range(count):
            await t.publish("orders", b"%d" % number, key=f"k{number % 5}", partition=0)


async def test_an_outage_of_4_seconds_sends_nothing_to_the_dead_letter_topic() -> None:
    registry = Registry(up_at=4)
    consumer = Consumer(group_id="billing", decoder=registry.decode)

    @consumer.handler("orders", retry=Retry(attempts=5), dead_letter="dlq")
    async def bill(order: int) -> None:
        registry.handled.append(order)

    async with TestConsumer(consumer) as t:
        await registry.publish(t, 20)
        await t.advance(30)
        assert t.dead_letters("dlq") == []
        assert sorted(registry.handled) == list(range(20))
        assert t.committed("orders", 0) == 20


async def test_a_longer_outage_uses_up_the_attempts_and_no_call_of_the_handler() -> None:
    registry = Registry(up_at=1000)
    consumer = Consumer(group_id="billing", decoder=registry.decode)

    @consumer.handler("orders", retry=Retry(attempts=3), dead_letter="dlq")
    async def bill(order: int) -> None:
        registry.handled.append(order)

    async with TestConsumer(consumer) as t:
        await registry.publish(t, 1)
        await t.advance(30)
        (letter,) = t.dead_letters("dlq")
        assert dict(letter.headers)["asyncrevoke-attempts"] == b"0"
    assert (registry.calls, registry.handled) == (3, [])


async def test_a_value_that_never_decodes_is_not_retried() -> None:
    calls: list[Record] = []

    def decode(record: Record) -> int:
        calls.append(record)
        raise ValueError("no Avro")

    consumer = Consumer(group_id="billing", decoder=decode)

    @consumer.handler("orders", retry=Retry(attempts=None), dead_letter="dlq")
    async def bill(order: int) -> None: ...

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1")
        await t.advance(1)
        assert len(t.dead_letters("dlq")) == 1
    assert len(calls) == 1


async def test_retry_on_names_which_errors_of_a_decoder_are_retried() -> None:
    registry = Registry(up_at=4)
    consumer = Consumer(group_id="billing", decoder=registry.decode)

    @consumer.handler("orders", retry=Retry(retry_on=TimeoutError), dead_letter="dlq")
    async def bill(order: int) -> None: ...

    async with TestConsumer(consumer) as t:
        await registry.publish(t, 1)
        await t.advance(10)
        assert len(t.dead_letters("dlq")) == 1


async def test_a_decoder_may_say_that_its_error_is_temporary() -> None:
    errors = [True, False]

    def decode(record: Record) -> int:
        temporary = errors.pop(0)
        raise DecodeError(record.topic_partition, record.offset, "no", temporary=temporary)

    consumer = Consumer(group_id="billing", decoder=decode)

    @consumer.handler("orders", retry=Retry(attempts=5), dead_letter="dlq")
    async def bill(order: int) -> None: ...

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1")
        await t.advance(10)
        assert len(t.dead_letters("dlq")) == 1
    assert errors == []


async def test_a_pause_ends_when_the_registry_responds() -> None:
    registry = Registry(up_at=45)
    consumer = Consumer(group_id="billing", decoder=registry.decode)

    @consumer.handler("orders", on_error=Pause(probe_after=10))
    async def bill(order: int) -> None:
        registry.handled.append(order)

    async with TestConsumer(consumer) as t:
        await registry.publish(t, 5)
        await t.advance(20)
        assert len(consumer.health().failure_pauses) == 1
        await t.advance(40)
        assert consumer.health().failure_pauses == ()
        assert consumer.health().paused_partitions == frozenset()
        assert sorted(registry.handled) == list(range(5))
        assert t.committed("orders", 0) == 5


async def test_a_retry_topic_takes_what_the_registry_could_not_decode() -> None:
    registry = Registry(up_at=30)
    consumer = Consumer(group_id="billing", decoder=registry.decode)

    @consumer.handler("orders", retry_topic=RetryTopic("later", delay=60), dead_letter="dlq")
    async def bill(order: int) -> None:
        registry.handled.append(order)

    async with TestConsumer(consumer) as t:
        await registry.publish(t, 3)
        await t.advance(70)
        assert sorted(registry.handled) == [0, 1, 2]
        assert t.dead_letters("dlq") == []


async def test_a_batch_waits_for_the_registry_with_the_values_that_do_not_decode() -> None:
    consumer = Consumer(group_id="billing")
    up, handled = [False], list[list[int]]()

    def decode(record: Record) -> int:
        if record.offset >= 2 and not up[0]:
            raise ConnectionError("the registry does not respond")
        return int(record.value or b"")

    @consumer.handler(
        "orders", batch=True, max_records=4, decoder=decode, retry=Retry(), dead_letter="dlq"
    )
    async def bill(orders: list[int]) -> None:
        handled.append(orders)

    async with TestConsumer(consumer) as t:
        for number in range(4):
            await t.publish("orders", b"%d" % number, partition=0)
        await t.advance(0.2)
        assert handled == [[0, 1]]
        assert t.committed("orders", 0) == 2
        up[0] = True
        await t.advance(5)
        assert handled == [[0, 1], [2, 3]]
        assert t.dead_letters("dlq") == []
        assert t.committed("orders", 0) == 4
