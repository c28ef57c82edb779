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
    """``GET /livez`` and ``GET /readyz``, as
    :func:`~asyncrevoke.integrations.starlette.health_routes` describes them; not in the OpenAPI
    schema. Raises ConfigError."""
    return APIRouter(routes=list(health_routes(*consumers, max_handler_age=max_handler_age)))


def dashboard_router(
    *consumers: Consumer, prefix: str = "/dashboard", dead_letter_values: bool = False
) -> APIRouter:
    """``GET /dashboard/``: a live page of the consumers' partitions, as
    :func:`~asyncrevoke.integrations.starlette.dashboard_routes` describes it.

    The application has to authenticate clients. Call this before the consumers are entered. Raises
    ConfigError and IllegalStateError.
    """
    routes = dashboard_routes(*consumers, prefix=prefix, dead_letter_values=dead_letter_values)
    return APIRouter(routes=list(routes))
