"""examples/enrichment.py with a real broker and a real HTTP service that has its bad moments."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncrevoke.broker import RunningBroker

EXAMPLE = Path(__file__).parents[3] / "examples" / "enrichment.py"
ORDERS = 60
DEADLINE = 60.0

pytestmark = [pytest.mark.broker, pytest.mark.timeout(90)]


class Service(ThreadingHTTPServer):
    """Responds 503 twice for each customer, and does not know customer c0."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ServiceHandler)
        self.asked = Counter[str]()
        self.address = f"http://127.0.0.1:{self.server_address[1]}"

    def status(self, customer: str) -> int:
        self.asked[customer] += 1
        if customer == "c0":
            return 404
        return 503 if self.asked[customer] <= 2 else 200


class ServiceHandler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        customer = self.path.removeprefix("/customers/")
        status = cast("Service", self.server).status(customer)
        body = json.dumps({"name": customer.upper(), "country": "UK"}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
        """Tests have their own output."""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


async def create(address: str, *topics: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 2, 1) for topic in topics])
    finally:
        await admin.close()


async def read(address: str, topic: str, count: int, process: subprocess.Popen[Any]) -> list[Any]:
    """So many records of a topic at least: all that are there by then."""
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=address, auto_offset_reset="earliest")
    await consumer.start()
    records: list[Any] = []
    deadline = time.monotonic() + DEADLINE
    try:
        while len(records) < count:
            assert process.poll() is None, "the example has ended"
            assert time.monotonic() < deadline, f"{len(records)} records of {topic}"
            found = cast("dict[Any, list[Any]]", await consumer.getmany(timeout_ms=500))
            records += [record for part in found.values() for record in part]
        return records
    finally:
        await consumer.stop()


async def committed(address: str, group: str) -> int:
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    try:
        offsets = await admin.list_consumer_group_offsets(group)
        return sum(offset.offset for offset in offsets.values())
    finally:
        await admin.close()


async def test_orders_are_enriched_and_orders_without_customer_are_dead_lettered(
    kafka_broker: RunningBroker, kafka_topic: str, service: Service, tmp_path: Path
) -> None:
    address = kafka_broker.bootstrap_servers
    enriched, letters = f"{kafka_topic}.enriched", f"{kafka_topic}.dlq"
    await create(address, enriched, letters)
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        for number in range(ORDERS):
            customer = f"c{number % 4}"
            value = json.dumps({"id": number, "customer": customer}).encode()
            await producer.send(kafka_topic, value, customer.encode())
    output = tmp_path / "output"
    places = ["--bootstrap", address, "--topic", kafka_topic, "--group", kafka_topic]
    more = ["--enriched", enriched, "--dead-letter", letters, "--service", service.address]
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, EXAMPLE, *places, *more], stdout=file, stderr=subprocess.STDOUT
        )
    try:
        written = await read(address, enriched, ORDERS - ORDERS // 4, process)
        dead = await read(address, letters, ORDERS // 4, process)
        process.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(process.wait, DEADLINE)
    finally:
        process.kill()
        process.wait(DEADLINE)
    assert code == 0, output.read_text()
    values = [json.loads(record.value) for record in written]
    assert sorted(value["id"] for value in values) == [n for n in range(ORDERS) if n % 4]
    assert all(value["name"] == value["customer"].upper() for value in values)
    assert all(record.key == json.loads(record.value)["customer"].encode() for record in written)
    for customer in ("c1", "c2", "c3"):
        ids = [value["id"] for value in values if value["customer"] == customer]
        assert ids == sorted(ids), "orders of one customer are in order, retries included"
    assert sorted(json.loads(record.value)["id"] for record in dead) == list(range(0, ORDERS, 4))
    assert service.asked == {"c0": ORDERS // 4, **dict.fromkeys(("c1", "c2", "c3"), 17)}
    assert await committed(address, kafka_topic) == ORDERS
