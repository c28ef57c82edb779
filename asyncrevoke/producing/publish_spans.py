"""The spans of results that are published together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self


class ResultSpan(Protocol):
    """Implemented by :class:`PublishSpan`."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """What carries the trace on to the result."""
        ...

    def end(self, error: BaseException | None) -> None:
        """The result is acknowledged, or has failed with this error."""
        ...


class ResultTracer(Protocol):
    """Implemented by :class:`Tracer`."""

    def publish_span(self, topic: str, *, in_call: bool) -> ResultSpan:
        """The span of a result; ``in_call``: only inside of a span of a handler's call."""
        ...


class PublishSpans:
    """Begins spans, and ends them all when the block ends: with its error, if there is one."""

    def __init__(self, tracer: ResultTracer | None, *, in_call: bool) -> None:
        self._tracer = tracer
        self._in_call = in_call
        self._spans: list[ResultSpan] = []

    def begin(self, topic: str) -> Sequence[tuple[str, bytes | None]]:
        """A result for this topic is about to be queued. Returns the headers that carry its trace
        on."""
        if self._tracer is None:
            return ()
        span = self._tracer.publish_span(topic, in_call=self._in_call)
        self._spans.append(span)
        return span.headers

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for span in self._spans:
            span.end(error)
