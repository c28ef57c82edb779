"""examples/fastapi_app.py without a broker: requests to it, and records in virtual time."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import httpx
import pytest

from asyncrevoke.testing import TestConsumer
from examples.fastapi_app import Ledger, get_ledger, get_send, make_shop, open_ledger

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path


class Running:
    """The example, with a client of its own."""

    def __init__(self, t: TestConsumer, client: httpx.AsyncClient, ledger: Ledger) -> None:
        self.t = t
        self.client = client
        self.ledger = ledger

    async def order(self, customer: str, amount: int) -> int:
        order = {"customer": customer, "amount": amount}
        return (await self.client.post("/orders", json=order)).status_code

    async def billed(self, customer: str) -> int:
        billed: int = (await self.client.get(f"/billed/{customer}")).json()
        return billed


@asynccontextmanager
async def running(database: Path) -> AsyncGenerator[Running]:
    shop = make_shop("localhost:1", "orders", "billing", str(database))
    async with AsyncExitStack() as stack:
        ledger = await stack.enter_async_context(open_ledger(str(database)))
        t = await stack.enter_async_context(TestConsumer(shop.consumer))
        shop.app.dependency_overrides[get_send] = lambda: t.publish
        shop.app.dependency_overrides[get_ledger] = lambda: ledger
        transport = httpx.ASGITransport(shop.app)
        client = httpx.AsyncClient(transport=transport, base_url="http://shop")
        yield Running(t, await stack.enter_async_context(client), ledger)


async def test_orders_are_billed_and_their_sum_is_printed(tmp_path: Path) -> None:
    async with running(tmp_path / "billed.db") as shop:
        for amount in 10, 20:
            assert await shop.order("ada", amount) == 202
        await shop.t.until(lambda: [call.outcome for call in shop.t.calls] == ["ok", "ok"])
        assert await shop.billed("ada") == 30
        assert await shop.billed("bob") == 0


async def test_a_record_that_comes_twice_is_billed_once(tmp_path: Path) -> None:
    for _ in range(2):  # another group of the same name: it begins at the same offset again
        async with running(tmp_path / "billed.db") as shop:
            await shop.order("ada", 10)
            await shop.t.until(lambda: [call.outcome for call in shop.t.calls] == ["ok"])
            assert await shop.billed("ada") == 10


async def test_an_order_that_is_none_is_rejected_and_never_written(tmp_path: Path) -> None:
    async with running(tmp_path / "billed.db") as shop:
        response = await shop.client.post("/orders", json={"customer": "ada"})
        assert response.status_code == 422
        assert shop.t.records("orders") == []


async def test_it_is_not_alive_any_more_after_an_order_that_cannot_be_billed(
    tmp_path: Path,
) -> None:
    async with running(tmp_path / "billed.db") as shop:
        assert (await shop.client.get("/livez")).status_code == 200
        assert (await shop.client.get("/readyz")).status_code == 200
        consumer = shop.t.consumer
        with pytest.raises(ValueError, match="an order of -1"):
            await shop.order("ada", -1)
            await shop.t.until(lambda: not consumer.probe().live)
        assert (await shop.client.get("/livez")).status_code == 503
        assert await shop.billed("ada") == 0
