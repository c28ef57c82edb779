"""Orders with the name and country of their customer, which an HTTP service knows.

A service is away now and then: requests that do not reach it, or get a 5xx response, are tried
again, while the orders of that customer wait and those of others flow. A customer that it does not
know (4xx) will not be known a second later: such an order goes to the dead letter topic at once. An
order counts as done when its enriched record is acknowledged; one that is delivered again is
written again, so whoever reads the enriched topic goes by the order's id.

    pip install httpx
    python examples/enrichment.py --bootstrap localhost:9092 --service http://localhost:8000

A record's value is JSON: {"id": 7, "customer": "c1"}. For it GET /customers/c1 is asked, which
responds {"name": "Ada", "country": "UK"}. The topics --enriched and --dead-letter must exist.
"""

import argparse
import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPStatus
from typing import Protocol
from urllib.parse import quote

import httpx
import msgspec

from asyncrevoke import Consumer, HandlerContext, Producer, Record, Retry

AT_ONCE = 32


class Order(msgspec.Struct):
    """The value of a record."""

    id: int
    customer: str


class Customer(msgspec.Struct):
    """What the service responds."""

    name: str
    country: str


class Enriched(msgspec.Struct):
    """The value of what is written."""

    id: int
    customer: str
    name: str
    country: str


class ServiceUnavailableError(Exception):
    """The service has responded that it is not available now."""


class Publishes(Protocol):
    """What is used of the producer."""

    async def publish(self, topic: str, value: object, *, key: bytes | None) -> object:
        """Write a record, and return when all in-sync replicas have it."""
        ...


class Enrichment:
    """What handlers share: one pool of connections to the service, and one producer."""

    def __init__(self, service: httpx.AsyncClient, producer: Publishes, topic: str) -> None:
        self._service = service
        self._producer = producer
        self._topic = topic

    async def customer(self, customer: str) -> Customer:
        """Ask the service for a customer."""
        response = await self._service.get(f"/customers/{quote(customer, safe='')}")
        if response.is_server_error or response.status_code == HTTPStatus.TOO_MANY_REQUESTS:
            raise ServiceUnavailableError(f"{response.status_code} {response.reason_phrase}")
        response.raise_for_status()
        return msgspec.json.decode(response.content, type=Customer)

    async def publish(self, enriched: Enriched, key: bytes | None) -> None:
        """Write an enriched order."""
        await self._producer.publish(self._topic, enriched, key=key)


@asynccontextmanager
async def enrichment(service: str, bootstrap: str, topic: str) -> AsyncGenerator[Enrichment]:
    async with (
        httpx.AsyncClient(
            base_url=service, timeout=5, limits=httpx.Limits(max_connections=AT_ONCE)
        ) as client,
        Producer(bootstrap_servers=bootstrap) as producer,
    ):
        yield Enrichment(client, producer, topic)


def make_consumer(
    bootstrap: str,
    topic: str,
    dead_letter: str,
    group: str,
    resources: AbstractAsyncContextManager[Enrichment],
) -> Consumer:
    """A consumer that enriches each order of the topic."""
    consumer = Consumer(
        bootstrap_servers=bootstrap, group_id=group, concurrency=AT_ONCE, resources=resources
    )

    @consumer.handler(
        topic,
        retry=Retry(
            attempts=8,
            backoff=0.2,
            max_backoff=10,
            retry_on=(httpx.TransportError, ServiceUnavailableError),
        ),
        dead_letter=dead_letter,
    )
    async def enrich(order: Order, record: Record, context: HandlerContext[Enrichment]) -> None:
        customer = await context.state.customer(order.customer)
        enriched = Enriched(order.id, order.customer, customer.name, customer.country)
        await context.state.publish(enriched, record.key)
        print("enriched", order.id, "at attempt", context.attempt, flush=True)

    return consumer


def main() -> None:
    parser = argparse.ArgumentParser(description="Orders with what a service knows of customers.")
    parser.add_argument("--bootstrap", default="localhost:9092", help="the broker's host:port")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--enriched", default="orders.enriched", help="the topic that is written")
    parser.add_argument("--dead-letter", default="orders.dlq")
    parser.add_argument("--group", default="enrichment")
    parser.add_argument("--service", default="http://localhost:8000")
    args = parser.parse_args()

    shared = enrichment(args.service, args.bootstrap, args.enriched)
    consumer = make_consumer(args.bootstrap, args.topic, args.dead_letter, args.group, shared)
    asyncio.run(consumer.run())


if __name__ == "__main__":
    main()
