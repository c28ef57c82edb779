"""The Spark types that are derived from annotations."""

from __future__ import annotations

import enum
import uuid
from collections.abc import AsyncIterator, Callable  # noqa: TC003 - read at run time
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict

import msgspec
import pytest
from typing_extensions import TypeAliasType

from asyncrevoke import Router
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.spark.results.result_tables import spark_type


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Line:
    sku: str
    count: int | None


class Invoice(msgspec.Struct, tag="invoice", rename="camel"):
    order_id: int
    total: float
    lines: list[Line]
    size: Size
    at: datetime
    due: date
    paid: bool
    amount: Decimal
    number: uuid.UUID
    names: dict[str, tuple[int, ...]]
    state: Literal["new", "old"] = "new"


class Totals(TypedDict):
    total: float


class Tree(msgspec.Struct):
    inner: list[Tree]


class Pair(NamedTuple):
    one: int
    two: int


async def one(order: dict[str, int]) -> Line | None:
    raise NotImplementedError


async def several(order: dict[str, int]) -> AsyncIterator[Line]:
    raise NotImplementedError
    yield


unsaid: Callable[[int], int] = lambda order: order  # noqa: E731 - it has no annotation


INVOICE = (
    "struct<`type`:string,`orderId`:bigint,`total`:double,"
    "`lines`:array<struct<`sku`:string,`count`:bigint>>,`size`:string,`at`:timestamp,"
    "`due`:date,`paid`:boolean,`amount`:string,`number`:string,"
    "`names`:map<string,array<bigint>>,`state`:string>"
)


Body = NewType("Body", bytes)
Lines = TypeAliasType("Lines", Annotated[list[Line], "doc"])


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (int, "bigint"),
        (str | None, "string"),
        (bytes, "binary"),
        (Annotated[bytes, "doc"], "binary"),
        (Body, "binary"),
        (Lines, "array<struct<`sku`:string,`count`:bigint>>"),
        (list[bytes], "array<string>"),
        (Totals, "struct<`total`:double>"),
        (Line, "struct<`sku`:string,`count`:bigint>"),
        (one, "struct<`sku`:string,`count`:bigint>"),
        (several, "array<struct<`sku`:string,`count`:bigint>>"),
        (Invoice, INVOICE),
    ],
)
def test_a_type_is_that_of_the_values_json(given: object, kind: str) -> None:
    assert spark_type(given) == kind


def test_a_handler_that_publishes_its_results_nowhere_has_their_type() -> None:
    registered = Router().handler("orders", publish_to=None)(one)
    assert spark_type(registered) == "struct<`sku`:string,`count`:bigint>"


@pytest.mark.parametrize("given", [Any, object, int | str, Tree, Pair, unsaid, dict, None])
def test_an_annotation_that_says_too_little_is_rejected_with_the_way_out(given: object) -> None:
    with pytest.raises(ConfigError, match="give the schema as Spark writes types"):
        spark_type(given)
