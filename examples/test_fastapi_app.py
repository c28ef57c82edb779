"""fastapi_app.py on a real Apache Kafka, by the fixture consumer_for of the pytest plugin.

pip install 'asyncrevoke[testing]' aiosqlite fastapi httpx
pytest -o asyncio_mode=auto examples/test_fastapi_app.py
"""

from collections.abc import Callable
from pathlib import Path

import httpx
from fastapi import FastAPI

from asyncrevoke import Consumer
from asyncrevoke.testing import BrokerConsumer
from examples.fastapi_app import Send, get_ledger, get_send, make_shop, open_ledger

ConsumerFor = Callable[[Consumer], BrokerConsumer]


def client_of(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop")


async def test_an_order_goes_through_kafka_and_is_billed(
    consumer_for: ConsumerFor, tmp_path: Path
) -> None:
    database = str(tmp_path / "billed.db")
    # The addresses of production: consumer_for enters the consumer with that of the test's broker.
    shop = make_shop("kafka-1:9092", "orders", "billing", database)
    async with (
        open_ledger(database) as ledger,
        consumer_for(shop.consumer) as running,
        client_of(shop.app) as client,
    ):

        def get_test_send() -> Send:
            return running.publish

        shop.app.dependency_overrides[get_send] = get_test_send
        shop.app.dependency_overrides[get_ledger] = lambda: ledger
        for amount in 10, 20:
            order = {"customer": "ada", "amount": amount}
            assert (await client.post("/orders", json=order)).status_code == 202
        await running.until_done()
        assert (await client.get("/billed/ada")).json() == 30
        assert (await client.get("/readyz")).status_code == 200
