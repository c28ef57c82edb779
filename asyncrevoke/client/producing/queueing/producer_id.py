"""The producer id of an idempotent producer (KIP-98): when it is requested, when it is denied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.core.io.effects import Failed, FailureKind
from asyncrevoke.client.producing.error_table import NO_IDEMPOTENCE, rejection
from asyncrevoke.client.producing.queueing.partition_queue import NO_PRODUCER_ID
from asyncrevoke.client.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.init_producer_id.v3.response import InitProducerIdResponse

# Errors that a second request would get, too.
_DENIALS: Final = (
    ErrorCode.cluster_authorization_failed,
    ErrorCode.unsupported_version,
    ErrorCode.invalid_request,
)


class ProducerIdState:
    """``known`` is the producer id, None until one is known.

    Without ``idempotent`` it is always :data:`~.partition_queue.NO_PRODUCER_ID`.
    """

    def __init__(self, *, idempotent: bool) -> None:
        self.known: int | None = None if idempotent else NO_PRODUCER_ID
        # Whether it is requested before there are batches.
        self.wanted = False
        self._requested = False
        self._due = 0.0
        self._backoff = Backoff(0.05, 1.0)

    def forget(self) -> None:
        """Request another producer id: the epochs of this one are used up."""
        if self.known != NO_PRODUCER_ID:
            self.known = None

    def due(self, *, has_batches: bool) -> float:
        """When to request the producer id, infinite if it is known or requested."""
        wanted = has_batches or self.wanted
        return self._due if wanted and self.known is None and not self._requested else float("inf")

    def requested(self) -> None:
        """It is requested now. Call :meth:`received` with the response."""
        self._requested = True

    def received(
        self, now: float, response: InitProducerIdResponse | None, failed: Failed | None
    ) -> tuple[str | None, bool]:
        """Process the response. Returns why there is no producer id, and whether it is denied."""
        self._requested = False
        if response is not None and response.error_code is ErrorCode.none:
            self._backoff.succeeded()
            self.known = response.producer_id
            return None, False
        self._due = now + self._backoff.failed()
        if response is not None:
            why, denied = rejection(response.error_code, None), response.error_code in _DENIALS
        elif failed is not None:
            why = failed.detail or failed.kind.value
            denied = failed.kind is FailureKind.UNSUPPORTED
        else:
            return None, False
        if denied:
            self.wanted = False
            why = f"{why}. {NO_IDEMPOTENCE}"
        return why, denied
