"""Creates all clients of aiokafka: with limits, and without secrets in their logs.

``options`` are those of aiokafka's class, and ``sasl_scram_max_iterations``. Opening a connection
has the limits of :mod:`asyncrevoke.runtime.net.limited_connection`, and takes at most the client's
``request_timeout_ms``. Responses have the limit of a consumer's connections, which depends on
``fetch_max_bytes``; for clients without this option, on its default.
"""

from __future__ import annotations

from functools import partial
from types import FunctionType, MethodType
from typing import Any, cast

from asyncrevoke.config.checks import FETCH_MAX_BYTES, SCRAM_MAX_ITERATIONS, addresses
from asyncrevoke.runtime.net.authentication.credentials_filter import keep_credentials_out_of_logs


def kafka_producer(**options: object) -> Any:  # noqa: ANN401 - half typed, as all of these
    """A producer, not started yet."""
    from aiokafka import AIOKafkaProducer

    return _limited(AIOKafkaProducer, options, "client")


def kafka_consumer(**options: object) -> Any:  # noqa: ANN401
    """A consumer, not started yet."""
    from aiokafka import AIOKafkaConsumer

    return _limited(AIOKafkaConsumer, options, "_client")


def kafka_admin(**options: object) -> Any:  # noqa: ANN401
    """An admin client, not started yet."""
    from aiokafka.admin import AIOKafkaAdminClient

    return _limited(AIOKafkaAdminClient, options, "_client")


def _limited(kind: Any, options: dict[str, object], client: str) -> Any:  # noqa: ANN401
    """A ``kind`` with limited connections. ``client`` is its attribute that opens connections."""
    from asyncrevoke.runtime.net.frames import frame_limit
    from asyncrevoke.runtime.net.limited_connection import open_limited

    keep_credentials_out_of_logs()
    if "bootstrap_servers" in options:
        # aiokafka logs addresses as they are, also one that has a password.
        options["bootstrap_servers"] = list(
            addresses("bootstrap_servers", options["bootstrap_servers"])
        )
    # aiokafka does not know this one.
    most_iterations = options.pop("sasl_scram_max_iterations", SCRAM_MAX_ITERATIONS)
    made = kind(**options)
    fetch_max_bytes = cast("int", options.get("fetch_max_bytes", FETCH_MAX_BYTES))
    opening = partial(
        open_limited,
        scram_max_iterations=most_iterations,
        max_response=frame_limit(fetch_max_bytes),
    )
    _limit(getattr(made, client), opening)
    return made


def _limit(client: Any, opening: object) -> None:  # noqa: ANN401
    """Let a client open limited connections by ``opening``.

    aiokafka opens connections by a function of a module. The two methods that call it are replaced
    on this client only; other clients in the process are not changed.
    """
    from aiokafka.client import AIOKafkaClient

    kind: Any = AIOKafkaClient
    for name in ("bootstrap", "_get_conn"):
        method: FunctionType = getattr(kind, name)
        if "create_conn" not in method.__code__.co_names:
            raise RuntimeError(
                "this version of aiokafka opens connections in a way that cannot be limited"
            )
        limited = FunctionType(
            method.__code__,
            {**method.__globals__, "create_conn": opening},
            name,
            method.__defaults__,
            method.__closure__,
        )
        limited.__kwdefaults__ = method.__kwdefaults__
        setattr(client, name, MethodType(limited, client))
