"""Writes dead letters back to the topics that they come from."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from asyncrevoke.client.config.consumer_options import Processing
from asyncrevoke.client.config.topics import check_topics
from asyncrevoke.client.errors import AsyncRevokeError, ConfigError, PublishError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.client.producing.delivery import CompleteDelivery
from asyncrevoke.client.producing.message import PublishedRecord
from asyncrevoke.client.producing.record_batch import record_bytes
from asyncrevoke.dead_letters.dead_letter_filter import DeadLetterFilter
from asyncrevoke.dead_letters.errors import DeadLettersError
from asyncrevoke.dead_letters.listing import MAX_NAMED, NamedRecord, PlannedRecord
from asyncrevoke.dead_letters.replay_journal import ReplayJournal
from asyncrevoke.dead_letters.stored_dead_letter import (
    NoDeadLetter,
    StoredDeadLetter,
    why_not_replayed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from asyncrevoke.client.model import Record, TopicPartition
    from asyncrevoke.dead_letters.dead_letter_topic import DeadLetterTopic, TimestampLimits
    from asyncrevoke.dead_letters.replay_transactions import ReplayTransactions

# Dead letters that are sent at once, and acknowledged before the next ones are.
_AT_ONCE: Final = 200
# And most bytes of them, if there is more than one.
_BYTES_AT_ONCE: Final = 8 * 1024 * 1024
# Seconds of ``rate`` in which that many are sent at most.
_PACE: Final = 0.2

Timestamps: TypeAlias = Literal["now", "original"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """What is replayed, where to, and how fast.

    ``to`` is another topic than that of each dead letter's origin. Without it, dead letters are
    written only to the origin topics of ``chosen``, and to a topic that the dead letter topic is
    named after: ``orders`` of ``orders.dlq``. With ``timestamps="now"`` the written records have
    the time of writing as their timestamp, and a header has the original one. With ``"original"``
    they have the original one; a dead letter is not sent if the topic would reject it, or delete it
    by ``retention.ms``. ``limit`` is the most that are sent, ``rate`` the most in a second. A dead
    letter that was replayed ``max_attempts`` times is not sent again. ``journal`` is a file that
    has what was sent, by default ``TOPIC.replay.jsonl`` in the current folder: what it names is not
    sent again. What may have been sent before, by a replay that was killed, is sent again only with
    ``resend_in_doubt``. With ``dry_run`` the journal is read, and nothing is sent or written.

    With ``processing="exactly_once"`` dead letters are written in transactions, whose numbers the
    journal and the committed offsets of a group have: another replay with this journal finds out
    what a killed one has sent, so that readers with ``read_committed`` see each record once. Raises
    ConfigError.
    """

    chosen: DeadLetterFilter = field(default_factory=DeadLetterFilter)
    to: str | None = None
    timestamps: Timestamps = "now"
    limit: int | None = None
    rate: float | None = None
    max_attempts: int = 3
    dry_run: bool = False
    journal: Path | None = None
    resend_in_doubt: bool = False
    processing: Processing = "at_least_once"

    def __post_init__(self) -> None:
        if self.to is not None:
            check_topics((self.to,), "to")
        if self.timestamps not in get_args(Timestamps):
            raise ConfigError(
                f'timestamps={shown_option(self.timestamps)}: use "now" or "original"'
            )
        if self.processing not in get_args(Processing):
            raise ConfigError(
                f'processing={shown_option(self.processing)}: use "at_least_once" or "exactly_once"'
            )
        if self.limit is not None and self.limit < 1:
            raise ConfigError(f"limit={self.limit}: at least 1")
        if self.rate is not None and not 0 < self.rate < float("inf"):
            raise ConfigError(f"rate={self.rate}: more than 0 a second")
        if self.max_attempts < 1:
            raise ConfigError(f"max_attempts={self.max_attempts}: at least 1")


@dataclass(slots=True)
class ReplayResult:
    """What a replay has done so far.

    ``read`` of ``total`` offsets are read; ``selected`` dead letters agree with the filter. Of
    these, ``sent`` are acknowledged (with ``dry_run``: would be sent), ``sent_before`` are in the
    journal, and ``not_sent`` are rejected for a reason, as are records that are not dead letters:
    ``named`` are the first of them. ``planned`` are the first ones that a dry run would send.
    ``error`` says why the replay has ended early.
    """

    total: int = 0
    read: int = 0
    selected: int = 0
    sent: int = 0
    sent_before: int = 0
    not_sent: int = 0
    stopped: bool = False
    error: str | None = None
    by_topic: dict[str, int] = field(default_factory=dict)
    named: list[NamedRecord] = field(default_factory=list)
    planned: list[PlannedRecord] = field(default_factory=list)


class Replay:
    """One replay of a dead letter topic, which is entered; ``progress`` gets the result so far.

    Without a journal, another replay sends the same dead letters again. ``on_new_journal`` gets the
    path of a journal that has nothing that was sent before, before anything is sent.
    """

    def __init__(
        self,
        letters: DeadLetterTopic,
        options: ReplayOptions,
        progress: Callable[[ReplayResult], object] | None = None,
        *,
        with_journal: bool = True,
        on_new_journal: Callable[[Path], object] | None = None,
    ) -> None:
        if options.to == letters.topic:
            raise ConfigError(f"to={options.to}: that is the dead letter topic itself")
        if options.processing == "exactly_once" and not letters.config.idempotent:
            raise ConfigError('processing="exactly_once" needs idempotent=True')
        self._letters = letters
        self._options = options
        self._progress = progress
        self._with_journal = with_journal
        self._on_new_journal = on_new_journal
        self._transactions: ReplayTransactions | None = None
        to = () if options.to is None else (options.to,)
        self._allowed = options.chosen.origin_topics.union(to)
        # By topic, if the original timestamps are kept.
        self._limits: dict[str, TimestampLimits] = {}
        self._stopping = False
        self._next_at = 0.0
        self.result = ReplayResult()

    def stop(self) -> None:
        """End when what is being sent is acknowledged."""
        self._stopping = True

    async def run(self) -> ReplayResult:
        """Replay what is in the topic now.

        Records of one partition are sent in their order. ``result.error`` has the first error of a
        broker, after which nothing is sent. Raises DeadLettersError if the topic cannot be read,
        the journal cannot be written, or a coordinator cannot be asked how a transaction of a
        killed replay ended. If cancelled, what was being sent is in doubt.
        """
        if not self._with_journal:
            return await self._run(None)
        # No journal is made for a topic that does not exist.
        await self._letters.ends()
        path = self._options.journal or Path(f"{self._letters.topic}.replay.jsonl")
        dry_run = self._options.dry_run
        with ReplayJournal(path, self._letters.topic, read_only=dry_run) as journal:
            if journal.is_new and self._on_new_journal is not None:
                self._on_new_journal(path.absolute())
            return await self._run(journal)

    async def _run(self, journal: ReplayJournal | None) -> ReplayResult:
        ranges = await self._letters.ends()
        result, options = self.result, self._options
        result.total = sum(len(offset_range) for offset_range in ranges.values())
        _check_journal(journal, ranges)
        async with AsyncExitStack() as stack:
            in_transactions = options.processing == "exactly_once" and not options.dry_run
            if journal is not None and in_transactions:
                # Most replays have none.
                from asyncrevoke.dead_letters.replay_transactions import ReplayTransactions

                self._transactions = await stack.enter_async_context(
                    ReplayTransactions(self._letters.config, self._letters.topic, ranges, journal)
                )
            await self._replay(ranges, journal)
        return result

    async def _replay(
        self, ranges: dict[TopicPartition, range], journal: ReplayJournal | None
    ) -> None:
        result = self.result
        read = {partition: offsets.start for partition, offsets in ranges.items()}
        async for found in self._letters.read(ranges):
            chosen = [one for letter in found if (one := await self._choose(letter, journal))]
            for sent in self._portions(chosen):
                if self._is_over():
                    return
                await self._send(sent, journal)
                self._read_up_to(sent, read)
            self._read_up_to(found, read)
            if self._is_over():
                return
        result.read = result.total
        self._report()

    def _portions(self, letters: Sequence[StoredDeadLetter]) -> Iterator[list[StoredDeadLetter]]:
        """The dead letters that are sent at once."""
        most, portion, size = self._at_once(), list[StoredDeadLetter](), 0
        for letter in letters:
            record = letter.record
            length = record_bytes(record.key, record.value, list(record.headers))
            if portion and (len(portion) == most or size + length > _BYTES_AT_ONCE):
                yield portion
                portion, size = [], 0
            portion.append(letter)
            size += length
        if portion:
            yield portion

    def _read_up_to(
        self, letters: Sequence[StoredDeadLetter | NoDeadLetter], read: dict[TopicPartition, int]
    ) -> None:
        """Count the offsets up to these letters. ``read`` has the next offset by partition."""
        for letter in letters:
            where, after = letter.record.topic_partition, letter.record.offset + 1
            if after > read[where]:
                self.result.read += after - read[where]
                read[where] = after
        self._report()

    async def _choose(
        self, letter: StoredDeadLetter | NoDeadLetter, journal: ReplayJournal | None
    ) -> StoredDeadLetter | None:
        result, options = self.result, self._options
        if isinstance(letter, NoDeadLetter):
            self._name(letter.record, letter.why)
            return None
        if not options.chosen.takes(letter):
            return None
        result.selected += 1
        place = letter.record.partition, letter.record.offset
        if journal is not None and journal.has_sent(*place):
            result.sent_before += 1
            return None
        in_doubt = journal is not None and journal.is_in_doubt(*place)
        if options.resend_in_doubt or not in_doubt:
            target = self._target(letter)
            why = why_not_replayed(letter, target, self._allowed, options.max_attempts)
            if why is None and options.timestamps == "original":
                why = (await self._limits_of(target)).why_not(letter.original_timestamp)
        elif journal is not None and journal.is_in_transaction(*place):
            why = "a replay that was killed may have sent it (processing=exactly_once finds out"
            why += ", except in a dry run)" if options.dry_run else ")"
        else:
            why = "an interrupted replay may have sent it (resend_in_doubt=True sends it again)"
        if why is None:
            return letter
        self._name(letter.record, why)
        return None

    async def _limits_of(self, topic: str) -> TimestampLimits:
        limits = self._limits.get(topic)
        if limits is None:
            limits = self._limits[topic] = await self._letters.timestamp_limits(topic)
        return limits

    async def _send(
        self, letters: Sequence[StoredDeadLetter], journal: ReplayJournal | None
    ) -> None:
        letters = letters[: self._left()]
        if self._options.dry_run:
            for letter in letters:
                self._plan(letter)
            return
        await self._keep_rate(len(letters))
        if self._transactions is not None:
            await self._commit(letters, self._transactions)
            return
        if journal is not None:
            journal.sending((letter.record.partition, letter.record.offset) for letter in letters)
        delivery = CompleteDelivery()
        queued = 0
        try:
            for letter in letters:
                await self._queue(letter, delivery)
                queued += 1
        except PublishError as error:
            # Those that follow were not sent either.
            delivery.failed += [(letter, error) for letter in letters[queued:]]
        await delivery.wait()
        self._delivered(delivery, journal)

    async def _queue(self, letter: StoredDeadLetter, delivery: CompleteDelivery) -> None:
        await self._letters.producer.queue(*self._written(letter), delivery, letter)

    async def _commit(
        self, letters: Sequence[StoredDeadLetter], transactions: ReplayTransactions
    ) -> None:
        """Send these in a transaction; in another one without those that a broker refuses."""
        from asyncrevoke.client.producing.transactions.transaction import RecordsRefusedError

        while letters:
            places = [(letter.record.partition, letter.record.offset) for letter in letters]
            written = [self._written(letter) for letter in letters]
            try:
                await transactions.write(places, written)
            except AsyncRevokeError as error:
                failure = error
            else:
                for letter in letters:
                    self._count(self._target(letter))
                return
            tokens = failure.tokens if isinstance(failure, RecordsRefusedError) else written
            refused = {id(token) for token in tokens}
            left: list[StoredDeadLetter] = []
            for letter, record in zip(letters, written, strict=True):
                if id(record) in refused:
                    self._name(letter.record, str(failure))
                else:
                    left.append(letter)
            letters = left if len(left) < len(letters) else ()
            self.result.error = self.result.error or str(failure)

    def _written(self, letter: StoredDeadLetter) -> PublishedRecord:
        """The record that is written for a dead letter."""
        record, keeps = letter.record, self._options.timestamps == "original"
        return PublishedRecord(
            self._target(letter),
            None,
            record.key,
            record.value,
            letter.replay_headers() if keeps else letter.replay_headers_with_timestamp(),
            letter.original_timestamp if keeps else None,
        )

    def _delivered(self, delivery: CompleteDelivery, journal: ReplayJournal | None) -> None:
        sent: list[tuple[int, int, TopicPartition, int]] = []
        for token, where, offset in delivery.acknowledged:
            if isinstance(token, StoredDeadLetter):
                sent.append((token.record.partition, token.record.offset, where, offset))
                self._count(where.topic)
        not_sent: list[tuple[int, int]] = []
        for token, error in delivery.failed:
            if not isinstance(token, StoredDeadLetter):
                continue
            in_doubt = not isinstance(error, PublishError) or error.in_doubt
            if not in_doubt:
                not_sent.append((token.record.partition, token.record.offset))
            self._name(token.record, f"{error}{' (it may be written)' if in_doubt else ''}")
            self.result.error = self.result.error or str(error)
        if journal is not None:
            journal.ended(sent, not_sent)

    def _plan(self, letter: StoredDeadLetter) -> None:
        """Count a dead letter that would be sent, and keep its place if it is one of the first."""
        to = self._target(letter)
        self._count(to)
        if len(self.result.planned) < MAX_NAMED:
            place, origin = letter.record, letter[1:4]
            self.result.planned.append(
                PlannedRecord(place.partition, place.offset, to, *origin, letter.error_type)
            )

    def _count(self, topic: str) -> None:
        self.result.sent += 1
        by_topic = self.result.by_topic
        if topic in by_topic or len(by_topic) < MAX_NAMED:
            by_topic[topic] = by_topic.get(topic, 0) + 1

    def _name(self, record: Record, why: str) -> None:
        self.result.not_sent += 1
        if len(self.result.named) < MAX_NAMED:
            self.result.named.append(NamedRecord(record.partition, record.offset, why))

    def _target(self, letter: StoredDeadLetter) -> str:
        return self._options.to or letter.origin_topic

    def _left(self) -> int | None:
        limit = self._options.limit
        return None if limit is None else limit - self.result.sent

    def _is_over(self) -> bool:
        self.result.stopped = self._stopping
        return self._stopping or self.result.error is not None or self._left() == 0

    def _at_once(self) -> int:
        rate = self._options.rate
        return _AT_ONCE if rate is None else max(1, min(_AT_ONCE, int(rate * _PACE)))

    async def _keep_rate(self, count: int) -> None:
        if self._options.rate is None:
            return
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._next_at - loop.time()))
        self._next_at = max(self._next_at, loop.time()) + count / self._options.rate

    def _report(self) -> None:
        if self._progress is not None:
            self._progress(self.result)


def _check_journal(journal: ReplayJournal | None, ranges: dict[TopicPartition, range]) -> None:
    """DeadLettersError if the journal names offsets that the topic does not have yet."""
    if journal is None:
        return
    for partition, offsets in ranges.items():
        if (highest := journal.highest(partition.partition)) >= offsets.stop:
            raise DeadLettersError(
                f"{journal.path} has offset {highest} of {partition}, which ends at "
                f"{offsets.stop}: the topic was created anew; name another file: journal=PATH"
            )
