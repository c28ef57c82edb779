"""Health and probes of a producer, and the routes of an application."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from fastapi import FastAPI
from unit.handlers.results.scripted_results_broker import ScriptedResultsBroker
from unit.producing.publishing.scripted_producer import entered

from asyncrevoke import ConfigError, IllegalStateError, Producer
from asyncrevoke.client.core.io.effects import Failed, FailureKind, Replied, Send
from asyncrevoke.integrations.fastapi import health_router
from asyncrevoke.integrations.starlette import health_routes

pytestmark = pytest.mark.timeout(20)


class Unreachable(ScriptedResultsBroker):
    """Does not respond while ``down``."""

    down = True

    async def request(self, send: Send) -> Replied | Failed:
        if self.down:
            return Failed(send.request_id, FailureKind.UNREACHABLE, "nobody there")
        return await super().request(send)


async def test_health_has_what_waits() -> None:
    broker = ScriptedResultsBroker()
    async with entered(broker, buffer_memory=5000) as producer:
        await producer.publish("t", b"0")
        health = producer.health()
        assert (health.queued_records, health.queued_bytes, health.buffer_memory) == (0, 0, 5000)
        assert health.oldest_seconds is None
        assert health.failing_seconds is None
        broker.responding.clear()
        _ = await producer.publish_soon("t", b"x" * 100)
        await asyncio.sleep(0.01)
        health = producer.health()
        assert health.queued_records == 1
        assert 100 < health.queued_bytes < 200
        assert health.oldest_seconds is not None
        assert 0.005 < health.oldest_seconds < 5
        broker.responding.set()


async def test_it_is_ready_between_entering_and_closing() -> None:
    producer = Producer(client_id="till")
    assert producer.probe()[:3] == (
        True,
        False,
        ("enter the producer first: async with Producer(...) as producer",),
    )
    with pytest.raises(IllegalStateError):
        producer.health()
    async with producer:
        assert producer.probe()[:2] == (True, True)
    probe = producer.probe()
    assert probe[:4] == (True, False, ("the producer is closed",), "till")
    assert probe.details()["queued_records"] == 0


async def test_it_is_not_ready_while_requests_fail() -> None:
    broker = Unreachable()
    async with entered(broker) as producer:
        record = asyncio.create_task(producer.publish("t", b"0"))
        while producer.probe().ready:  # noqa: ASYNC110 - the first request fails soon
            await asyncio.sleep(0)
        assert producer.probe().reasons == ("requests have failed for 0 s",)
        assert producer.health().last_failure == "nobody there"
        assert producer.health().waiting_calls == 1
        broker.down = False
        await record
        assert producer.probe().ready


async def test_the_log_says_that_no_broker_responds_and_when_one_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "asyncrevoke")
    broker = Unreachable()
    async with entered(broker) as producer:
        assert producer.health().last_failure is None
        record = asyncio.create_task(producer.publish("t", b"0"))
        while not caplog.messages:  # noqa: ASYNC110 - the first request fails soon
            await asyncio.sleep(0)
        (line,) = caplog.messages
        waiting = "waiting for a broker that responds tried=localhost:9092 reason='nobody there'"
        assert line.startswith(waiting)
        assert "check='that a broker listens there, and security_protocol'" in line
        broker.down = False
        await record
        assert caplog.messages[-1].startswith("broker reachable node=localhost:9092 seconds=")


async def test_a_topic_that_does_not_exist_is_named_while_a_record_waits_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = ScriptedResultsBroker()
    broker.missing = {"ordesr"}
    caplog.set_level("INFO", "asyncrevoke")
    async with entered(broker) as producer:
        record = asyncio.create_task(producer.publish("ordesr", b"0"))
        while not producer.health().missing_topics:  # noqa: ASYNC110 - the first response says it
            await asyncio.sleep(0)
        assert producer.health().missing_topics == {"ordesr"}
        assert producer.probe()[:3] == (True, False, ("topics do not exist: ordesr",))
        command = "create='asyncrevoke topics create ordesr --bootstrap-servers localhost:9092'"
        line = f"records cannot be sent to topics that do not exist topics=ordesr count=1 {command}"
        assert [line in message for message in caplog.messages] == [True]
        broker.missing = set()
        assert (await record).topic == "ordesr"
        assert producer.health().missing_topics == frozenset()
        assert producer.probe().ready
        assert "topic available topic=ordesr" in caplog.messages[-1]


async def test_it_is_not_ready_while_a_record_waits_for_too_long() -> None:
    broker = ScriptedResultsBroker()
    async with entered(broker, request_timeout=0.6) as producer:
        await producer.publish("t", b"0")
        broker.responding.clear()
        _ = await producer.publish_soon("t", b"1")
        assert producer.probe().ready
        await asyncio.sleep(0.7)
        (reason,) = producer.probe().reasons
        assert reason == "1 record not acknowledged, the oldest for 1 s"
        broker.responding.set()


async def test_a_producer_that_an_error_has_ended_is_not_live(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = ScriptedResultsBroker()
    async with entered(broker) as producer:
        await producer.publish("t", b"0")
        records = producer._entered().producer

        def defect(_now: float) -> None:
            raise LookupError("defect")

        monkeypatch.setattr(records._core, "requests", defect)
        with pytest.raises(LookupError, match="defect"):
            await producer.publish("t", b"1")
        probe = producer.probe()
        assert probe[:3] == (False, False, ("it has failed: LookupError, see the log",))


async def test_the_routes_of_an_application_have_its_producers() -> None:
    with pytest.raises(ConfigError, match="no consumer to ask"):
        health_routes()
    broker = ScriptedResultsBroker()
    async with entered(broker) as producer:
        app = FastAPI()
        app.include_router(health_router(producers=[producer]))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
            for path in "/livez", "/readyz":
                assert (await client.get(path)).status_code == 200
            await producer.aclose()
            assert (await client.get("/livez")).status_code == 200
            response = await client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["producers"] == [
        {
            "client_id": "till",
            "live": True,
            "ready": False,
            "reasons": ["the producer is closed"],
            "queued_records": 0,
            "queued_bytes": 0,
        }
    ]
