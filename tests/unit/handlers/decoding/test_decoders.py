"""Decoders of the user: what they get, what their failures mean, what is rejected."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest
from unit.handlers.scripted_runner import running
from unit.handlers.scripted_source import RecordState, record, until

from asyncrevoke import Consumer, Record
from asyncrevoke.client.errors import ConfigError, DecodeError, HandlerExitError
from asyncrevoke.handlers.policy.retry import Retry
from asyncrevoke.handlers.registry import Router
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from asyncrevoke.handlers.dead_letters.dead_letter import DeadLetter
    from asyncrevoke.handlers.policy.handler_function import HandlerFunction


class Foreign:
    """What no annotation of ours could decode."""

    def __init__(self, of: Record) -> None:
        self.of = of


@dataclass
class Order:
    id: int
    customer: str


class Letters:
    """Takes every letter at once."""

    def __init__(self) -> None:
        self.sent: list[DeadLetter] = []

    async def send(self, topic: str, letter: DeadLetter) -> None:
        self.sent.append(letter)


def number(of: Record) -> int:
    """The value as a number; a tombstone is 0."""
    return 0 if of.value is None else int(of.value)


def rejection(decoder: object, function: object = None, **options: Any) -> str:
    async def handle(value: int) -> None: ...

    with pytest.raises(ConfigError) as caught:
        Router().handler("orders", decoder=cast("Any", decoder), **options)(
            cast("HandlerFunction", function or handle)
        )
    return str(caught.value)


async def called(router: Router, of: Record) -> None:
    call = router.find("orders").call
    assert call is not None
    await call(of)


# -- values ---------------------------------------------------------------------------------------


async def test_a_decoder_gets_the_whole_record_whatever_the_annotation_says() -> None:
    got: list[object] = []

    async def plain(value: Foreign) -> None:
        got.append(value)

    async def bare(value: Foreign) -> None:
        got.append(value)

    async def unknown(value: Foreign) -> None:
        got.append(value)

    del bare.__annotations__["value"]
    unknown.__annotations__["value"] = "OnlyKnownToTypeCheckers"
    one = record(3)
    for function in (plain, bare, unknown):
        router = Router()
        router.handler("orders", decoder=Foreign)(function)
        await called(router, one)
    assert [cast("Foreign", each).of for each in got] == [one, one, one]


async def test_a_tombstone_reaches_the_decoder() -> None:
    got: list[int] = []
    router = Router()

    @router.handler("orders", decoder=number)
    async def handle(value: int) -> None:
        got.append(value)

    await called(router, record(0, value=None))
    assert got == [0]


async def test_record_and_context_are_given_beside_the_decoded_value() -> None:
    got: list[object] = []

    async def handle(value: Foreign, where: Record) -> None:
        got.extend((value.of, where))

    async with running(handle, decoder=Foreign) as run:
        one = record(0)
        run.source.feed(one)
        await until(lambda: one in run.source.completions)
        await run.stop()
    assert got == [one, one]


async def test_batches_are_decoded_one_by_one_and_what_fails_leaves_the_batch_alone() -> None:
    got: list[list[int]] = []
    letters = Letters()

    async def handle(values: list[int]) -> None:
        got.append(values)

    good, bad, last = record(0, value=b"7"), record(1, value=b"seven"), record(2, value=b"9")
    async with running(
        handle,
        decoder=number,
        batch=True,
        max_records=3,
        dead_letter="dlq",
        dead_letters=letters,
    ) as run:
        run.source.feed(good, bad, last)
        await until(lambda: last in run.source.completions)
        await run.stop()
        assert run.source.state_of(bad) is RecordState.DONE
    assert got == [[7, 9]]
    assert [letter.value for letter in letters.sent] == [b"seven"]


async def test_a_batch_handler_with_a_decoder_may_leave_its_values_without_a_type() -> None:
    got: list[object] = []

    async def bare(values: list[Any]) -> None:
        got.append(values)

    async def plain(values: list[Any]) -> None:
        got.append(values)

    del bare.__annotations__["values"]
    plain.__annotations__["values"] = list

    async def wanted(values: list[Any]) -> None:
        got.append(values)

    for function in (bare, plain, wanted):
        async with running(function, decoder=number, batch=True, max_records=1) as run:
            run.source.feed(record(0, value=b"7"))
            await until(lambda: run.source.completions)
            await run.stop()
    assert got == [[7], [7], [7]]


# -- whose decoder --------------------------------------------------------------------------------


async def test_the_decoder_of_a_handler_wins_over_the_routers_and_that_over_the_consumers() -> None:
    got: dict[str, object] = {}

    def told(name: str) -> Callable[[Record], str]:
        return lambda _record: name

    consumer = Consumer(group_id="billing", decoder=told("consumer"))
    router, plain = Router(decoder=told("router")), Router()

    @consumer.handler("own", decoder=told("handler"))
    async def own(value: str) -> None:
        got["own"] = value

    @consumer.handler("consumers")
    async def consumers(value: str) -> None:
        got["consumers"] = value

    @consumer.handler("record")
    async def whole(value: Record) -> None:
        got["record"] = value.value

    @router.handler("routers")
    async def routers(value: str) -> None:
        got["routers"] = value

    @plain.handler("included")
    async def included(value: str) -> None:
        got["included"] = value

    @plain.handler("batches", batch=True, max_wait=0)
    async def batches(values: list[str]) -> None:
        got["batches"] = values

    consumer.include_router(router)
    consumer.include_router(plain)
    async with TestConsumer(consumer) as t:
        for topic in ("own", "consumers", "record", "routers", "included", "batches"):
            await t.publish(topic, "bytes")
    assert got == {
        "own": "handler",
        "consumers": "consumer",
        "record": b"bytes",
        "routers": "router",
        "included": "consumer",
        "batches": ["consumer"],
    }


# -- failures -------------------------------------------------------------------------------------


async def test_a_failed_decoder_is_not_called_again_and_the_record_is_a_dead_letter() -> None:
    decoded: list[int] = []
    letters = Letters()

    def decode(of: Record) -> int:
        decoded.append(of.offset)
        return number(of)

    async def handle(value: int) -> None: ...

    bad, good = record(0, value=b"seven"), record(1, value=b"7")
    async with running(
        handle,
        decoder=decode,
        retry=Retry(attempts=5),
        dead_letter="dlq",
        dead_letters=letters,
    ) as run:
        run.source.feed(bad, good)
        await until(lambda: good in run.source.completions)
        await run.stop()
    assert decoded == [0, 1]
    (letter,) = letters.sent
    headers = dict(letter.headers)
    assert letter.value == b"seven"
    assert headers["asyncrevoke-error-type"] == b"asyncrevoke.errors.DecodeError"
    assert b"decode failed: ValueError at test_decoders.py:" in (
        headers["asyncrevoke-error-message"] or b""
    )
    assert headers["asyncrevoke-attempts"] == b"0"


async def test_a_failure_of_a_decoder_stops_the_consumer_by_default() -> None:
    async def handle(value: int) -> None: ...

    async with running(handle, decoder=number) as run:
        bad, behind = record(0, value=b"seven"), record(1, value=b"7")
        run.source.feed(bad, behind)
        error = await run.failure()
        assert isinstance(error, DecodeError)
        assert isinstance(error.original, ValueError)
        assert run.source.state_of(bad) is RecordState.ABANDONED
        assert run.source.commit_point([bad, behind]) == 0


async def test_a_failure_of_a_decoder_can_be_skipped() -> None:
    async def handle(value: int) -> None: ...

    async with running(handle, decoder=number, on_error="skip") as run:
        bad, good = record(0, value=b"seven"), record(1, value=b"7")
        run.source.feed(bad, good)
        await until(lambda: good in run.source.completions)
        assert run.source.state_of(bad) is RecordState.DONE
        await run.stop()


async def test_a_decoder_that_exits_stops_the_consumer() -> None:
    def leave(of: Record) -> int:
        raise SystemExit(3)

    async def handle(value: int) -> None: ...

    async with running(handle, decoder=leave, on_error="skip") as run:
        run.source.feed(record(0))
        error = await run.failure()
        assert isinstance(error, HandlerExitError)


async def test_a_decoder_that_returns_a_coroutine_has_failed() -> None:
    async def later(of: Record) -> int:
        return number(of)

    def returns_later(of: Record) -> object:
        return later(of)

    async def handle(value: int) -> None: ...

    async with running(handle, decoder=returns_later) as run:
        run.source.feed(record(0))
        error = await run.failure()
        assert isinstance(error, DecodeError)
        assert "returned a coroutine, and is not async" in str(error)


# -- what is rejected ------------------------------------------------------------------------------


def test_a_value_that_cannot_be_a_decoder_is_a_config_error_with_the_fix() -> None:
    async def several(of: Record) -> AsyncIterator[int]:
        yield number(of)

    class Registry:
        """Like the deserializers of schema registries."""

        def __call__(self, data: bytes | None, context: object = None) -> object: ...

    def two(value: bytes, context: object) -> object: ...

    def nothing() -> object: ...

    def of_bytes(value: bytes) -> object: ...

    assert "decoder=lambda record: parse(record.value)" in rejection("avro")
    assert "several yields: return the value" in rejection(several)
    assert "takes something else: wrap it" in rejection(Order)
    assert "takes something else: wrap it" in rejection(two)
    assert "takes something else: wrap it" in rejection(nothing)
    assert "takes bytes: wrap it" in rejection(of_bytes)
    assert "takes bytes: wrap it" in rejection(Registry())


def test_decoders_of_all_kinds_are_taken() -> None:
    class Service:
        def decode(self, of: Record, strict: bool = True) -> int:
            return number(of)

        __call__ = decode

    async def handle(value: int) -> None: ...

    def with_more(prefix: str, of: Record) -> int:
        return number(of)

    def any_number(*arguments: object) -> int:
        return len(arguments)

    decoders: list[Any] = [
        Service().decode,
        Service(),
        functools.partial(with_more, "p"),
        number,
        any_number,
        json.loads,  # that it wants no Record cannot be seen from outside
    ]
    for decoder in decoders:
        Router().handler("orders", decoder=decoder)(handle)


def test_a_handler_still_needs_a_signature_that_takes_the_value() -> None:
    from asyncrevoke import HandlerContext

    async def none() -> None: ...

    async def context(value: HandlerContext) -> None: ...

    async def more(value: int, database: int) -> None: ...

    async def whole(value: Record) -> None: ...

    async def all_of_them(values: list[Record]) -> None: ...

    async def single(value: int) -> None: ...

    def sync(value: int) -> None: ...

    none.__annotations__.clear()
    context.__annotations__["value"] = HandlerContext
    assert "takes no parameter" in rejection(number, none)
    assert "annotated HandlerContext" in rejection(number, context)
    assert "parameter database" in rejection(number, more)
    assert "leave out decoder=" in rejection(number, whole)
    assert "leave out decoder=" in rejection(number, all_of_them, batch=True)
    assert "list[Order]" in rejection(number, single, batch=True)
    assert "sync function" in rejection(number, sync)


def test_the_error_of_an_annotation_that_cannot_be_decoded_names_a_decoder() -> None:
    async def handle(value: Foreign) -> None: ...

    with pytest.raises(ConfigError, match="give the handler, its Router or the Consumer a decoder"):
        Router().handler("orders")(handle)


def test_a_decoder_of_a_consumer_or_router_is_checked_when_it_is_made() -> None:
    with pytest.raises(ConfigError, match="cannot be called"):
        Consumer(group_id="billing", decoder=cast("Any", "avro"))
    with pytest.raises(ConfigError, match="cannot be called"):
        Router(decoder=cast("Any", "avro"))


async def test_a_decoder_needs_handlers() -> None:
    consumer = Consumer("orders", group_id="billing", decoder=number)
    with pytest.raises(ConfigError, match="decoder= is for handlers"):
        await consumer.start()
