"""Delays commits until the journal's rows of the committed records are on disk."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

from asyncrevoke.client.core.io.effects import Failed, FailureKind, Replied, Send
from asyncrevoke.client.producing.transactions.offset_requests import TxnOffsetCommitRequest
from asyncrevoke.client.protocol.messages import OffsetCommitRequest
from asyncrevoke.client.runtime.net.requests import ForwardedRequests, Requests

if TYPE_CHECKING:
    from collections.abc import Callable


class RecordsCommits(Protocol):
    """Flushes rows before commits, and records their outcomes. Implemented by
    :class:`~asyncrevoke.journal.recording.recorder.Recorder`."""

    async def flush(self) -> None:
        """Return when all rows are on disk. Raises JournalError."""

    def now(self) -> int:
        """The time as rows have it: microseconds since the epoch, never decreasing."""
        ...

    def committed(self, request: OffsetCommitRequest, sent: int, reply: Replied | Failed) -> None:
        """Record the outcome of a commit. ``sent`` is the time before it was sent."""

    def offsets_sent(self, sent: int) -> None:
        """Offsets were sent for the present transaction, at the time ``sent``."""


class CommitGate(ForwardedRequests):
    """Forwards requests. Delays a commit until the rows of the committed records are on disk."""

    def __init__(self, requests: Requests, recorder: RecordsCommits) -> None:
        super().__init__(requests)
        self._recorder = recorder

    @override
    def begin(self, send: Send, on_reply: Callable[[Replied | Failed], object]) -> bool:
        """Send one request at once, unless it is a commit."""
        if isinstance(send.message, (OffsetCommitRequest, TxnOffsetCommitRequest)):
            return False
        return self._requests.begin(send, on_reply)

    @override
    async def request(self, send: Send) -> Replied | Failed:
        """Send one request. A commit waits until the rows of the committed records are on disk."""
        message = send.message
        if not isinstance(message, (OffsetCommitRequest, TxnOffsetCommitRequest)):
            return await self._requests.request(send)
        try:
            async with asyncio.timeout(send.timeout):
                await self._recorder.flush()
        except TimeoutError:
            what = f"the journal was not on disk within {send.timeout:g} s"
            return Failed(send.request_id, FailureKind.UNREACHABLE, what)
        sent = self._recorder.now()
        if isinstance(message, TxnOffsetCommitRequest):
            # Committed at the end of the transaction.
            self._recorder.offsets_sent(sent)
            return await self._requests.request(send)
        reply = await self._requests.request(send)
        self._recorder.committed(message, sent, reply)
        return reply
