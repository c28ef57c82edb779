"""Annotated, names for types, type variables and unions: each means what its type alone means."""

# Optional and Union are what is tested here.
# ruff: noqa: UP007, UP045

from __future__ import annotations

import dataclasses
import enum
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    NewType,
    Optional,
    TypeVar,
    Union,
    cast,
)

import msgspec
import pydantic
import pytest
from aiokafka import ConsumerRecord
from fast_depends import Depends
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypeAliasType, TypeVarTuple
from unit.handlers.scripted_source import record

from asyncrevoke.client.config.record_function import check_record_function
from asyncrevoke.client.errors import ConfigError, DecodeError
from asyncrevoke.client.model import Record
from asyncrevoke.handlers.policy.context import HandlerContext
from asyncrevoke.handlers.registry import Router

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from asyncrevoke.handlers.decoding.decoders import Decoder
    from asyncrevoke.handlers.policy.registration import Handler


class Shape(enum.StrEnum):
    ROUND = "round"


@dataclasses.dataclass
class Order:
    id: int


class OrderModel(pydantic.BaseModel):
    id: int


@pydantic_dataclass
class CheckedOrder:
    id: Annotated[int, pydantic.Field(gt=0)]


class Paid(pydantic.BaseModel):
    kind: Literal["paid"]


class Sent(pydantic.BaseModel):
    kind: Literal["sent"]


class Taken(msgspec.Struct, tag="taken"):
    id: int


class Given(msgspec.Struct, tag="given"):
    id: int


GivenOrder = TypeAliasType("GivenOrder", Annotated[Given, "doc"])


@dataclasses.dataclass
class Holder:
    order: CheckedOrder


T = TypeVar("T")
BoundToBytes = TypeVar("BoundToBytes", bound=bytes)
OneOfTwo = TypeVar("OneOfTwo", bytes, str)
Body = NewType("Body", bytes)
Text = TypeAliasType("Text", str)
Line = TypeAliasType("Line", "Annotated[Text, 'one line']")  # the value is text
Whole = TypeAliasType("Whole", Record)
MaybeOrder = TypeAliasType("MaybeOrder", Optional[Order])
Several = TypeAliasType("Several", list[Text])
Call = TypeAliasType("Call", Annotated[HandlerContext, "doc"])
Maybe = TypeAliasType("Maybe", Optional[T], type_params=(T,))
Ts = TypeVarTuple("Ts")
Row = TypeAliasType("Row", tuple[*Ts], type_params=(Ts,))


class Own(Record, frozen=True):
    """A record with more attributes."""


def registered(
    annotation: object, decoder: Decoder | None = None, **options: Any
) -> tuple[Handler, list[object]]:
    """A handler whose first parameter has this annotation, and the values that it receives."""
    got: list[object] = []

    async def handle(value: object) -> None:
        got.append(value)

    handle.__annotations__ = {"value": annotation, "return": None}
    router = Router(decoder=decoder)
    router.handler("orders", **options)(handle)
    (handler,) = router.handlers
    return handler, got


async def received(annotation: object, value: bytes | None) -> object:
    handler, got = registered(annotation)
    assert handler.call is not None
    await handler.call(record(3, value=value))
    (only,) = got
    return only


VALUES: list[tuple[object, bytes | None, object]] = [
    (Annotated[bytes, "doc"], b"raw", b"raw"),
    (Annotated[str, "doc"], b"raw", "raw"),
    (Optional[Annotated[bytes, "doc"]], None, None),
    (Optional[Annotated[str, "doc"]], b"raw", "raw"),
    (Annotated[Optional[bytes], "doc"], b"raw", b"raw"),
    (Annotated[OrderModel, "doc"], b'{"id": 7}', OrderModel(id=7)),
    (Body, b"raw", b"raw"),
    (Text, b"raw", "raw"),
    (bytearray, b"raw", bytearray(b"raw")),
    (Annotated[Optional[bytearray], "doc"], None, None),
    (Maybe[Body], b"raw", b"raw"),
    (Maybe[Body], None, None),
    (MaybeOrder, b'{"id": 7}', Order(7)),
    (MaybeOrder, None, None),
    (Annotated[MaybeOrder, "doc"], None, None),
    (BoundToBytes, b"raw", b"raw"),
    (T, b"[1]", [1]),
    (NewType("OrderId", int), b"7", 7),
    (Shape, b'"round"', Shape.ROUND),
    (Annotated[str, msgspec.Meta(max_length=3)], b"raw", "raw"),
    (CheckedOrder, b'{"id": 7}', CheckedOrder(7)),
    (CheckedOrder | None, b'{"id": 7}', CheckedOrder(7)),
    (CheckedOrder | None, None, None),
    (list[CheckedOrder], b'[{"id": 7}]', [CheckedOrder(7)]),
    (dict[str, OrderModel], b'{"a": {"id": 7}}', {"a": OrderModel(id=7)}),
    (Paid | Sent, b'{"kind": "sent"}', Sent(kind="sent")),
    (
        Annotated[Paid | Sent, pydantic.Field(discriminator="kind")],
        b'{"kind": "sent"}',
        Sent(kind="sent"),
    ),
]


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    VALUES,
    ids=str,
)
async def test_a_value_is_decoded_as_the_type_that_the_annotation_stands_for(
    annotation: object, value: bytes | None, expected: object
) -> None:
    got = await received(annotation, value)
    assert got == expected
    assert type(got) is type(expected)


@pytest.mark.parametrize(
    "annotation",
    [Annotated[Record, "doc"], Whole, NewType("Event", Record), Optional[Record], Maybe[Whole]],
    ids=str,
)
async def test_a_name_for_record_receives_the_record_whatever_the_value(annotation: object) -> None:
    for value in (b"\xff", None):
        got = await received(annotation, value)
        assert isinstance(got, Record)
        assert got.value == value


