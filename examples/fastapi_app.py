"""Handlers inside a FastAPI application: one process serves requests and handles records.

POST /orders writes an order to Kafka, the handler bills it in a database, GET /billed/{customer}
returns the sum; /livez and /readyz are for an orchestrator. When the server shuts down, handlers
that have started end, their records are committed, and only then producer and database are closed.
A handler that fails shuts the server down.

    pip install 'asyncrevoke' aiosqlite fastapi uvicorn
    export BOOTSTRAP=localhost:9092
    uvicorn --app-dir examples --timeout-graceful-shutdown 5 fastapi_app:app

Tested on a real broker in test_fastapi_app.py beside it, and without one, in virtual time, in
tests/documentation/examples/test_fastapi_example.py.
"""

import os
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Protocol, TypedDict

import aiosqlite
from fastapi import Depends, FastAPI, Request
from pydantic import BaseModel

from asyncrevoke import Consumer, HandlerContext, Producer
from asyncrevoke.integrations.fastapi import health_router

SCHEMA = """
CREATE TABLE IF NOT EXISTS billed (
    topic TEXT, partition INTEGER, offset INTEGER,
    customer TEXT NOT NULL, amount INTEGER NOT NULL,
    PRIMARY KEY (topic, partition, offset)
)
"""


class Order(BaseModel):
    """The value of a record, and the body of a request."""

    customer: str
    amount: int


class Send(Protocol):
    """Writes a value with its key to a topic."""

    def __call__(self, topic: str, value: object, *, key: str) -> Awaitable[object]:
        """Return when the record is written."""
        ...


class Ledger:
    """What was billed. A record that comes twice, after a crash for example, is billed once."""

    def __init__(self, database: aiosqlite.Connection) -> None:
        self._database = database

    async def bill(self, order: Order, key: tuple[str, int, int]) -> None:
        """Write an order down, once for each key."""
        await self._database.execute(
            "INSERT OR IGNORE INTO billed VALUES (?, ?, ?, ?, ?)",
            (*key, order.customer, order.amount),
        )
        await self._database.commit()

    async def billed(self, customer: str) -> int:
        """The sum of a customer's orders."""
        query = "SELECT COALESCE(SUM(amount), 0) FROM billed WHERE customer = ?"
        async with self._database.execute(query, (customer,)) as rows:
            found = await rows.fetchone()
        return 0 if found is None else int(found[0])


@asynccontextmanager
async def open_ledger(path: str) -> AsyncGenerator[Ledger]:
    async with aiosqlite.connect(path) as database:
        await database.execute(SCHEMA)
        yield Ledger(database)


class State(TypedDict):
    """What requests have as ``request.state``."""

    producer: Producer
    ledger: Ledger


def get_send(request: Request) -> Send:
    producer: Producer = request.state.producer
    return producer.publish


def get_ledger(request: Request) -> Ledger:
    ledger: Ledger = request.state.ledger
    return ledger


@dataclass
class Shop:
    """The application, and the consumer that runs in it."""

    app: FastAPI
    consumer: Consumer


def make_shop(bootstrap: str, topic: str, group: str, database: str) -> Shop:
    # The handler's own connection; requests have another, as each would end the other's
    # transactions.
    consumer = Consumer(
        bootstrap_servers=bootstrap, group_id=group, resources=open_ledger(database)
    )

    @consumer.handler(topic, max_handler_time=10)
    async def bill(order: Order, context: HandlerContext[Ledger]) -> None:
        if order.amount < 0:
            raise ValueError(f"an order of {order.amount}")
        await context.state.bill(order, context.idempotency_key)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[State]:
        # The consumer comes last, so that it ends first. With nothing else to open:
        # FastAPI(lifespan=consumer.lifespan).
        async with (
            Producer(bootstrap_servers=bootstrap) as producer,
            open_ledger(database) as ledger,
            consumer.lifespan(app),
        ):
            yield {"producer": producer, "ledger": ledger}

    app = FastAPI(lifespan=lifespan)
    app.include_router(health_router(consumer))

    @app.post("/orders", status_code=202)
    async def order(order: Order, send: Annotated[Send, Depends(get_send)]) -> None:
        await send(topic, order, key=order.customer)

    @app.get("/billed/{customer}")
    async def billed_to(customer: str, ledger: Annotated[Ledger, Depends(get_ledger)]) -> int:
        return await ledger.billed(customer)

    return Shop(app, consumer)


app = make_shop(
    os.environ.get("BOOTSTRAP", "localhost:9092"),
    os.environ.get("TOPIC", "orders"),
    os.environ.get("GROUP", "billing"),
    os.environ.get("DATABASE", "billed.db"),
).app
