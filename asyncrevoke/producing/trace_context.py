"""The headers that a result has of its record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asyncrevoke.producing.encoding import encode_headers

if TYPE_CHECKING:
    from asyncrevoke.model import Record
    from asyncrevoke.producing.message import Headers

# W3C's trace context and baggage.
_TRACE_HEADERS: Final = frozenset(("traceparent", "tracestate", "baggage"))


def trace_headers(record: Record) -> list[tuple[str, bytes | None]]:
    """The trace context of a record."""
    return [header for header in record.headers if header[0].lower() in _TRACE_HEADERS]


def result_headers(
    topic: str,
    record: Record | None,
    own: Headers,
) -> list[tuple[str, bytes | None]]:
    """A result's own headers, after the trace context of its record, unless they have one.

    Raises PublishError.
    """
    encoded = encode_headers(topic, own) if own else []
    if record is None or any(name.lower() == "traceparent" for name, _ in encoded):
        return encoded
    return [*trace_headers(record), *encoded]
