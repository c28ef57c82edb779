"""The newest dead letters of the topics that consumers write them to, read when a viewer asks."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from asyncrevoke.client.printable import printable
from asyncrevoke.dead_letters.dead_letter_topic import DeadLetterTopic
from asyncrevoke.dead_letters.errors import DeadLettersError
from asyncrevoke.dead_letters.stored_dead_letter import NoDeadLetter, StoredDeadLetter
from asyncrevoke.replays.ranges.range_consumer import options_of
from asyncrevoke.web.dashboard.history import contents

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.model import Record

# Limits for one reading of a topic: offsets, bytes, and seconds.
_MOST_OFFSETS: Final = 2_000
_MOST_BYTES: Final = 16 * 1024 * 1024
_MOST_SECONDS: Final = 5.0
# Seconds for a request, with connecting; a port of commands gives a response 15.
_TIMEOUT: Final = 12.0
# Seconds for which a reading is shown to all viewers before the topic is read again.
_KEPT: Final = 10.0
_FETCH: Final = 1024 * 1024
_LONGEST_ERROR: Final = 200


class TopicReading(NamedTuple):
    """The dead letters at the end of a topic, without their contents, the newest first.

    ``at``: the event loop's time when the reading ended. ``skipped``: the number of earlier
    offsets, which were not read. ``no_dead_letters``: the number of records of other programs.
    ``whole`` is false if the limit of bytes or seconds ended the reading.
    """

    topic: str
    at: float
    letters: tuple[StoredDeadLetter, ...]
    skipped: int
    no_dead_letters: int
    whole: bool


class StoredLetters:
    """Reads dead letter topics for the viewers of the page.

    ``sources`` returns, for each request, the topics that viewers may read, and the options to
    connect with. One topic is read at a time, each at most every ten seconds, in the task of the
    request. Contents of dead letters are read only with ``values``.
    """

    def __init__(
        self, sources: Callable[[], Mapping[str, ConsumerConfig]], *, values: bool = False
    ) -> None:
        self.values = values
        self._sources = sources
        self._readings: dict[str, TopicReading] = {}
        self._reads = False

    def topics(self) -> list[str]:
        """The topics that viewers may read."""
        return sorted(self._sources())

    async def newest(self, topic: str) -> TopicReading:
        """The end of a topic, as it was at most ten seconds ago.

        Raises DeadLettersError, and the errors of a Consumer.
        """
        kept = self._readings.get(topic)
        if kept is not None and asyncio.get_running_loop().time() - kept.at < _KEPT:
            return kept
        async with self._opened(topic) as letters:
            reading = await _read(letters)
        self._readings[topic] = reading
        return reading

    async def shown_contents(
        self, topic: str, partition: int, offset: int
    ) -> tuple[tuple[str, str], ...]:
        """The error message and the contents of one dead letter, as pairs of a name and a text.

        Raises DeadLettersError, and the errors of a Consumer.
        """
        if not self.values:
            raise DeadLettersError("this page shows no contents of dead letters")
        async with self._opened(topic) as letters:
            letter = await letters.letter(partition, offset)
        message = letter.why if isinstance(letter, NoDeadLetter) else letter.error_message
        return contents(letter.record, message)

    @asynccontextmanager
    async def _opened(self, topic: str) -> AsyncGenerator[DeadLetterTopic]:
        config = self._sources().get(topic)
        if config is None:
            raise DeadLettersError(f"{topic!r} is not a dead letter topic of this page")
        if self._reads:
            raise DeadLettersError("another viewer reads a dead letter topic: try again")
        limited = replace(config, fetch_max_bytes=_FETCH, max_partition_fetch_bytes=_FETCH)
        letters = DeadLetterTopic(topic, no_progress_timeout=_MOST_SECONDS, **options_of(limited))
        self._reads = True
        try:
            async with asyncio.timeout(_TIMEOUT), letters:
                yield letters
        except TimeoutError as error:
            raise DeadLettersError(f"{topic} was not read within {_TIMEOUT:g} s") from error
        finally:
            self._reads = False


async def _read(topic: DeadLetterTopic) -> TopicReading:
    clock = asyncio.get_running_loop().time
    deadline = clock() + _MOST_SECONDS
    ends = await topic.ends()
    most = max(1, _MOST_OFFSETS // len(ends))
    last = {tp: known[-most:] for tp, known in ends.items()}
    letters: list[StoredDeadLetter] = []
    others = size = 0
    whole = True
    async with aclosing(topic.read(last)) as found:
        async for read in found:
            for letter in read:
                size += _size_of(letter.record)
                if isinstance(letter, NoDeadLetter):
                    others += 1
                else:
                    letters.append(_without_contents(letter))
            if size > _MOST_BYTES or clock() > deadline:
                whole = False
                break
    letters.sort(key=lambda letter: letter.record.timestamp, reverse=True)
    skipped = sum(len(known) - len(last[tp]) for tp, known in ends.items())
    return TopicReading(topic.topic, clock(), tuple(letters), skipped, others, whole)


def _size_of(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def _without_contents(letter: StoredDeadLetter) -> StoredDeadLetter:
    record = letter.record
    return letter._replace(
        record=structs.replace(record, key=None, value=None, headers=()),
        error_type=printable(letter.error_type, _LONGEST_ERROR),
        error_message="",
    )
