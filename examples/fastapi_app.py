"""Handlers inside a FastAPI application: one process serves requests and handles records.

POST /orders writes an order to Kafka, the handler bills it, GET /billed/{customer} tells the sum.
When the server shuts down, handlers that have started end, and their records are committed. A
handler that fails shuts the server down.

    BOOTSTRAP=localhost:9092 uvicorn --app-dir examples fastapi_app:app
"""

import os
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TypedDict

from aiokafka import AIOKafkaProducer
from fastapi import FastAPI, Request
from pydantic import BaseModel

from asyncrevoke import Consumer

BOOTSTRAP = os.environ.get("BOOTSTRAP", "localhost:9092")
TOPIC = os.environ.get("TOPIC", "orders")

consumer = Consumer(bootstrap_servers=BOOTSTRAP, group_id=os.environ.get("GROUP", "billing"))
billed: Counter[str] = Counter()


class Order(BaseModel):
    """The value of a record, and the body of a request."""

    customer: str
    amount: int


@consumer.handler(TOPIC)
async def bill(order: Order) -> None:
    if order.amount < 0:
        raise ValueError(f"an order of {order.amount}")
    billed[order.customer] += order.amount


class State(TypedDict):
    """What requests have as ``request.state``."""

    producer: AIOKafkaProducer


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[State]:
    # Only the consumer to look after: FastAPI(lifespan=consumer.lifespan).
    async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP) as producer, consumer.lifespan(app):
        yield {"producer": producer}


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
async def order(order: Order, request: Request) -> None:
    value = order.model_dump_json().encode()
    await request.state.producer.send_and_wait(TOPIC, value, order.customer.encode())


@app.get("/billed/{customer}")
async def billed_to(customer: str) -> int:
    return billed[customer]
