"""Handlers of one topic that are told apart by the tags of their values."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec
import pydantic
import pytest

from asyncrevoke import Consumer, DecodeError, Record, by_header
from asyncrevoke.testing import TestConsumer


class Created(msgspec.Struct, tag="created", tag_field="type"):
    id: int


class Deleted(msgspec.Struct, tag="deleted", tag_field="type"):
    id: int


class Moved(msgspec.Struct, tag="moved", tag_field="type"):
    id: int


class CreatedArray(msgspec.Struct, tag=1, array_like=True):
    id: int


class DeletedArray(msgspec.Struct, tag=2, array_like=True):
    id: int


class Kind(StrEnum):
    PAID = "paid"


class Event(pydantic.BaseModel):
    version: Literal[1] = 1
    id: int


class Paid(Event):
    kind: Literal[Kind.PAID] = pydantic.Field(alias="kind-of-event")


class Refunded(Event):
    kind: Literal["refunded", "reversed"] = pydantic.Field(alias="kind-of-event")


async def test_structs_go_to_the_handlers_of_their_tags() -> None:
    consumer = Consumer(group_id="billing")
    got: list[object] = []

    @consumer.handler("orders")
    async def created(event: Created) -> None:
        got.append(event)

    @consumer.handler("orders")
    async def gone(event: Deleted | Moved | None) -> None:
        got.append(event)

    async with TestConsumer(consumer) as t:
        for kind in ("created", "deleted", "moved"):
            await t.publish("orders", {"id": 1, "type": kind})
        await t.publish("orders", None)
        assert len(t.calls_of(created)) == 1
        assert len(t.calls_of(gone)) == 3
    assert got == [Created(1), Deleted(1), Moved(1), None]


async def test_structs_that_are_arrays_go_to_the_handlers_of_their_tags() -> None:
    consumer = Consumer(group_id="billing")
    got: list[object] = []

    @consumer.handler("orders")
    async def created(event: CreatedArray) -> None:
        got.append(event)

    @consumer.handler("orders")
    async def deleted(event: DeletedArray) -> None:
        got.append(event)

    async with TestConsumer(consumer) as t:
        await t.publish("orders", [2, 7])
        await t.publish("orders", [1, 8])
    assert got == [DeletedArray(7), CreatedArray(8)]


async def test_pydantic_models_go_to_the_handlers_of_their_literals() -> None:
    consumer = Consumer(group_id="billing")
    got: list[type[object]] = []

    @consumer.handler("payments")
    async def paid(event: Paid) -> None:
        got.append(type(event))

    @consumer.handler("payments")
    async def refunded(event: Refunded) -> None:
        got.append(type(event))

    async with TestConsumer(consumer) as t:
        for kind in ("reversed", "paid", "refunded"):
            await t.publish("payments", {"id": 1, "kind-of-event": kind, "version": 1})
    assert got == [Refunded, Paid, Refunded]


async def test_a_value_is_decoded_once() -> None:
    consumer = Consumer(group_id="billing")
    validated: list[str] = []

    class One(pydantic.BaseModel):
        kind: Literal["one"]

        def model_post_init(self, context: object, /) -> None:
            validated.append("one")

    class Two(pydantic.BaseModel):
        kind: Literal["two"]

        def model_post_init(self, context: object, /) -> None:
            validated.append("two")

    async def first(event: One) -> None: ...

    async def second(event: Two) -> None: ...

    first.__annotations__["event"], second.__annotations__["event"] = One, Two
    consumer.handler("orders")(first)
    consumer.handler("orders")(second)
    async with TestConsumer(consumer) as t:
        await t.publish("orders", {"kind": "two"})
        await t.publish("orders", {"kind": "one"})
    assert validated == ["two", "one"]


async def test_the_handler_for_all_others_gets_values_without_a_known_tag() -> None:
    consumer = Consumer(group_id="billing")
    got: list[bytes | None] = []

    @consumer.handler("orders")
    async def created(event: Created) -> None: ...

    @consumer.handler("orders")
    async def others(record: Record) -> None:
        got.append(record.value)

    async with TestConsumer(consumer) as t:
        values = (b'{"type": "moved"}', b'{"type": ["created"]}', b"{}", b"no json", None)
        for value in values:
            await t.publish("orders", value)
        await t.publish("orders", {"type": "created", "id": 1})
        assert len(t.calls_of(created)) == 1
    assert got == list(values)


async def test_a_value_whose_tag_cannot_be_read_does_not_decode() -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders", dead_letter="orders.dlq", unmatched="skip")
    async def created(event: Created) -> None: ...

    @consumer.handler("orders")
    async def deleted(event: Deleted) -> None: ...

    async with TestConsumer(consumer) as t:
        await t.publish("orders", "no json", partition=0)
        await t.publish("orders", {"type": "moved"}, partition=0)
        await t.advance(5)
        (letter,) = t.dead_letters("orders.dlq")
        assert letter.value == b"no json"
        assert t.committed("orders", 0) == 2
        with pytest.raises(DecodeError, match="orders-1 at offset 0"):
            await t.publish("orders", {"type": "deleted", "id": "x"}, partition=1)


@pytest.mark.parametrize("default", [False, True])
async def test_a_nested_value_is_one_that_does_not_decode_and_the_next_is_handled(
    default: bool, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = Consumer(group_id="billing")
    got: list[object] = []

    @consumer.handler("orders", on_error="skip")
    async def created(event: Created) -> None:
        got.append(event)

    if default:

        @consumer.handler("orders", on_error="skip")
        async def others(value: bytes) -> None:
            got.append(len(value))

    else:

        @consumer.handler("orders", on_error="skip")
        async def deleted(event: Deleted) -> None: ...

    nested = b'{"type":"created","x":' + b"[" * 100_000 + b"]" * 100_000 + b',"id":1}'
    async with TestConsumer(consumer) as t:
        await t.publish("orders", nested, partition=0)
        await t.publish("orders", {"type": "created", "id": 2}, partition=0)
        await t.advance(5)
        assert t.committed("orders", 0) == 2
    if not default:
        assert 'the tag "type" cannot be read: nested too deeply' in caplog.text
    assert got == ([len(nested), Created(2)] if default else [Created(2)])


async def test_one_handler_of_a_tag_leaves_others_unmatched_if_told_what_follows() -> None:
    consumer = Consumer(group_id="billing")
    got: list[object] = []

    @consumer.handler("orders", unmatched="skip")
    async def created(event: Created) -> None:
        got.append(event)

    async with TestConsumer(consumer) as t:
        await t.publish("orders", {"type": "deleted", "id": 1}, partition=0)
        await t.publish("orders", {"type": "created", "id": 2}, partition=0)
        await t.advance(5)
        assert t.committed("orders", 0) == 2
    assert got == [Created(2)]


async def test_predicates_are_asked_before_tags() -> None:
    consumer = Consumer(group_id="billing")
    got: list[str] = []

    @consumer.handler("orders")
    async def created(event: Created) -> None:
        got.append("created")

    @consumer.handler("orders")
    async def deleted(event: Deleted) -> None:
        got.append("deleted")

    @consumer.handler("orders", where=by_header("legacy"))
    async def legacy(value: bytes) -> None:
        got.append("legacy")

    async with TestConsumer(consumer) as t:
        await t.publish("orders", {"type": "created", "id": 1}, headers={"legacy": "1"})
        await t.publish("orders", {"type": "deleted", "id": 1})
    assert got == ["legacy", "deleted"]
