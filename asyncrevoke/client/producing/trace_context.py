"""The trace context in the headers of records and results, and the spans of results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from asyncrevoke.client.producing.encoding import encode_headers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.model import Record
    from asyncrevoke.client.producing.message import Headers
    from asyncrevoke.client.runtime.hooks.observers import PublishSpan, Tracer

# W3C Trace Context and Baggage.
_TRACE_HEADERS: Final = frozenset(("traceparent", "tracestate", "baggage"))
_ADDITIONS: Final = frozenset(("tracestate", "baggage"))


def trace_headers(record: Record) -> list[tuple[str, bytes | None]]:
    """The headers of a record that have its trace context."""
    return [header for header in record.headers if header[0].lower() in _TRACE_HEADERS]


def replace_headers(
    headers: Sequence[tuple[str, bytes | None]], carried: Sequence[tuple[str, bytes | None]]
) -> list[tuple[str, bytes | None]]:
    """``headers`` of a failed record, with the trace context ``carried`` instead of its own.

    It comes first: the headers of a dead letter have to come last.
    """
    names = {name.lower() for name, _ in carried}
    return [*carried, *(header for header in headers if header[0].lower() not in names)]


def result_headers(
    topic: str,
    carried: Sequence[tuple[str, bytes | None]],
    own: Headers,
) -> list[tuple[str, bytes | None]]:
    """The headers ``own`` of a result, after the trace context ``carried``, unless ``own`` has one.

    Raises PublishError.
    """
    if not own:
        return list(carried)
    encoded = encode_headers(topic, own)
    begins = {"traceparent", *(name.lower() for name, _ in carried)} - _ADDITIONS
    if any(name.lower() in begins for name, _ in encoded):
        return encoded
    return [*carried, *encoded]


class PublishSpans:
    """Begins spans, and ends all of them when the block ends, with the error of the block."""

    def __init__(self, tracer: Tracer | None, *, in_call: bool) -> None:
        self._tracer = tracer
        self._in_call = in_call
        self._spans: list[PublishSpan] = []

    def begin(self, topic: str) -> Sequence[tuple[str, bytes | None]]:
        """Begin the span of a result for this topic, and return the headers for its trace."""
        if self._tracer is None:
            return ()
        span = self._tracer.publish_span(topic, in_call=self._in_call)
        self._spans.append(span)
        return span.headers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        for span in self._spans:
            span.end(error)
