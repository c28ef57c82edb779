"""The option ``encoder``: what it gets, and what its failures mean."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from asyncrevoke import ConfigError, Consumer, Message, Record, Retry
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def framed(topic: str, value: object) -> bytes:
    return f"{topic}:{value}".encode()


async def framed_later(topic: str, value: object) -> bytes:
    await asyncio.sleep(0.1)
    return framed(topic, value)


def refuse(topic: str, value: Any) -> bytes:
    raise ValueError(value["secret"])


def as_text(topic: str, value: object) -> str:
    return "text"


def of_one(value: object) -> bytes:
    return b""


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]


@pytest.mark.parametrize("encoder", [framed, framed_later])
@pytest.mark.parametrize("processing", ["at_least_once", "exactly_once"])
async def test_every_result_is_encoded_for_its_topic(encoder: Any, processing: Any) -> None:
    consumer = Consumer(group_id="billing", processing=processing)

    @consumer.handler("orders", publish_to="out", encoder=encoder)
    async def bill(order: int) -> object:
        return {
            0: None,
            1: 10,
            2: [20, None, Message(21, key="k", headers={"h": "1"})],
            3: Message(30, topic="other"),
            4: Message(None),
        }[order]

    async with TestConsumer(consumer) as t:
        for order in range(5):
            await t.publish("orders", str(order), key="same", partition=0)
        await t.advance(5)
        assert t.committed("orders", 0) == 5
        out = t.records("out")
        of_the_same_key = [record for record in out if record.key == b"same"]
        assert values(of_the_same_key) == [b"out:10", b"out:20", None]
        (other,) = [record for record in out if record.key == b"k"]
        assert (other.value, other.headers) == (b"out:21", (("h", b"1"),))
        assert values(t.records("other")) == [b"other:30"]


async def test_results_of_batches_generators_and_blocking_handlers_are_encoded() -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler("batches", batch=True, publish_to="out", encoder=framed_later)
    async def several(orders: list[int]) -> list[int]:
        return [order + 1 for order in orders]

    @consumer.handler("yielded", publish_to="out", encoder=framed_later)
    async def generate(order: int) -> AsyncIterator[int]:
        yield order
        yield order

    @consumer.handler("blocking", publish_to="out", encoder=framed_later, run_in="thread")
    def block(order: int) -> int:
        return order

    async with TestConsumer(consumer) as t:
        for topic, order in (("batches", 1), ("yielded", 5), ("blocking", 7)):
            await t.publish(topic, str(order), partition=0)
        await t.advance(5)
        found = sorted(record.value or b"" for record in t.records("out"))
        assert found == [b"out:2", b"out:5", b"out:5", b"out:7"]


async def test_a_decoder_of_a_router_keeps_the_encoder() -> None:
    from asyncrevoke import Router

    router = Router()

    @router.handler("orders", publish_to="out", encoder=framed)
    async def bill(order: str) -> str:
        return order

    consumer = Consumer(group_id="billing", decoder=lambda record: f"decoded {record.offset}")
    consumer.include_router(router)
    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1")
        await t.advance(1)
        assert values(t.records("out")) == [b"out:decoded 0"]


async def test_a_temporary_error_of_an_encoder_is_retried_with_its_handler() -> None:
    attempts: list[int] = []

    async def encoder(topic: str, value: object) -> bytes:
        attempts.append(1)
        if len(attempts) < 3:
            raise ConnectionError("the registry does not respond")
        return framed(topic, value)

    consumer = Consumer(group_id="billing")

    @consumer.handler(
        "orders",
        publish_to="out",
        encoder=encoder,
        retry=Retry(retry_on=ConnectionError),
        dead_letter="dlq",
    )
    async def bill(order: int) -> int:
        return order

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1", partition=0)
        await t.advance(10)
        assert values(t.records("out")) == [b"out:1"]
        assert t.dead_letters("dlq") == []
        assert t.committed("orders", 0) == 1


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (refuse, "failed: ValueError"),
        (as_text, "returned a str: it has to return bytes"),
    ],
)
async def test_a_result_that_cannot_be_encoded_fails_its_record(encoder: Any, message: str) -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders", publish_to="out", encoder=encoder, dead_letter="dlq")
    async def bill(order: int) -> dict[str, str]:
        return {"secret": "hunter2"}

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1")
        await t.advance(1)
        (letter,) = t.dead_letters("dlq")
        text = (dict(letter.headers)["asyncrevoke-error-message"] or b"").decode()
        assert message in text
        assert "hunter2" not in text
        assert t.records("out") == []


@pytest.mark.parametrize(
    ("encoder", "publish_to", "message"),
    [
        (framed, None, "encoder encodes results, and there are none"),
        ("avro", "out", "encoder='avro' cannot be called"),
        (of_one, "out", "takes something else"),
    ],
)
def test_what_cannot_be_an_encoder_is_rejected(
    encoder: Any, publish_to: str | None, message: str
) -> None:
    consumer = Consumer(group_id="billing")
    options = cast("Any", {"encoder": encoder})
    if publish_to is not None:
        options["publish_to"] = publish_to
    with pytest.raises(ConfigError, match=message):
        consumer.handler("orders", **options)
