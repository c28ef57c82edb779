"""Where a handler publishes, and what its annotation says of that."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

import pytest
from unit.handlers.scripted_source import LogLines, ScriptedSource, record, until

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.consumer import Consumer
from asyncrevoke.handlers.execution.runner_context import RunnerContext
from asyncrevoke.handlers.policy.handler_function import HandlerFunction  # noqa: TC001
from asyncrevoke.handlers.registry import Router
from asyncrevoke.handlers.runner import HandlerRunner
from asyncrevoke.testing import TestConsumer


async def returns_bytes(value: bytes) -> bytes:
    return value


async def returns_nothing(value: bytes) -> None: ...


async def enter(function: HandlerFunction) -> None:
    """Enter a consumer with this handler."""
    consumer = Consumer(group_id="g")
    consumer.handler("orders")(function)
    async with TestConsumer(consumer):
        pass


@pytest.mark.parametrize("registry", [Router(), Consumer(group_id="g")])
def test_registering_rejects_a_result_that_is_published_nowhere(registry: Any) -> None:
    with pytest.raises(ConfigError, match=r"returns bytes, and publishes it nowhere: .*publish_to"):
        registry.handler("orders")(returns_bytes)


def test_registering_rejects_a_result_of_a_batch_that_is_published_nowhere() -> None:
    async def several(values: list[bytes]) -> list[bytes]:
        return values

    with pytest.raises(ConfigError, match=r"returns list\[bytes\], and publishes it nowhere"):
        Router().handler("orders", batch=True)(several)


async def test_a_return_annotation_that_is_defined_later_is_checked_at_entering() -> None:
    async def bill(value: bytes) -> Any: ...

    bill.__annotations__["return"] = "Invoice"
    consumer = Consumer(group_id="g")
    consumer.handler("orders")(bill)
    bill.__globals__["Invoice"] = bytes
    try:
        with pytest.raises(ConfigError, match="returns bytes, and publishes it nowhere"):
            async with TestConsumer(consumer):
                pass
    finally:
        del bill.__globals__["Invoice"]


async def test_a_handler_may_say_that_only_replays_keep_its_results() -> None:
    router = Router()
    assert router.handler("orders", publish_to=None)(returns_bytes) is returns_bytes
    (handler,) = router.handlers
    assert handler.publish_to is None
    consumer = Consumer(group_id="g")
    consumer.include_router(router)
    async with TestConsumer(consumer) as test:
        await test.publish("orders", b"1")
    with pytest.raises(ConfigError, match=r"publishes it nowhere: .*, or give publish_to=None if"):
        router.handler("returns")(returns_bytes)


async def test_a_return_annotation_that_is_never_defined_passes() -> None:
    async def bill(value: bytes) -> Any: ...

    bill.__annotations__["return"] = "Invoice"
    await enter(bill)


async def test_publish_to_without_a_result_is_rejected() -> None:
    with pytest.raises(ConfigError, match="has publish_to, and is annotated `-> None`"):
        Router().handler("orders", publish_to="results")(returns_nothing)


async def test_annotations_that_say_nothing_pass() -> None:
    async def of_any(value: bytes) -> Any: ...
    async def of_object(value: bytes) -> object: ...
    async def never(value: bytes) -> NoReturn:
        raise ValueError

    async def bare(value: bytes) -> Any: ...

    del bare.__annotations__["return"]

    for function in (of_any, of_object, never, bare, returns_nothing):
        await enter(function)


@pytest.mark.parametrize("topics", [{"topics": ("orders",)}, {"topics": (), "pattern": "or.*"}])
async def test_a_handler_must_not_read_its_own_results(topics: dict[str, Any]) -> None:
    options = dict(topics)
    names = options.pop("topics")
    with pytest.raises(ConfigError, match="would read its own results for ever"):
        Router().handler(*names, publish_to="orders", **options)(returns_bytes)


async def test_a_replay_returns_results_and_publishes_nothing() -> None:
    returned: list[object] = []

    class Recorder:
        async def call(self, *call: Any) -> None:
            returned.append(await call[-1]())

        def first_call(self, _call: object, /) -> None: ...

        def failure_decided(self, *_: object) -> None: ...

    source = ScriptedSource()
    router = Router()
    router.handler("orders", publish_to="results")(returns_bytes)
    context = RunnerContext(concurrency=2, log=LogLines(), call_recorder=Recorder())
    run = asyncio.ensure_future(HandlerRunner(source, router, context).run())
    source.feed(record(0, value=b"7"))
    await until(lambda: returned)
    source.stop()
    await run
    assert returned == [b"7"]


async def test_a_topic_must_be_a_name() -> None:
    with pytest.raises(ConfigError, match="not a valid topic name"):
        Router().handler("orders", publish_to="no name")(returns_bytes)


async def test_an_async_generator_needs_publish_to() -> None:
    async def several(value: bytes) -> Any:
        yield value

    with pytest.raises(ConfigError, match="publish_to"):
        Router().handler("orders")(several)
    Router().handler("orders", publish_to="results")(several)
