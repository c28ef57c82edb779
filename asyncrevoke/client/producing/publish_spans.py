"""The spans of results that are published together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self


class ResultSpan(Protocol):
    """The span of one result. Implemented by :class:`PublishSpan`."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """The headers with the trace context of the span."""
        ...

    def end(self, error: BaseException | None) -> None:
        """The result is acknowledged, or has failed with this error."""


class ResultTracer(Protocol):
    """Begins spans of results. Implemented by :class:`Tracer`."""

    def publish_span(self, topic: str, *, in_call: bool) -> ResultSpan:
        """Begin the span of a result; ``in_call``: only inside the span of a handler's call."""
        ...


class PublishSpans:
    """Begins spans, and ends all of them when the block ends, with the error of the block."""

    def __init__(self, tracer: ResultTracer | None, *, in_call: bool) -> None:
        self._tracer = tracer
        self._in_call = in_call
        self._spans: list[ResultSpan] = []

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
