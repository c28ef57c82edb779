"""A journal in a topic, for members whose disks do not last.

Each record is a piece of a session's log that can be read alone. Its key is the session id.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Self

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.errors import ConfigError, JournalError, PublishError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.client.producing.publishing.producer import ProducerWithOwnConnections
from asyncrevoke.journal.format.frames import Frame, SegmentHeader, header_frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from asyncrevoke.client.producing.record_producer import RecordProducer


# Half of the default max.message.bytes, which leaves room for the record batch.
_MOST_BYTES = 500_000
_TIMEOUT = 30.0
# Earlier, so that the error says why the topic is unknown.
_KNOWN_WITHIN = 29.0
_STOP = 2.0


class KafkaSink:
    """Also sends a journal to a topic: ``Journal(path, sink=KafkaSink("billing-journal", ...))``.

    Before the consumer sends a commit, the rows of the committed records are also in this topic, on
    all in-sync replicas. ``options`` are those of ``Consumer`` that a producer uses: ``client_id``,
    ``bootstrap_servers``, the security options, ``request_timeout``, ``compression`` and
    ``idempotent`` (repeated rows are not collected). If rows cannot be sent within 30 s, the
    consumer fails with a JournalError, as it does on a full disk.

    The topic's retention decides how long rows are kept. ``asyncrevoke journal collect`` writes a
    folder from the topic. Raises ConfigError.
    """

    def __init__(self, topic: str, **options: object) -> None:
        if not topic:
            raise ConfigError("KafkaSink needs the name of a topic")
        rejected = {"acks", "enable_idempotence", "transactional_id"} & options.keys()
        if rejected:
            raise ConfigError(
                f"KafkaSink({shown_option(topic)}): {', '.join(sorted(rejected))} cannot be set: "
                "the sink needs acks=all and no transactions; idempotent=False writes without a "
                "producer id"
            )
        self.topic = topic
        self._options = options
        self._config = ConsumerConfig.from_options(**options)
        self._stack = AsyncExitStack()
        self._producer: RecordProducer | None = None

    def __repr__(self) -> str:
        return f"KafkaSink({self.topic!r})"

    def copy(self) -> Self:
        """A sink with the same options, for one session."""
        return type(self)(self.topic, **self._options)

    async def send(self, session: str, pieces: list[bytes]) -> None:
        """Return when these pieces are in the topic, in their order. Raises JournalError. If
        cancelled, some of them may be written."""
        producer = self._producer or await self._open()
        key = session.encode()
        delivery = producer.delivery("")
        try:
            async with asyncio.timeout(_TIMEOUT):
                for piece in pieces:
                    await producer.queue(
                        self.topic, None, key, piece, [], None, delivery, longest_wait=_KNOWN_WITHIN
                    )
                await delivery.wait()
        except TimeoutError as error:
            raise JournalError(
                f"the brokers have not acknowledged the journal in topic {self.topic!r} within "
                f"{_TIMEOUT:g} s: check that it has enough in-sync replicas (the last failure: "
                f"{producer.health(0).last_failure})"
            ) from error
        except PublishError as error:
            raise JournalError(
                f"the journal cannot be sent to topic {self.topic!r}: {error}"
            ) from error

    async def _open(self) -> RecordProducer:
        opened = ProducerWithOwnConnections(self._config)
        self._producer = await self._stack.enter_async_context(opened)
        return self._producer

    async def aclose(self) -> None:
        """Disconnect. Takes at most 2 seconds."""
        self._producer = None
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP):
                await self._stack.aclose()


def pieces(header: SegmentHeader, frames: Iterable[Frame]) -> Iterator[bytes]:
    """Logs of these frames, each small enough for a record of the topic."""
    some: list[Frame] = []
    size = 0
    for frame in frames:
        if some and size + len(frame.data) > _MOST_BYTES:
            yield _log(header, some)
            some, size = [], 0
        some.append(frame)
        size += len(frame.data)
    if some:
        yield _log(header, some)


def _log(header: SegmentHeader, frames: list[Frame]) -> bytes:
    begin = header_frame(header, frames[0].first)
    return b"".join([begin.data, *(frame.data for frame in frames)])
