"""Alive and ready, as an orchestrator asks for it: by ``Consumer.probe`` and over HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette

from asyncrevoke import ConfigError, Consumer
from asyncrevoke.integrations.fastapi import health_router
from asyncrevoke.integrations.starlette import health_routes
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import ASGIApp

    from asyncrevoke import Health

ALL = [("orders", number) for number in range(4)]


def handling(work: Callable[[], Awaitable[object]], **options: Any) -> Consumer:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders", **options)
    async def bill(order: bytes) -> None:
        await work()

    return consumer


async def nothing() -> None: ...


async def fail() -> None:
    raise ValueError("card 1234")


async def stubborn(until: asyncio.Event) -> None:
    while not until.is_set():
        try:
            await until.wait()
        except asyncio.CancelledError:
            continue


async def asked(app: ASGIApp, path: str) -> tuple[int, dict[str, Any]]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
        response = await client.get(path)
        assert response.headers["cache-control"] == "no-store"
        return response.status_code, response.json()


def test_before_it_is_entered_a_consumer_is_alive_and_not_ready() -> None:
    probe = handling(nothing).probe()
    assert (probe.live, probe.ready, probe.reasons) == (True, False, ("it is not entered yet",))
    assert probe.details()["state"] is None


async def test_a_member_of_its_group_is_ready_also_without_any_partition() -> None:
    async with TestConsumer(handling(nothing)) as t:
        assert t.consumer.probe()[:3] == (True, True, ())
        await t.revoke(*ALL)
        await t.advance(5)
        assert t.assignment() == frozenset()
        assert t.consumer.probe()[:3] == (True, True, ())


async def test_a_consumer_without_a_broker_that_responds_is_alive_and_not_ready() -> None:
    async with Consumer("orders", bootstrap_servers="localhost:1", group_id="billing") as consumer:
        assert consumer.probe().reasons == ("it has not joined its group yet",)
        async with asyncio.timeout(10):
            while not consumer.health().unreachable_brokers:  # noqa: ASYNC110 - of a connection
                await asyncio.sleep(0.01)
        probe = consumer.probe()
    assert (probe.live, probe.ready) == (True, False)
    assert probe.reasons == (
        "it has not joined its group yet",
        "brokers do not respond: localhost:1",
    )


async def test_a_coordinator_that_falls_silent_makes_it_unready_and_not_dead() -> None:
    async with TestConsumer(handling(nothing)) as t:
        t._group.opened.connections.cut()
        await t.advance(1)
        probe = t.consumer.probe()
        assert probe[:3] == (True, False, ("brokers do not respond: broker-0:9092",))
        await t.advance(53)
        probe = t.consumer.probe()
        assert (probe.live, probe.ready) == (True, False)
        assert probe.reasons[0].startswith("the coordinator was last heard 5")
        await t.crash()


@pytest.mark.parametrize(("session_timeout", "ready"), [(9.0, False), (45.0, True)])
async def test_readiness_ends_with_the_session_that_the_membership_has(
    monkeypatch: pytest.MonkeyPatch, session_timeout: float, *, ready: bool
) -> None:
    async with TestConsumer(handling(nothing)) as t:
        core = t._session.core
        health = core.health(0)._replace(heartbeat_age=10.0, session_timeout=session_timeout)

        def health_now(_now: float) -> Health:
            return health

        monkeypatch.setattr(core, "health", health_now)
        assert t.consumer.probe().ready == ready


async def test_a_consumer_that_closes_is_alive_and_not_ready() -> None:
    consumer = handling(nothing)
    async with TestConsumer(consumer) as t:
        consumer.stop()
        await t.advance(0)
        assert consumer.probe()[:3] == (True, False, ("it is closing, or closed",))


async def test_a_failed_handler_is_named_by_its_kind_and_never_by_its_text() -> None:
    consumer = handling(fail)
    async with TestConsumer(consumer) as t:
        with pytest.raises(ValueError, match="1234"):
            await t.publish("orders", b"x")
        probe = consumer.probe()
        assert (probe.live, probe.ready) == (False, False)
        assert probe.reasons == ("it has failed: ValueError, see the log",)
        assert "1234" not in str(probe.details())


async def test_a_handler_beyond_the_greatest_age_is_not_alive_and_again_when_it_has_ended() -> None:
    go_on = asyncio.Event()
    consumer = handling(go_on.wait)
    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"x", partition=2)
        await t.advance(60)
        assert consumer.probe(max_handler_age=61).live
        assert consumer.probe().live
        await t.advance(3)
        probe = consumer.probe(max_handler_age=61)
        assert not probe.live
        (reason,) = probe.reasons
        assert "bill has been running for 6" in reason
        assert "orders-2 at offset 0" in reason
        (running,) = consumer.health().running
        assert 62 <= running.seconds <= 63
        go_on.set()
        await t.advance(0)
        assert consumer.probe(max_handler_age=61).live


async def test_a_handler_that_exceeds_its_time_limit_fails_the_liveness_probe() -> None:
    go_on = asyncio.Event()
    consumer = handling(lambda: stubborn(go_on), max_handler_time=10)
    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"x")
        await t.advance(14.5)
        assert consumer.probe().live
        await t.advance(2)
        assert not consumer.probe().live
        go_on.set()
        await t.advance(1)


async def test_a_further_attempt_has_an_age_of_its_own() -> None:
    from asyncrevoke import Retry

    async def slow_failure() -> None:
        await asyncio.sleep(40)
        raise ValueError

    retry = Retry(attempts=3, backoff=0.1, jitter=0)
    consumer = handling(slow_failure, retry=retry, on_error="skip")
    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"x")
        await t.advance(60)
        (running,) = consumer.health().running
        assert 18 <= running.seconds <= 20
        await t.advance(90)
        assert consumer.health().running == ()


@pytest.mark.parametrize("framework", ["fastapi", "starlette"])
async def test_the_routes_respond_200_and_then_503_with_the_reason(framework: str) -> None:
    consumer = handling(fail)
    app: ASGIApp
    if framework == "fastapi":
        app = fast = FastAPI()
        fast.include_router(health_router(consumer))
        assert fast.openapi()["paths"] == {}
    else:
        app = Starlette(routes=health_routes(consumer))
    assert await asked(app, "/livez") == (
        200,
        {"ok": True, "consumers": [dict(consumer.probe().details())]},
    )
    assert (await asked(app, "/readyz"))[0] == 503
    async with TestConsumer(consumer) as t:
        for path in "/livez", "/readyz":
            status, body = await asked(app, path)
            assert (status, body["ok"]) == (200, True)
            assert body["consumers"][0]["assigned"] == 4
        with pytest.raises(ValueError, match="1234"):
            await t.publish("orders", b"x")
        for path in "/livez", "/readyz":
            status, body = await asked(app, path)
            assert (status, body["ok"]) == (503, False)
            assert body["consumers"][0]["reasons"] == ["it has failed: ValueError, see the log"]


@pytest.mark.parametrize(
    ("unavailable", "reason"),
    [
        (
            {"rejected_topics": frozenset({"payments"})},
            "the brokers reject requests for topics: payments",
        ),
        (
            {"missing_topics": frozenset({"refunds", "orders.dlq"})},
            "topics do not exist: orders.dlq, refunds",
        ),
        ({"unreachable_brokers": ("kafka-2:9092",)}, "brokers do not respond: kafka-2:9092"),
    ],
)
async def test_readyz_names_what_cannot_be_read_and_livez_responds_200(
    unavailable: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = handling(nothing)
    app = Starlette(routes=health_routes(consumer))
    async with TestConsumer(consumer):
        health = consumer.health()._replace(**unavailable)
        monkeypatch.setattr(consumer, "health", lambda: health)
        facts: dict[str, object] = {
            "group": "billing",
            "live": True,
            "ready": False,
            "reasons": [reason],
            "state": "stable",
            "assigned": 4,
            "in_flight": 0,
            "paused": [],
            "paused_because": {},
        }
        assert await asked(app, "/readyz") == (503, {"ok": False, "consumers": [facts]})
        assert await asked(app, "/livez") == (200, {"ok": True, "consumers": [facts]})


async def test_readyz_names_at_most_six_topics_and_the_number_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = handling(nothing)
    topics = frozenset(f"topic-{number}" for number in range(8))
    async with TestConsumer(consumer):
        health = consumer.health()._replace(rejected_topics=topics)
        monkeypatch.setattr(consumer, "health", lambda: health)
        (reason,) = consumer.probe().reasons
    assert reason == (
        "the brokers reject requests for topics: topic-0, topic-1, topic-2, topic-3, topic-4, "
        "topic-5 and 2 more"
    )


async def test_of_several_consumers_each_has_to_be_fine() -> None:
    entered, other = handling(nothing), handling(nothing)
    app = FastAPI()
    app.include_router(health_router(entered, other))
    async with TestConsumer(entered):
        status, body = await asked(app, "/readyz")
        assert status == 503
        assert [each["ready"] for each in body["consumers"]] == [True, False]
        assert (await asked(app, "/livez"))[0] == 200


def test_a_router_without_consumers_or_with_an_age_that_is_none_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"there is no consumer to ask"):
        health_router()
    with pytest.raises(ConfigError, match=r"max_handler_age=0: seconds above 0"):
        health_routes(handling(nothing), max_handler_age=0)
