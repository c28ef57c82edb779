"""Failed records that could not be written to another topic: held, and written when they can be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asyncrevoke.client import log_events
from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.errors import PublishError
from asyncrevoke.client.model import UnwrittenRecords
from asyncrevoke.client.printable import is_caught_by, named_error, printable
from asyncrevoke.handlers.policy.batch import HandlerBatch, Item, Unsent

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle
    from collections.abc import Iterator

    from asyncrevoke.client.log_events import Log
    from asyncrevoke.client.model import Record, TopicPartition
    from asyncrevoke.handlers.scheduling.backlog import Backlog
    from asyncrevoke.handlers.scheduling.partition_lanes import Entry

# Seconds between two writes to a topic that does not take records, and between two writes of a
# record that its topic refuses.
_FIRST: Final = 1.0
_LONGEST: Final = 10.0
_LONGEST_REFUSED: Final = 60.0
# Most characters of an error.
_MAX_REASON: Final = 300


class HeldRecords:
    """Holds records that could not be written, and writes them again with a backoff.

    A held record is in flight, so no commit passes it, and its lane waits; other lanes, other
    partitions and other topics continue. It uses no worker. If a topic takes no records (it does
    not exist, the principal may not write, no broker responds), one held record tries it, and all
    are written when one was. If a topic refuses a single record (its size, for example), only that
    record is held. Each change is logged once. A revocation does not wait for held records.
    """

    def __init__(self, clock: AbstractEventLoop, log: Log, backlog: Backlog) -> None:
        self._clock = clock
        self._log = log
        self._backlog = backlog
        self._blocked: dict[str, _BlockedTopic] = {}
        self._refused: dict[Record, _RefusedRecord] = {}

    def is_blocked(self, topic: str) -> bool:
        """Whether the last write to this topic has failed, and not because of its record."""
        return topic in self._blocked

    def hold_behind(self, entry: Entry, topic: str, calls: int, unsent: Unsent) -> None:
        """Hold a failed record whose topic is blocked, without a write."""
        self._blocked[topic].waiting[entry[1]] = entry
        self._backlog.hold(entry, calls, unsent)

    def write_failed(
        self,
        entry: Entry,
        topic: str,
        error: BaseException,
        calls: int,
        fields: dict[str, object],
    ) -> None:
        """A write to this topic has failed: hold the record. ``fields`` are those of a log line."""
        if _is_of_record(error):
            self.written(topic)
            self._refuse(entry, topic, error, calls, fields)
            return
        blocked = self._blocked.get(topic)
        if blocked is None:
            blocked = self._blocked[topic] = _BlockedTopic(self._clock.time(), error)
            log_events.TOPIC_NOT_WRITABLE.write_to(
                self._log, to_topic=topic, error=named_error(error, _MAX_REASON), **fields
            )
            self._try_later(topic, blocked)
        elif blocked.trial is entry[1]:
            blocked.trial = None
            self._try_later(topic, blocked)
        blocked.waiting[entry[1]] = entry
        self._backlog.hold(entry, calls)

    def written(self, topic: str) -> None:
        """A record was written to this topic: write those that are held."""
        blocked = self._blocked.pop(topic, None)
        if blocked is None:
            return
        blocked.stop()
        log_events.TOPIC_WRITABLE_AGAIN.write_to(
            self._log,
            to_topic=topic,
            count=sum(map(_unwritten_in, blocked.waiting)),
            seconds=round(self._clock.time() - blocked.since, 1),
        )
        for entry in blocked.waiting.values():
            self._backlog.write_again(entry)

    def unwritten(self) -> Iterator[UnwrittenRecords]:
        """The records that are held now, by topic and reason."""
        now, attempts = self._clock.time(), self._backlog.attempts
        for topic, blocked in self._blocked.items():
            trial = () if blocked.trial is None else (blocked.trial,)
            items = [item for item in (*blocked.waiting, *trial) if item in attempts]
            partitions = frozenset(item.topic_partition for item in items)
            if items:
                count = sum(map(_unwritten_in, items))
                yield UnwrittenRecords(
                    topic, blocked.reason, count, now - blocked.since, partitions
                )
        self._forget_ended()
        for record, refused in self._refused.items():
            where = frozenset([record.topic_partition])
            count = _unwritten_in(refused.item)
            yield UnwrittenRecords(refused.topic, refused.reason, count, now - refused.since, where)

    def close(self) -> None:
        """Write no held record again."""
        for blocked in self._blocked.values():
            blocked.stop()

    # -- a topic ---------------------------------------------------------------------------------

    def _try_later(self, topic: str, blocked: _BlockedTopic) -> None:
        blocked.stop()
        delay = blocked.backoff.failed()
        blocked.timer = self._clock.call_later(delay, lambda: self._try(topic, blocked))

    def _try(self, topic: str, blocked: _BlockedTopic) -> None:
        """Let one held record try the topic, unless another one does so already."""
        backlog, waiting = self._backlog, blocked.waiting
        for item in [item for item in waiting if not backlog.is_held(item)]:
            del waiting[item]
        trial = blocked.trial
        if trial is None or trial not in backlog.attempts or backlog.is_paused(trial):
            may_try = (item for item in waiting if not backlog.is_paused(item))
            blocked.trial = next(may_try, None)
            if blocked.trial is not None:
                backlog.write_again(waiting.pop(blocked.trial))
            elif not waiting:
                # The partitions of all held records are released or lost.
                del self._blocked[topic]
                return
        self._try_later(topic, blocked)

    # -- a record --------------------------------------------------------------------------------

    def _refuse(
        self,
        entry: Entry,
        topic: str,
        error: BaseException,
        calls: int,
        fields: dict[str, object],
    ) -> None:
        record = _first_unwritten(entry[1])
        refused = self._refused.get(record)
        if refused is None:
            self._forget_ended()
            refused = self._refused[record] = _RefusedRecord(topic, self._clock.time(), error)
            log_events.FAILED_RECORD_REFUSED.write_to(
                self._log, to_topic=topic, error=named_error(error, _MAX_REASON), **fields
            )
        refused.item, refused.in_transaction = entry[1], False
        self._backlog.hold(entry, calls, delay=refused.backoff.failed())

    def in_transaction(self, record: Record) -> None:
        """This record is written in a transaction, which a broker may refuse again."""
        if (refused := self._refused.get(record)) is not None:
            refused.in_transaction = True

    def transaction_ended(self, record: Record) -> None:
        """The transaction is committed, or the record is abandoned."""
        self._refused.pop(record, None)

    def refused_in_transaction(self, topic: str, item: Item) -> None:
        """A broker has refused what was written to this topic for an item, which returns to its
        lane. Held items may be before it there, so another one may try the topic."""
        blocked = self._blocked.get(topic)
        if blocked is not None and blocked.trial is item:
            blocked.trial = None

    def lose(self, partition: TopicPartition) -> None:
        """The partition is lost: its records are in no transaction any more."""
        for record in [record for record in self._refused if record.topic_partition == partition]:
            del self._refused[record]

    def _forget_ended(self) -> None:
        attempts = self._backlog.attempts
        self._refused = {
            record: refused
            for record, refused in self._refused.items()
            if refused.in_transaction or refused.item in attempts
        }


class _BlockedTopic:
    """``waiting`` are the held records; ``trial`` is the record that tries the topic now."""

    def __init__(self, now: float, error: BaseException) -> None:
        self.since = now
        self.reason = _reason(error)
        self.backoff = Backoff(_FIRST, _LONGEST)
        self.waiting: dict[Item, Entry] = {}
        self.trial: Item | None = None
        self.timer: TimerHandle | None = None

    def stop(self) -> None:
        """Cancel the next trial."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class _RefusedRecord:
    """``item`` is the record, or the batch whose first unsent record it is."""

    item: Item

    def __init__(self, topic: str, now: float, error: BaseException) -> None:
        self.topic = topic
        self.in_transaction = False
        self.since = now
        self.reason = _reason(error)
        self.backoff = Backoff(_FIRST, _LONGEST_REFUSED)


def _first_unwritten(item: Item) -> Record:
    if isinstance(item, HandlerBatch):
        return item.unsent[0].record if item.unsent else item.unfinished[0]
    return item


def _unwritten_in(item: Item) -> int:
    # A batch without unsent records has one whose value does not decode.
    return max(1, len(item.unsent)) if isinstance(item, HandlerBatch) else 1


def _is_of_record(error: BaseException) -> bool:
    """Whether another record may well be written: the broker, or an encoder, refuses this one."""
    if isinstance(error, PublishError):
        return error.of_record
    return is_caught_by(error, (ValueError, TypeError, OverflowError))


def _reason(error: BaseException) -> str:
    text = error.reason if isinstance(error, PublishError) else named_error(error, _MAX_REASON)
    return printable(text, _MAX_REASON)
