"""Dependencies of handlers, by fast-depends."""

from __future__ import annotations

import functools
import subprocess
import sys
from typing import TYPE_CHECKING, Annotated, Any

import fastapi
import pytest
from fast_depends import dependency_provider

from asyncrevoke import ConfigError, Consumer, Depends, HandlerContext, Record, Router
from asyncrevoke.handlers.policy.dependencies import HandlerWithDependencies
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable


async def handled(register: Callable[[Consumer], object], *values: bytes) -> TestConsumer:
    consumer = Consumer(group_id="g")
    register(consumer)
    async with TestConsumer(consumer, partitions=1) as t:
        for value in values:
            await t.publish("orders", value, key="k")
        await t.advance(2)
        assert t.committed("orders", 0) == len(values)
    return t


async def shop(record: Record) -> str:
    return f"shop {record.offset}"


SharedShop = Annotated[str, fastapi.Depends(shop), Depends(shop)]


async def till(shop: Annotated[str, Depends(shop)], value: bytes) -> str:
    return f"till of {shop} for {value.decode()}"


async def attempt(context: HandlerContext) -> int:
    return context.attempt


async def test_dependencies_are_called_and_given_by_default_and_by_annotation() -> None:
    seen: list[object] = []

    def register(consumer: Consumer) -> None:
        @consumer.handler("orders")
        async def bill(
            value: bytes,
            till: Annotated[str, Depends(till)],
            attempt: int = Depends(attempt),
            *,
            limit: int = 3,
        ) -> None:
            seen.append((value, till, attempt, limit))

    await handled(register, b"a", b"b")
    assert seen == [(b"a", "till of shop 0 for a", 1, 3), (b"b", "till of shop 1 for b", 1, 3)]


async def test_a_dependency_that_yields_ends_after_the_handler_and_is_made_once_per_call() -> None:
    lines: list[str] = []

    async def session() -> AsyncGenerator[str]:
        lines.append("open")
        yield "s"
        lines.append("close")

    async def first(session: str = Depends(session)) -> str:
        return session

    def register(consumer: Consumer) -> None:
        @consumer.handler("orders")
        async def bill(
            value: bytes, one: str = Depends(first), two: str = Depends(session)
        ) -> None:
            lines.append(f"handle {one}{two}")

    await handled(register, b"a")
    assert lines == ["open", "handle ss", "close"]


async def test_a_dependency_that_fails_is_a_failure_of_its_record() -> None:
    async def broken() -> None:
        raise ConnectionError("no database")

    consumer = Consumer(group_id="g")

    @consumer.handler("orders", dead_letter="dlq")
    async def bill(value: bytes, session: None = Depends(broken)) -> None:
        raise AssertionError("called without its dependency")

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1")
        (letter,) = t.dead_letters("dlq")
        assert dict(letter.headers)["asyncrevoke-error-message"] == b"no database"


async def offsets(records: list[Record]) -> list[int]:
    return [record.offset for record in records]


async def test_batches_get_dependencies_too() -> None:
    seen: list[object] = []

    consumer = Consumer(group_id="g")

    @consumer.handler("orders", batch=True, max_records=2)
    async def store(values: list[bytes], these: Annotated[list[int], Depends(offsets)]) -> None:
        seen.append((values, these))

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"a")
        await t.publish("orders", b"b")
    assert seen == [([b"a", b"b"], [0, 1])]


def registered(function: Any, consumer: Consumer) -> None:
    consumer.handler("orders")(function)


async def test_callables_of_every_kind_may_have_dependencies() -> None:
    seen: list[object] = []

    class Bill:
        async def __call__(self, value: bytes, shop: str = Depends(shop)) -> None:
            seen.append(shop)

    async def with_name(name: str, value: bytes, shop: str = Depends(shop)) -> None:
        seen.append(name + shop)

    for function in (Bill(), functools.partial(with_name, "my ")):
        await handled(functools.partial(registered, function), b"a")
    assert seen == ["shop 0", "my shop 0"]


async def test_a_test_may_put_another_dependency_in_its_place() -> None:
    seen: list[str] = []

    async def other() -> str:
        return "a test's shop"

    def register(consumer: Consumer) -> None:
        @consumer.handler("orders")
        async def bill(value: bytes, shop: str = Depends(shop)) -> None:
            seen.append(shop)

    with dependency_provider.scope(shop, other):
        await handled(register, b"a")
    await handled(register, b"a")
    assert seen == ["a test's shop", "shop 0"]


def test_a_handler_without_dependencies_is_not_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    def rejected(*_: object) -> None:
        raise AssertionError("wrapped for nothing")

    monkeypatch.setattr(HandlerWithDependencies, "__init__", rejected)
    router = Router()

    @router.handler("orders")
    async def bill(value: bytes, record: Record, limit: int = 3) -> None: ...

    assert router.find("orders").function is bill


async def wants_too_much(customer: str) -> str:
    return customer


async def wants_rest(*rest: str) -> None: ...


class Context:
    """As FastStream's: ``broker: Broker = Context()``."""

    __module__ = "faststream.utils.context.types"


@pytest.mark.parametrize(
    ("dependency", "says"),
    [
        (Depends(wants_too_much), "has the parameter customer"),
        (Depends(wants_rest), r"takes \*rest"),
        (fastapi.Depends(shop), "the Depends of FastAPI"),
        (Context(), "the Context of FastStream: take it out, and annotate a .* HandlerContext"),
    ],
)
def test_dependencies_that_cannot_be_called_are_a_config_error(dependency: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):

        @Router().handler("orders")
        async def bill(value: bytes, shop: str = dependency) -> None: ...


async def test_a_type_with_both_depends_is_for_requests_and_for_handlers() -> None:
    seen: list[str] = []

    def register(consumer: Consumer) -> None:
        @consumer.handler("orders")
        async def bill(value: bytes, record: Record, shop: SharedShop) -> None:
            seen.append(shop)

    await handled(register, b"a")
    assert seen == ["shop 0"]


def test_a_value_given_by_place_only_is_rejected() -> None:
    with pytest.raises(ConfigError, match="by name"):

        @Router().handler("orders")
        async def bill(value: bytes, /, shop: str = Depends(shop)) -> None: ...


def test_without_the_extra_the_import_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['fast_depends'] = None\n"
        "import asyncrevoke\n"
        "from asyncrevoke import Consumer\n"
        "@Consumer(group_id='g').handler('orders')\n"
        "async def bill(value: bytes, limit: int = 3) -> None: ...\n"
        "from asyncrevoke import Depends\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: Depends needs fast-depends: pip install 'asyncrevoke[depends]'"
    )


def test_a_consumer_without_dependencies_does_not_load_fast_depends() -> None:
    code = (
        "import sys\n"
        "from asyncrevoke import Consumer\n"
        "@Consumer(group_id='g').handler('orders')\n"
        "async def bill(value: bytes) -> None: ...\n"
        "assert 'fast_depends' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