@pytest.mark.parametrize(
    ("annotation", "value", "why"),
    [
        (Annotated[str, msgspec.Meta(max_length=3)], b"long", "length <= 3"),
        (Annotated[bytes, msgspec.Meta(max_length=3)], b"long", "length <= 3"),
        (Annotated[int, msgspec.Meta(gt=0)], b"0", ">= 1"),
        (Annotated[str, pydantic.Field(max_length=3)], b"long", "string_too_long"),
        (Annotated[int, pydantic.Field(gt=0)], b"0", "greater_than"),
        (CheckedOrder, b'{"id": 0}', r"\$.id: greater_than"),
        (list[CheckedOrder], b'[{"id": 0}]', r"\$\[0\].id: greater_than"),
    ],
    ids=str,
)
async def test_a_value_that_breaks_a_constraint_does_not_decode(
    annotation: object, value: bytes, why: str
) -> None:
    with pytest.raises(DecodeError, match=why):
        await received(annotation, value)


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        (bytes | Order, "bytes is not read from JSON"),
        (OneOfTwo, "bytes is not read from JSON"),
        (Union[Text, int, None], "str is not read from JSON"),
        (Union[Annotated[Record, "doc"], Order], "Record is not read from JSON"),
        (Union[memoryview, dict[str, int]], "memoryview is not read from JSON"),
        (list[Record], "not read from JSON: .* has batch=True"),
        (Optional[dict[str, list[Record]]], "a Record is not read from JSON"),
        (Line, "cannot be resolved at run time"),
        (Annotated[Holder, "doc"], "CheckedOrder cannot be decoded"),
        (list[Whole], "cannot be decoded"),
        (OrderModel | Generic, "cannot be decoded"),
        (bytearray | dict[str, int], "bytearray is not read from JSON"),
        (Row[int, str], "cannot be resolved at run time .*TypeVarTuple"),
        (Annotated[Own, "doc"], "to receive the record, annotate it Record"),
        (ConsumerRecord, "to receive the record, annotate it Record"),
        (Optional[ConsumerRecord[bytes, bytes]], "to receive the record, annotate it Record"),
    ],
    ids=str,
)
def test_an_annotation_that_cannot_be_kept_is_refused_at_registration(
    annotation: object, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        registered(annotation)


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (list[Annotated[bytes, "doc"]], b"v"),
        (Annotated[list[bytes], "doc"], b"v"),
        (Several, "v"),
    ],
    ids=str,
)
def test_a_batch_is_decoded_as_the_type_that_its_annotation_stands_for(
    annotation: object, expected: object
) -> None:
    handler, _ = registered(annotation, batch=True)
    assert handler.batch is not None
    assert handler.batch.decode(record(3, value=b"v")) == expected


def test_a_batch_of_a_name_for_record_receives_records_beside_a_decoder() -> None:
    def number(of: Record) -> object:
        return int(of.value or b"")

    handler, _ = registered(list[Whole], batch=True, decoder=number)
    assert handler.batch is not None
    assert isinstance(handler.batch.decode(record(3, value=b"v")), Record)


async def test_a_decoder_is_not_called_for_a_name_for_record() -> None:
    def number(of: Record) -> object:
        return int(of.value or b"")

    handler, got = registered(Annotated[Record, "doc"], decoder=number)
    assert handler.call is not None
    await handler.call(record(3, value=b"v"))
    assert isinstance(got[0], Record)


async def test_further_parameters_receive_what_a_name_for_their_type_says() -> None:
    got: list[object] = []

    async def handle(
        value: bytes,
        where: Annotated[Record, "doc"],
        again: Whole,
        context: Optional[HandlerContext] = None,
    ) -> None:
        got.extend((type(where), type(again), context))

    handle.__annotations__["context"] = Call
    router = Router()
    router.handler("orders")(handle)
    (handler,) = router.handlers
    context = cast("HandlerContext", object())
    assert handler.wants_context
    assert handler.call is not None
    await handler.call(record(3), context)
    assert got == [Record, Record, context]


def rate() -> int:
    return 5


Rate = TypeAliasType("Rate", Annotated[int, Depends(rate)])


async def test_a_dependency_may_have_a_name() -> None:
    got: list[object] = []

    async def handle(value: bytes, rate: object) -> None:
        got.append(rate)

    handle.__annotations__["rate"] = Rate
    router = Router()
    router.handler("orders")(handle)
    (handler,) = router.handlers
    assert handler.call is not None
    await handler.call(record(3))
    assert got == [5]


@pytest.mark.parametrize("returned", [Annotated[None, "doc"], NewType("Void", object)], ids=str)
def test_a_name_for_nothing_needs_no_topic_for_results(returned: object) -> None:
    async def handle(value: bytes) -> object: ...

    handle.__annotations__["return"] = returned
    Router().handler("orders")(cast("Callable[..., Awaitable[object]]", handle))


def test_tags_are_found_in_types_with_names() -> None:
    async def handle(value: object) -> None: ...

    router = Router()
    for named in (NewType("New", Taken), GivenOrder):
        handle.__annotations__["value"] = named
        router.handler("orders")(handle)
    matcher = router.matcher_of("orders")
    assert matcher is not None
    matched, error = matcher.choose(record(3, value=b'{"type": "given", "id": 7}'))
    assert error is None
    assert matched is router.handlers[1]


def test_an_option_of_a_record_rejects_a_function_of_a_name_for_bytes() -> None:
    def key(value: bytes) -> bytes:
        return value

    for named in (Body, Annotated[bytes, "doc"], Maybe[Body]):
        key.__annotations__["value"] = named
        with pytest.raises(ConfigError, match="takes bytes"):
            check_record_function("order_by", key, "key", "")
