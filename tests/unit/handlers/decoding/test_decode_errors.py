"""What does not decode is told by its kind, field and position, and nothing of its content."""

from __future__ import annotations

import enum
import json
import logging
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import pydantic
import pytest
from unit.handlers.scripted_source import record

from asyncrevoke import Consumer
from asyncrevoke.client.errors import DecodeError
from asyncrevoke.handlers.decoding.decoders import custom_decoder, decoder_for
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from asyncrevoke import Record

SECRET = "4929-1234-secret"


class Kind(enum.Enum):
    CARD = "card"


class Model(pydantic.BaseModel):
    number: int
    kind: Literal["card"] = "card"
    by_key: dict[str, int] = {}
    inner: Model | None = None
    renamed: int = pydantic.Field(0, alias="otherName")

    @pydantic.field_validator("number")
    @classmethod
    def reject(cls, number: int) -> int:
        if number < 0:
            raise ValueError(f"{SECRET} is in a message of the application")
        return number


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    number: int = 0


class Struct(msgspec.Struct, forbid_unknown_fields=True):
    number: int = 0
    kind: Kind = Kind.CARD
    name: Annotated[str, msgspec.Meta(max_length=4, pattern="^a")] = "a"
    by_key: dict[str, int] = {}


class Cat(msgspec.Struct, tag=True):
    number: int


class Dog(msgspec.Struct, tag=True):
    number: int


@dataclass
class Data:
    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError(f"{SECRET} is not a number")


def json_of(value: object) -> bytes:
    return json.dumps(value).encode()


CASES: list[tuple[object, bytes, str]] = [
    (Model, json_of({"number": SECRET}), "$.number: int_parsing"),
    (Model, json_of({"number": 1, "kind": SECRET}), "$.kind: literal_error"),
    (Model, json_of({"number": 1, "by_key": {SECRET: "x"}}), "$.by_key[...]: int_parsing"),
    (Model, json_of({"number": 1, "inner": {"number": SECRET}}), "$.inner.number: int_parsing"),
    (Model, json_of({"number": 1, "otherName": SECRET}), "$.otherName: int_parsing"),
    (Model, json_of({"number": -1}), "$.number: value_error"),
    (Model, SECRET.encode(), "$: json_invalid"),
    (Strict, json_of({SECRET: 1}), "$[...]: extra_forbidden"),
    (Struct, json_of({"number": SECRET}), "Expected `int`, got `str` at $.number"),
    (Struct, json_of({"kind": SECRET}), "an invalid value at $.kind"),
    (Struct, json_of({"name": SECRET}), "Expected `str` of length <= 4 at $.name"),
    (Struct, json_of({"name": "sec"}), "an invalid value at $.name"),
    (Struct, json_of({"by_key": {SECRET: "x"}}), "Expected `int`, got `str` at $.by_key[...]"),
    (Struct, json_of({SECRET: 1}), "an unknown field"),
    (Struct, b"{" + SECRET.encode(), "JSON is malformed: "),
    (Cat | Dog, json_of({"type": SECRET}), "an invalid value at $.type"),
    (Data, json_of({"number": -1}), "an invalid value"),
    (Data, json_of({"other": SECRET}), "Object missing required field `number`"),
    (list[int], json_of([1, SECRET]), "Expected `int`, got `str` at $[1]"),
    (str, SECRET.encode() + b"\xff", f"no utf-8 at byte {len(SECRET)}"),
]


def parse(of: Record) -> object:
    return int(of.value or b"")


def load(of: Record) -> object:
    return json.loads(of.value or b"")


def clean(error: BaseException) -> str:
    told = "".join(traceback.format_exception(error)) + repr(error)
    assert SECRET not in told
    assert SECRET.encode().hex() not in told
    return str(error)


@pytest.mark.parametrize(("annotation", "value", "told"), CASES)
def test_an_error_names_kind_field_and_position_and_no_content(
    annotation: Any, value: bytes, told: str
) -> None:
    with pytest.raises(DecodeError) as failed:
        decoder_for(annotation, "the handler")(record(3, b"k", value=value))
    message = clean(failed.value)
    assert "at offset 3: the value does not decode as" in message
    assert told in message
    assert failed.value.original is not None


def test_a_custom_decoder_is_named_with_the_kind_and_the_line_of_its_error() -> None:
    with pytest.raises(DecodeError) as failed:
        custom_decoder(parse)(record(0, b"k", value=SECRET.encode()))
    assert "the decoder parse failed: ValueError at test_decode_errors.py:" in clean(failed.value)
    with pytest.raises(DecodeError) as failed:
        custom_decoder(load)(record(0, b"k", value=b'"' + SECRET.encode()))
    assert "the decoder load failed: no JSON at byte 0" in clean(failed.value)


def test_many_errors_of_one_value_are_counted() -> None:
    with pytest.raises(DecodeError) as failed:
        decoder_for(list[int], "the handler")(record(0, b"k", value=json_of([SECRET])))
    clean(failed.value)
    create: Any = pydantic.create_model
    model = create("Many", **{f"f{n}": (int, ...) for n in range(9)})
    with pytest.raises(DecodeError) as failed:
        decoder_for(model, "the handler")(record(0, b"k", value=b"{}"))
    assert "$.f0: missing; $.f1: missing; $.f2: missing; 6 more" in clean(failed.value)


@pytest.mark.parametrize("policy", ["stop", "skip"])
async def test_no_log_line_has_the_content_of_a_value_that_does_not_decode(
    policy: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    consumer = Consumer(group_id="billing", commit_interval=0.1)

    @consumer.handler("orders", on_error=policy)
    async def bill(order: Model) -> None: ...

    value = json_of({"number": SECRET})
    if policy == "stop":
        with pytest.raises(DecodeError) as failed:
            async with TestConsumer(consumer, partitions=1) as t:
                await t.publish("orders", value, key=f"key-{SECRET}", headers={"h": SECRET})
                await t.until(lambda: t.committed_offset("orders", 0) is not None)
        clean(failed.value)
    else:
        async with TestConsumer(consumer, partitions=1) as t:
            await t.publish("orders", value, key=f"key-{SECRET}", headers={"h": SECRET})
            await t.until(lambda: t.committed_offset("orders", 0) is not None)
    lines = [logging.Formatter().format(each) for each in caplog.records]
    assert any("int_parsing" in line for line in lines) or policy == "stop"
    assert [line for line in lines if SECRET in line] == []
