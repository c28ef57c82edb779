"""Delays acknowledgements of a share group until the journal's rows of their records are on disk,
and records what brokers deliver and what they acknowledge."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

from asyncrevoke.client.core.io.effects import Failed, FailureKind, Replied, Send
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import ErrorCode
from asyncrevoke.client.protocol.share_messages import (
    AcknowledgeType,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from asyncrevoke.client.runtime.net.requests import ForwardedRequests, Requests
from asyncrevoke.journal.format.schema import CallOutcome, RowKind
from asyncrevoke.journal.recording.entries import Fact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from asyncrevoke.client.core.share_core import ShareCore
    from asyncrevoke.client.protocol.share_messages import TopicIdPartition

# Of a record: others say that an offset has none, or renew a lock.
_KINDS = {
    AcknowledgeType.ACCEPT: RowKind.ACCEPT,
    AcknowledgeType.RELEASE: RowKind.RELEASE,
    AcknowledgeType.REJECT: RowKind.REJECT,
}
# After these the record is not delivered again.
_FINAL = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)


class RecordsAcknowledgements(Protocol):
    """Flushes rows before acknowledgements, and takes rows. Implemented by
    :class:`~asyncrevoke.journal.recording.recorder.Recorder`."""

    async def flush(self) -> None:
        """Return when all rows are on disk. Raises JournalError."""

    def now(self) -> int:
        """The time as rows have it: microseconds since the epoch, never decreasing."""
        ...

    def put_facts(self, facts: Iterable[Fact]) -> None:
        """Queue these rows."""


class AcknowledgementGate(ForwardedRequests):
    """Forwards requests. Delays those that accept or reject records until the rows of these records
    are on disk."""

    def __init__(
        self, requests: Requests, recorder: RecordsAcknowledgements, core: ShareCore
    ) -> None:
        super().__init__(requests)
        self._recorder = recorder
        self._core = core
        self._names: dict[bytes, str] = {}

    @override
    def begin(self, send: Send, on_reply: Callable[[Replied | Failed], object]) -> bool:
        """Send one request at once, unless it accepts or rejects records."""
        message = send.message
        if not isinstance(message, (ShareFetchRequest, ShareAcknowledgeRequest)):
            return self._requests.begin(send, on_reply)
        if _is_final(message):
            return False
        sent = self._recorder.now()

        def replied(reply: Replied | Failed) -> None:
            self._replied(message, sent, reply)
            on_reply(reply)

        return self._requests.begin(send, replied)

    @override
    async def request(self, send: Send) -> Replied | Failed:
        """Send one request. One that accepts or rejects records waits until their rows are on
        disk."""
        message = send.message
        if not isinstance(message, (ShareFetchRequest, ShareAcknowledgeRequest)):
            return await self._requests.request(send)
        if _is_final(message):
            try:
                async with asyncio.timeout(send.timeout):
                    await self._recorder.flush()
            except TimeoutError:
                what = f"the journal was not on disk within {send.timeout:g} s"
                return Failed(send.request_id, FailureKind.UNREACHABLE, what)
        sent = self._recorder.now()
        reply = await self._requests.request(send)
        self._replied(message, sent, reply)
        return reply

    def _replied(
        self,
        request: ShareFetchRequest | ShareAcknowledgeRequest,
        sent: int,
        reply: Replied | Failed,
    ) -> None:
        now = self._recorder.now()
        self._recorder.put_facts(self._acknowledged(request, sent, now, reply))
        if isinstance(reply, Replied) and isinstance(reply.message, ShareFetchResponse):
            self._recorder.put_facts(self._acquired(reply.message, request.member_id, now))

    def _acknowledged(
        self,
        request: ShareFetchRequest | ShareAcknowledgeRequest,
        sent: int,
        now: int,
        reply: Replied | Failed,
    ) -> Iterator[Fact]:
        """The rows of the acknowledgements in a request. Those of a request that the broker has
        refused as a whole are sent again."""
        errors = _errors_of(reply)
        if errors is None:
            return
        for asked in request.partitions:
            error = errors.get(asked.partition, ErrorCode.unknown_server_error)
            for batch in asked.acknowledgements:
                if batch.type in _KINDS and (where := self._partition(asked.partition)) is not None:
                    fact = Fact(_KINDS[batch.type], now, *where, batch.first_offset)
                    yield fact._replace(
                        last_offset=batch.last_offset,
                        member=request.member_id,
                        outcome=_OUTCOMES.get(error, CallOutcome.REFUSED),
                        error_type=None if error is ErrorCode.none else error.name,
                        started_us=sent,
                    )

    def _acquired(self, response: ShareFetchResponse, member: str, now: int) -> Iterator[Fact]:
        """The rows of the offsets that the broker has delivered."""
        if response.error is not ErrorCode.none:
            return
        for fetched in response.partitions:
            where = self._partition(fetched.partition) if fetched.acquired else None
            if where is None or fetched.error is not ErrorCode.none:
                continue
            for acquired in fetched.acquired:
                fact = Fact(RowKind.ACQUIRED, now, *where, acquired.first_offset, member)
                yield fact._replace(
                    last_offset=acquired.last_offset,
                    records=acquired.delivery_count,
                    checksum=self._core.delivery_limit,
                )

    def _partition(self, partition: TopicIdPartition) -> TopicPartition | None:
        """The partition with the name of its topic, also after the topic was deleted."""
        if partition.topic_id not in self._names:
            self._names.update(self._core.cluster.names_by_id())
        name = self._names.get(partition.topic_id)
        return None if name is None else TopicPartition(name, partition.partition)


_NOT_SENT = (FailureKind.UNREACHABLE, FailureKind.AUTHENTICATION, FailureKind.UNSUPPORTED)
# Others say that the broker has not applied it.
_OUTCOMES = {
    ErrorCode.none: CallOutcome.OK,
    ErrorCode.unknown_server_error: CallOutcome.UNKNOWN,
    ErrorCode.request_timed_out: CallOutcome.UNKNOWN,
}


def _errors_of(reply: Replied | Failed) -> dict[TopicIdPartition, ErrorCode] | None:
    """The errors of the acknowledgements by partition; UNKNOWN_SERVER_ERROR stands for those that
    are not listed. None if no acknowledgement was sent or applied."""
    if isinstance(reply, Failed):
        return None if reply.kind in _NOT_SENT else {}
    match reply.message:
        case ShareFetchResponse(error=ErrorCode.none, partitions=partitions):
            return {entry.partition: entry.acknowledge_error for entry in partitions}
        case ShareAcknowledgeResponse(error=ErrorCode.none, partitions=entries):
            return {entry.partition: entry.error for entry in entries}
        case (
            ShareFetchResponse(error=ErrorCode.unknown_server_error)
            | ShareAcknowledgeResponse(error=ErrorCode.unknown_server_error)
        ):
            return {}
        case _:
            return None


def _is_final(request: ShareFetchRequest | ShareAcknowledgeRequest) -> bool:
    return any(
        batch.type in _FINAL for asked in request.partitions for batch in asked.acknowledgements
    )
