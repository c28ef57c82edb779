"""Option names of other Kafka clients, and the option to use instead."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from asyncrevoke.client.printable import shown_option

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

# Old name -> the sentence that follows it.
_OF_BOTH = {
    "api_version": "versions are negotiated with each broker: leave it out",
    "loop": "the event loop that it is entered in is used: leave it out",
    "connections_max_idle_ms": "idle connections are renewed when needed: leave it out",
    "retry_backoff_ms": "retries back off by themselves, with jitter: leave it out",
}
_LINGER = (
    "records are sent at once, together with those that were queued while the last request was on "
    "its way: leave it out"
)
_SERIALIZER = (
    "bytes are written unchanged, text as UTF-8, all else as JSON: encode other values yourself"
)
_RETRIES = "a record is sent again for three times request_timeout: leave it out"
_OF_WRITING = {
    "acks": "records are acknowledged by all in-sync replicas: leave it out",
    "linger_ms": _LINGER,
    "queue_buffering_max_ms": _LINGER,
    "batch_size": _LINGER,
    "max_batch_size": _LINGER,
    "batch_num_messages": _LINGER,
    "value_serializer": _SERIALIZER,
    "key_serializer": "keys are bytes, or text as UTF-8: encode others yourself",
    "retries": _RETRIES,
    "message_send_max_retries": _RETRIES,
    "delivery_timeout_ms": _RETRIES,
    "message_timeout_ms": _RETRIES,
    "max_block_ms": "limit the wait of a call by `async with asyncio.timeout(...)`",
    "max_in_flight_requests_per_connection": (
        "one request at a time is sent to each broker, and keeps the order: leave it out"
    ),
    "max_request_size": "records have up to 100 MiB; the topic's max.message.bytes is the limit",
    "partitioner": "the key decides, as in Java's producer: or use publish(partition=...)",
    "queue_buffering_max_kbytes": "use buffer_memory=..., in bytes",
}
_RESOURCES = (
    "use resources=..., an async context manager, or a function that returns one: what it yields "
    "is context.state in handlers"
)
_OF_READING = {
    "enable_auto_commit": (
        'what counts is decided by commit_mode: "processed" (the default, committed for you), '
        '"ack" or "manual" (the counterpart of enable_auto_commit=False)'
    ),
    "partition_assignment_strategy": (
        'use assignors=("cooperative-sticky",), with names as Java\'s: '
        "range, roundrobin, sticky, cooperative-sticky"
    ),
    "value_deserializer": (
        "values arrive as bytes: annotate the first parameter of a handler with the type "
        "wanted, or use decoder=, a function of the record; in a loop, decode record.value yourself"
    ),
    "key_deserializer": "keys arrive as bytes: decode record.key yourself",
    "consumer_timeout_ms": "use `await consumer.poll(timeout=...)`, in seconds",
    "group_remote_assignor": 'use server_assignor=..., with group_protocol="consumer"',
    "check_crcs": "checksums are always verified: leave it out",
    "exclude_internal_topics": "internal topics are read only when they are named: leave it out",
    "max_workers": "use concurrency=..., the calls of handlers that run at once",
    "lifespan": _RESOURCES,
    "on_startup": _RESOURCES,
    "on_shutdown": _RESOURCES,
    "after_startup": _RESOURCES,
    "after_shutdown": _RESOURCES,
    "topics": 'topics come first, without a name: Consumer("orders", "clicks", ...)',
    "topic": 'topics come first, without a name: Consumer("orders", ...)',
}
_SENTENCES = _OF_BOTH | _OF_WRITING | _OF_READING

# Times whose name differs in more than its unit.
_RENAMED_TIMES = {
    "auto_commit_interval_ms": "commit_interval",
    "fetch_wait_max_ms": "fetch_max_wait",
    "fetch_max_wait_ms": "fetch_max_wait",
    "socket_timeout_ms": "request_timeout",
    "topic_metadata_refresh_interval_ms": "metadata_max_age",
}

_TIMES = (
    "session_timeout",
    "heartbeat_interval",
    "rebalance_timeout",
    "max_poll_interval",
    "request_timeout",
    "metadata_max_age",
    "fetch_max_wait",
    "close_timeout",
    "revoke_timeout",
    "delayed_revoke_poll_interval",
    "commit_interval",
    "transaction_timeout",
)

# Options of a handler that the consumer does not have, too.
_OF_HANDLERS = frozenset(
    (
        "batch",
        "dead_letter",
        "encoder",
        "max_handler_time",
        "max_records",
        "max_wait",
        "on_error",
        "publish_to",
        "rate_limit",
        "release_delay",
        "retry",
        "retry_topic",
        "run_in",
        "unmatched",
        "where",
    )
)

_RENAMED = {
    "rack_id": "client_rack",
    "rack": "client_rack",
    "client_rack_id": "client_rack",
    "queued_max_messages_kbytes": "buffer_memory",
    "sasl_username": "sasl_plain_username",
    "sasl_password": "sasl_plain_password",
    "sasl_mechanisms": "sasl_mechanism",
    "compression_type": "compression",
    "enable_idempotence": "idempotent",
}


def old_name(name: str, value: object) -> str | None:
    """The message about an option name of another client; None if the name is not known.

    Dots in names of Java and librdkafka are read as underscores.
    """
    plain = name.replace(".", "_")
    if plain in _OF_HANDLERS:
        return (
            f"there is no option {name}: it is an option of a handler: "
            f'@consumer.handler("orders", {name}=...)'
        )
    return _renamed(name, plain, value, _SENTENCES, (*_TIMES, *_RENAMED.values())) or _dotted(name)


def old_producer_name(name: str, value: object, known: Collection[str]) -> str | None:
    """The same about an option of a producer, whose options are ``known``."""
    plain = name.replace(".", "_")
    return _renamed(name, plain, value, _OF_BOTH | _OF_WRITING, known) or _dotted(name)


def _dotted(name: str) -> str | None:
    if "." in name:
        return (
            f"there is no option {name}: names have underscores, like bootstrap_servers=..., and "
            "few options are those of Java or librdkafka"
        )
    return None


def _renamed(
    name: str, plain: str, value: object, sentences: Mapping[str, str], known: Collection[str]
) -> str | None:
    if (sentence := sentences.get(plain)) is not None:
        return f"there is no option {name}: {sentence}"
    if plain.endswith("_ms"):
        wanted = _RENAMED_TIMES.get(plain, plain[:-3])
        if wanted in _TIMES and wanted in known:
            return f"there is no option {name}, times are in seconds: {_in_seconds(wanted, value)}"
    if (renamed := _RENAMED.get(plain)) in known:
        return f"there is no option {name}: use {renamed}=..."
    return None


def explain_unknown(name: str, known: Iterable[str], noun: str = "option") -> str:
    """The message about an unknown ``name``, with the closest known names."""
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    shown = shown_option(name) if "@" in name else name
    start = f"there is no {noun} {shown}"
    if not close:
        if noun == "option":
            return f"{start}: all of them are described at asyncrevoke.config.ConsumerConfig"
        return f"{start}: there are {', '.join(known)}"
    return f"{start}: did you mean {' or '.join(close)}?"


def _in_seconds(name: str, value: object) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"use {name}={value / 1000}"
    return f"use {name}=... with a number"
