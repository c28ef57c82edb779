"""Sends the rows that the journal's thread has written to a topic, on the event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Protocol

from asyncrevoke.client.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from asyncrevoke.journal.format.frames import Frame
    from asyncrevoke.journal.recording.log_file import LogFile
    from asyncrevoke.journal.segments import JournalSession


class Sink(Protocol):
    """Stores pieces of logs. Implemented by
    :class:`~asyncrevoke.journal.topic.kafka_sink.KafkaSink`."""

    async def send(self, session: str, pieces: list[bytes]) -> None:
        """Return when these pieces are stored, in their order. Raises JournalError."""

    async def aclose(self) -> None:
        """Disconnect."""


class Shipping:
    """Created on the event loop; its methods are called from the journal's thread."""

    def __init__(self, sink: Sink, session: JournalSession) -> None:
        self._sink = sink
        self._session = session
        self._loop = asyncio.get_running_loop()

    def send(self, log: LogFile, frames: Sequence[Frame]) -> None:
        """Return when the sink has stored these frames. Raises JournalError."""
        from asyncrevoke.journal.topic.kafka_sink import pieces

        blobs = list(pieces(log.piece_header, frames))
        self._do(self._sink.send(self._session.folder.name, blobs))

    def close(self) -> None:
        """Disconnect."""
        self._do(self._sink.aclose())

    def _do(self, work: Coroutine[object, object, None]) -> None:
        try:
            running = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError as error:
            # The loop was closed without closing the consumer.
            work.close()
            raise JournalError("its event loop has ended") from error
        try:
            running.result()
        except CancelledError as error:
            raise JournalError("its event loop has ended") from error
