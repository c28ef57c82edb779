"""examples/enrichment.py without a broker and without a service: in virtual time."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx
import msgspec
import pytest

from asyncrevoke.testing import TestConsumer
from examples.enrichment import Enrichment, make_consumer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from asyncrevoke import Consumer


class Service:
    """Knows the customers that it is told of, and has its bad moments."""

    def __init__(self) -> None:
        self.responses: dict[str, list[int | type[Exception]]] = {}
        self.asked = Counter[str]()
        self.garbage: bytes | None = None

    async def respond(self, request: httpx.Request) -> httpx.Response:
        customer = request.url.raw_path.decode().removeprefix("/customers/")
        self.asked[customer] += 1
        responses = self.responses.get(customer, [200])
        response = responses.pop(0) if len(responses) > 1 else responses[0]
        if not isinstance(response, int):
            raise response("away")
        if self.garbage is not None:
            return httpx.Response(response, content=self.garbage)
        known = {"name": customer.upper(), "country": "UK"}
        return httpx.Response(response, json=known if response == 200 else None)


class Topic:
    """What was written."""

    def __init__(self) -> None:
        self.written: list[tuple[str, object, bytes | None]] = []

    async def publish(self, topic: str, value: object, *, key: bytes | None) -> None:
        self.written.append((topic, json.loads(msgspec.json.encode(value)), key))

    @property
    def ids(self) -> list[int]:
        return [value["id"] for _, value, _ in self.written if isinstance(value, dict)]


class Shop:
    """The example with a service and a topic that a test looks at."""

    def __init__(self) -> None:
        self.service = Service()
        self.topic = Topic()

    @asynccontextmanager
    async def _resources(self) -> AsyncGenerator[Enrichment]:
        transport = httpx.MockTransport(self.service.respond)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            yield Enrichment(client, self.topic, "enriched")

    def consumer(self) -> Consumer:
        return make_consumer("unused:9092", "orders", "dlq", "g", self._resources())


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def order(t: TestConsumer, number: int, customer: str) -> None:
    await t.publish("orders", {"id": number, "customer": customer}, key=customer)


async def test_an_order_is_enriched_with_its_customer_and_keeps_its_key(shop: Shop) -> None:
    async with TestConsumer(shop.consumer(), partitions=1) as t:
        await order(t, 1, "ada")
        await t.advance(2)
        enriched = {"id": 1, "customer": "ada", "name": "ADA", "country": "UK"}
        assert shop.topic.written == [("enriched", enriched, b"ada")]
        assert t.committed("orders", 0) == 1


@pytest.mark.parametrize("away", [503, 429, httpx.ConnectError, httpx.ReadTimeout])
async def test_a_service_that_is_away_is_asked_again_while_other_customers_flow(
    shop: Shop, away: int | type[Exception]
) -> None:
    shop.service.responses["ada"] = [away, away, 200]
    async with TestConsumer(shop.consumer(), partitions=1) as t:
        await order(t, 1, "ada")
        await order(t, 2, "ada")
        await order(t, 3, "bob")
        assert shop.topic.ids == [3]
        await t.advance(5)
        assert shop.topic.ids == [3, 1, 2]
        assert t.dead_letters("dlq") == []
        assert [call.outcome for call in t.calls if call.record.offset == 0] == [
            *("retried", "retried", "ok")
        ]


async def test_an_unknown_customer_s_order_goes_to_the_dead_letter_topic_at_once(
    shop: Shop,
) -> None:
    shop.service.responses["nobody"] = [404]
    async with TestConsumer(shop.consumer(), partitions=1) as t:
        await order(t, 1, "nobody")
        (letter,) = t.dead_letters("dlq")
        assert letter.key == b"nobody"
        assert b"404" in (dict(letter.headers)["asyncrevoke-error-message"] or b"")
        assert shop.service.asked == {"nobody": 1}
        await t.advance(2)
        assert t.committed("orders", 0) == 1


async def test_a_record_of_an_unavailable_service_is_dead_lettered_after_its_retries(
    shop: Shop,
) -> None:
    shop.service.responses["ada"] = [500]
    async with TestConsumer(shop.consumer(), partitions=1) as t:
        await order(t, 1, "ada")
        await t.advance(60)
        assert shop.service.asked == {"ada": 8}
        assert len(t.dead_letters("dlq")) == 1
        assert shop.topic.written == []


async def test_what_the_service_garbles_is_not_enriched(shop: Shop) -> None:
    shop.service.garbage = b"<html>"
    async with TestConsumer(shop.consumer(), partitions=1) as t:
        await order(t, 1, "ada")
        assert len(t.dead_letters("dlq")) == 1
        assert shop.topic.written == []


async def test_a_customer_s_name_cannot_lead_to_another_address(shop: Shop) -> None:
    async with TestConsumer(shop.consumer(), partitions=1) as t:
        await order(t, 1, "../admin?x")
        assert shop.service.asked == {"..%2Fadmin%3Fx": 1}


async def test_a_revocation_cancels_requests_to_the_service(shop: Shop) -> None:
    shop.service.responses["ada"] = [503]
    async with TestConsumer(shop.consumer(), partitions=1) as t:
        await order(t, 1, "ada")
        await t.revoke(("orders", 0))
        await t.advance(2)
        assert not t.assignment()
        assert t.committed("orders", 0) in (None, 0)
        assert t.dead_letters("dlq") == []
