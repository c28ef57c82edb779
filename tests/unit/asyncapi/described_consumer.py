"""A consumer with handlers of every kind, for documents of it."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator  # noqa: TC003 - annotations are read at run time
from typing import Annotated, Literal

import msgspec
import pydantic

from asyncrevoke import Consumer, Message, Pause, Record, Retry, RetryTopic, by_header

consumer = Consumer(
    bootstrap_servers="kafka-1:9092,[::1]:9093",
    group_id="billing",
    client_id="billing-service",
    security_protocol="SASL_SSL",
    sasl_mechanism="SCRAM-SHA-512",
    sasl_plain_username="billing-user",
    sasl_plain_password="hunter2",
)


class Line(msgspec.Struct):
    sku: str
    count: Annotated[int, msgspec.Meta(ge=1, description="How many are ordered.")]


class Placed(msgspec.Struct, tag="placed"):
    """A customer has ordered."""

    id: int
    lines: list[Line]
    size: tuple[int, str]
    replaces: Placed | None = None


class Cancelled(msgspec.Struct, tag="cancelled"):
    id: int
    reason: Literal["late", "broken"] = "late"


@dataclasses.dataclass
class Invoice:
    """What a customer pays."""

    order: int
    total: float


class Transfer(pydantic.BaseModel):
    """Money from one bank to another."""

    id: int = pydantic.Field(alias="transferId", description="The bank's number.")
    iban: str = pydantic.Field(pattern="^[A-Z]{2}")
    parts: dict[str, tuple[int, int]] = {}


class Receipt(pydantic.BaseModel):
    id: int = pydantic.Field(alias="receiptId")


@consumer.handler(
    "orders",
    retry=Retry(attempts=3),
    retry_topic=RetryTopic("orders.retry"),
    dead_letter="failed",
    publish_to="invoices",
)
async def bill(order: Placed | Cancelled | None) -> AsyncIterator[Invoice]:
    """Bill an order.

    The customer gets an invoice.
    """
    yield Invoice(0, 0.0)


@consumer.handler(
    "transfers", where=by_header("type", "sepa"), publish_to="receipts", dead_letter="failed"
)
async def sepa(transfer: Transfer) -> Message[Receipt | None] | list[Receipt]:
    return [Receipt(receiptId=transfer.id)]


@consumer.handler("transfers", where=by_header("type", "card", "cash"), on_error=Pause())
async def card(transfer: Transfer) -> None: ...


@consumer.handler(pattern="audit-.*", batch=True, on_error="skip")
async def audit(values: list[bytes]) -> None: ...


@consumer.handler("packed", "packed.old", decoder=lambda record: record.value)
async def packed(line: Line) -> None: ...


@consumer.handler("texts", publish_to="words", run_in="thread")
def split(text: str, record: Record) -> list[str]:
    return text.split()
