"""Liveness and readiness of a producer, for orchestrators."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypedDict

from asyncrevoke.client.model import ProducerHealth
from asyncrevoke.client.printable import counted, some_names

if TYPE_CHECKING:
    from collections.abc import Iterator


class ProducerProbeDetails(TypedDict):
    """A :class:`ProducerProbe` for JSON, without error messages."""

    client_id: str
    live: bool
    ready: bool
    reasons: list[str]
    queued_records: int
    queued_bytes: int


class ProducerProbe(NamedTuple):
    """The result of ``Producer.probe``; ``reasons`` explain a False.

    ``live`` is False if only a restart helps: the producer has ended because of an error. ``ready``
    is also False before it is entered and after it is closed, while no broker responds, while a
    record has not been acknowledged for longer than ``request_timeout``, and while a topic does
    not exist that records wait for. ``health`` is None before it is entered and after it is closed.
    """

    live: bool
    ready: bool
    reasons: tuple[str, ...]
    client_id: str
    health: ProducerHealth | None

    def details(self) -> ProducerProbeDetails:
        """For JSON, without confidential text."""
        health = self.health
        return ProducerProbeDetails(
            client_id=self.client_id,
            live=self.live,
            ready=self.ready,
            reasons=list(self.reasons),
            queued_records=0 if health is None else health.queued_records,
            queued_bytes=0 if health is None else health.queued_bytes,
        )


def probe(
    client_id: str, health: ProducerHealth | None, request_timeout: float, outside: str
) -> ProducerProbe:
    """Probe a producer in this state; ``outside``: why there is none."""
    if health is None:
        return ProducerProbe(True, False, (outside,), client_id, None)
    if health.error is not None:
        why = f"it has failed: {type(health.error).__name__}, see the log"
        return ProducerProbe(False, False, (why,), client_id, health)
    reasons = tuple(_why_unready(health, request_timeout))
    return ProducerProbe(True, not reasons, reasons, client_id, health)


def _why_unready(health: ProducerHealth, request_timeout: float) -> Iterator[str]:
    if health.failing_seconds is not None:
        yield f"requests have failed for {health.failing_seconds:.0f} s"
    if health.missing_topics:
        yield f"topics do not exist: {some_names(sorted(health.missing_topics))}"
    if (oldest := health.oldest_seconds) is not None and oldest > request_timeout:
        records = counted(health.queued_records, "record")
        yield f"{records} not acknowledged, the oldest for {oldest:.0f} s"
