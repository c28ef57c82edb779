"""Routes for a Starlette application: ``Starlette(routes=health_routes(consumer))``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import JSONResponse
from starlette.routing import Route

from asyncrevoke.client.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.producing.publishing.producer import Producer
    from asyncrevoke.client.producing.publishing.producer_probe import ProducerProbe
    from asyncrevoke.client.runtime.session.probe import Probe
    from asyncrevoke.consumer import Consumer


def health_routes(
    *consumers: Consumer,
    max_handler_age: float | None = None,
    producers: Sequence[Producer] = (),
) -> list[Route]:
    """``GET /livez`` and ``GET /readyz`` for an orchestrator: 200, or 503 with the reasons.

    All consumers and ``producers`` have to be live, or ready; see ``Consumer.probe`` and
    ``Producer.probe``. A handler without a
    ``max_handler_time`` may run for ``max_handler_age`` seconds, by default for ever. The responses
    name groups, states and partitions, and quote no error. Raises ConfigError.
    """
    if not consumers and not producers:
        raise ConfigError("there is no consumer to ask: health_routes(consumer)")
    if max_handler_age is not None and max_handler_age <= 0:
        raise ConfigError(f"max_handler_age={max_handler_age}: seconds above 0, or None")

    def route(name: str, fine: Callable[[Probe | ProducerProbe], bool]) -> Route:
        async def respond(_request: Request) -> JSONResponse:
            probes = [consumer.probe(max_handler_age=max_handler_age) for consumer in consumers]
            of_producers = [producer.probe() for producer in producers]
            every: list[Probe | ProducerProbe] = [*probes, *of_producers]
            ok = all(map(fine, every))
            found: dict[str, object] = {
                "ok": ok,
                "consumers": [probe.details() for probe in probes],
            }
            if of_producers:
                found["producers"] = [probe.details() for probe in of_producers]
            return JSONResponse(
                found,
                status_code=200 if ok else 503,
                headers={"Cache-Control": "no-store"},
            )

        return Route(f"/{name}", respond, name=name, include_in_schema=False)

    return [
        route("livez", lambda probe: probe.live),
        route("readyz", lambda probe: probe.ready),
    ]


def dashboard_routes(
    *consumers: Consumer, prefix: str = "/dashboard", dead_letter_values: bool = False
) -> list[Route]:
    """``GET /dashboard/``: a live page of the consumers' partitions, which
    ``docs/how-to/operating/dashboard.md`` describes.

    Call this before the consumers are entered, because it observes them. The page only reads. It
    shows topics, handlers' names, client ids and the handlers' dead letter topics to every client
    that can reach it, and with ``dead_letter_values`` dead letters with key, headers, value and
    error message: the application has to authenticate clients. Raises ConfigError and
    IllegalStateError.
    """
    from asyncrevoke.web.dashboard.app import Dashboard
    from asyncrevoke.web.dashboard.consumer_watch import ConsumerWatch
    from asyncrevoke.web.dashboard.history import History
    from asyncrevoke.web.dashboard.stored_letters import StoredLetters

    if not consumers:
        raise ConfigError("there is no consumer to look at: dashboard_routes(consumer)")
    history = History(", ".join(dict.fromkeys(str(c.config.group_id) for c in consumers)))
    for consumer in consumers:
        consumer.observe(ConsumerWatch(history, dead_letter_values=dead_letter_values))

    def dead_letter_topics() -> dict[str, ConsumerConfig]:
        return {
            topic: consumer.config
            for consumer in consumers
            for topic in consumer.handler_host.dead_letter_topics()
        }

    stored = StoredLetters(dead_letter_topics, values=dead_letter_values)
    return Dashboard(history, stored).routes(prefix)
