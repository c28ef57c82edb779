"""Exceptions whose class says something else, or raises when it is asked: what counts is what
``except`` would catch."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from asyncrevoke import BatchError, Consumer, Record, Retry
from asyncrevoke.client.printable import HiddenClassError, is_caught_by, reportable
from asyncrevoke.handlers.decoding.decoders import is_temporary
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class RefusingMeta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        raise SystemExit("no instance")

    @property
    def __mro__(cls) -> tuple[type, ...]:
        raise SystemExit("no bases")

    def __eq__(cls, other: object) -> bool:
        raise SystemExit("not comparable")

    __hash__ = type.__hash__


class RefusingError(ConnectionError, metaclass=RefusingMeta):
    pass


class HiddenError(ConnectionError):
    def __getattribute__(self, name: str) -> object:
        if name == "__class__":
            raise SystemExit("no class")
        return super().__getattribute__(name)


class LyingError(ConnectionError):
    __class__ = KeyError  # type: ignore[assignment]


class EveryMeta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return True


class EveryError(Exception, metaclass=EveryMeta):
    pass


kinds = pytest.mark.parametrize("kind", [RefusingError, HiddenError, LyingError])


@kinds
@pytest.mark.parametrize("named", [ConnectionError, OSError, Exception, (KeyError, OSError)])
def test_it_is_caught_by_its_bases(
    kind: type[Exception], named: type[Exception] | tuple[type[Exception], ...]
) -> None:
    assert is_caught_by(kind(), named)
    assert is_caught_by(reportable(kind()), named)
    assert is_caught_by(kind(), kind)


@kinds
def test_it_is_not_caught_by_what_it_says_it_is(kind: type[Exception]) -> None:
    for other in (KeyError, RuntimeError, EveryError, (KeyError, ValueError)):
        assert not is_caught_by(reportable(kind()), other)


@kinds
@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize(("named", "calls"), [("itself", 3), ("base", 3), ("other", 1)])
async def test_retry_on_names_it_by_its_class(
    kind: type[Exception], named: str, calls: int, *, batch: bool
) -> None:
    consumer = Consumer(group_id="billing")
    others = (KeyError, EveryError)
    retry_on = others if named == "other" else kind if named == "itself" else ConnectionError
    called: list[object] = []
    handler = consumer.handler(
        "orders",
        retry=Retry(attempts=3, backoff=0.1, retry_on=retry_on),
        dead_letter="dlq",
        batch=batch,
    )

    async def bill(order: bytes) -> None:
        called.append(order)
        raise kind

    async def bill_all(orders: list[bytes]) -> None:
        called.append(orders)
        raise BatchError({0: kind()})

    handler(bill_all if batch else bill)

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        await t.advance(5)
        assert len(t.dead_letters("dlq")) == 1
    assert len(called) == calls


@kinds
async def test_a_decoder_that_raises_it_is_tried_again(kind: type[Exception]) -> None:
    assert is_temporary(kind())
    consumer = Consumer(group_id="billing")
    decoded: list[bytes | None] = []

    def decode(record: Record) -> object:
        decoded.append(record.value)
        raise kind

    @consumer.handler(
        "orders",
        decoder=decode,
        retry=Retry(attempts=3, backoff=0.1, retry_on=ConnectionError),
        dead_letter="dlq",
    )
    async def bill(order: object) -> None: ...

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        await t.advance(5)
        (letter,) = t.dead_letters("dlq")
    assert len(decoded) == 3
    assert kind.__name__.encode() in (dict(letter.headers)["asyncrevoke-error-message"] or b"")


@kinds
async def test_a_record_whose_predicate_raises_it_becomes_a_dead_letter_with_its_name(
    kind: type[Exception],
) -> None:
    consumer = Consumer(group_id="billing")

    def is_large(_record: Record) -> bool:
        raise kind

    @consumer.handler("orders", where=is_large, dead_letter="dlq")
    async def bill(order: bytes) -> None: ...

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        (letter,) = t.dead_letters("dlq")
    assert kind.__name__.encode() in (dict(letter.headers)["asyncrevoke-error-message"] or b"")


@kinds
@pytest.mark.parametrize("at", ["entry", "exit"])
async def test_a_lifespan_that_raises_it_stops_the_consumer(kind: type[Exception], at: str) -> None:
    @asynccontextmanager
    async def state(_partition: object) -> AsyncGenerator[None]:
        if at == "entry":
            raise kind
        yield
        raise kind

    consumer = Consumer(group_id="billing")
    consumer.partition_lifespan(state)

    @consumer.handler("orders")
    async def bill(order: bytes) -> None:
        await asyncio.sleep(0)

    with pytest.raises((ConnectionError, HiddenClassError)) as raised:
        async with TestConsumer(consumer, partitions=1) as t:
            await t.publish("orders", b"1")
            await t.advance(1)
            await t.revoke(("orders", 0))
            await t.advance(1)
    assert is_caught_by(raised.value, ConnectionError)
