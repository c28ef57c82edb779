"""The lifespan and the routes of a FastAPI application with consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from asyncrevoke.integrations.lifespan import consumer_lifespan
from asyncrevoke.integrations.starlette import dashboard_routes, health_routes

if TYPE_CHECKING:
    from asyncrevoke.consumer import Consumer

__all__ = ["consumer_lifespan", "dashboard_router", "health_router"]


def health_router(*consumers: Consumer, max_handler_age: float | None = None) -> APIRouter:
    """``GET /livez`` and ``GET /readyz``: 200, or 503 with the reasons; not in the OpenAPI schema.

    All consumers have to be live, or ready; see ``Consumer.probe``. A handler without a
    ``max_handler_time`` may run for ``max_handler_age`` seconds, by default for ever. The responses
    name groups, states and partitions, and quote no error. Raises ConfigError.
    """
    return APIRouter(routes=list(health_routes(*consumers, max_handler_age=max_handler_age)))


def dashboard_router(
    *consumers: Consumer, prefix: str = "/dashboard", dead_letter_values: bool = False
) -> APIRouter:
    """``GET /dashboard/``: a live page of the consumers' partitions.

    ``docs/how-to/operating/dashboard.md`` describes it.

    Call this before the consumers are entered, because it observes them. The page only reads. It
    shows topics, handlers' names, client ids and the handlers' dead letter topics to every client
    that can reach it, and with ``dead_letter_values`` dead letters with key, headers, value and
    error message: the application has to authenticate clients. Raises ConfigError and
    IllegalStateError.
    """
    return APIRouter(
        routes=list(
            dashboard_routes(*consumers, prefix=prefix, dead_letter_values=dead_letter_values)
        )
    )
