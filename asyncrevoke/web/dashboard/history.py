"""Owners of partitions, and figures for each second, of the last ten minutes."""

from __future__ import annotations

import asyncio
import math
import time
from asyncio import CancelledError
from collections import Counter, deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from asyncrevoke.client.model import Record, RunningHandler, ShareHealth, TopicPartition
from asyncrevoke.client.printable import counted, error_text, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence


# Limits for the shown bytes of a key, header or value, and for headers.
_MOST_BYTES: Final = 2000
_MOST_HEADERS: Final = 50


class ShownDeadLetter(NamedTuple):
    """A record that was written to a dead letter topic at ``at`` (seconds since the epoch).

    ``error`` is the type of the exception. ``contents`` are pairs of a name and a printable text:
    the error's message, the key, the headers and the value.
    """

    number: int
    at: float
    owner: str
    topic: str
    origin: TopicPartition
    offset: int
    error: str
    contents: tuple[tuple[str, str], ...]


def contents(record: Record, error: str) -> tuple[tuple[str, str], ...]:
    """The error's message, and the record. Each text is cut after 2,000 bytes."""
    headers = [
        (f"header {printable(name, _MOST_BYTES)}", _shown(value))
        for name, value in record.headers[:_MOST_HEADERS]
    ]
    return (
        ("error", printable(error, _MOST_BYTES)),
        ("key", _shown(record.key)),
        *headers,
        ("value", _shown(record.value)),
    )


def _shown(content: bytes | None) -> str:
    if content is None:
        return "null"
    text = printable(bytes(content[:_MOST_BYTES]).decode("utf-8", "backslashreplace"), _MOST_BYTES)
    return text if len(content) <= _MOST_BYTES else f"{text}… ({counted(len(content), 'byte')})"


# The period of the statistics, in seconds.
WINDOW: Final = 60.0
# The upper bound of a bucket is 5 % above that of the previous bucket.
_BUCKETS_PER_E: Final = 1 / math.log(1.05)
_SHORTEST: Final = 1e-6


class HandlerFigures(NamedTuple):
    """Figures of one handler over the last minute, or since the consumer was entered.

    ``rate``: completed calls per second. ``errors``: calls that raised. ``p99``: the 99th
    percentile of the duration of completed calls in seconds, at most 5 % too high; None without a
    call. ``running``: the number of running calls; ``longest``: the age of the oldest of them in
    seconds.
    """

    owner: str
    handler: str
    rate: float
    errors: int
    p99: float | None
    running: int
    longest: float | None


class HandlerCalls:
    """Counts the calls of one handler. Times are in seconds, of any clock."""

    def __init__(self, began: float) -> None:
        self._began = began
        # Completed calls by bucket, and errors: of the current second, of each second, and their
        # sums.
        self._new: Counter[int] = Counter()
        self._errors = 0
        self._seconds: deque[tuple[float, Counter[int], int]] = deque()
        self._calls: Counter[int] = Counter()
        self._all_errors = 0

    def completed(self, seconds: Sequence[float]) -> None:
        """Calls have returned after these seconds."""
        self._new.update(map(_bucket, seconds))

    def failed(self, error: BaseException) -> None:
        """A call has raised. Cancelled calls, for example in a revocation, do not count."""
        self._errors += not isinstance(error, CancelledError)

    def figures(
        self, now: float, owner: str, handler: str, running: Sequence[RunningHandler]
    ) -> HandlerFigures:
        """The figures at ``now``. ``running`` are the running calls of this handler."""
        self._seconds.append((now, self._new, self._errors))
        self._calls += self._new
        self._all_errors += self._errors
        self._new, self._errors = Counter(), 0
        while self._seconds[0][0] <= now - WINDOW:
            _, calls, errors = self._seconds.popleft()
            self._calls -= calls
            self._all_errors -= errors
        return HandlerFigures(
            owner,
            handler,
            self._calls.total() / max(1.0, min(WINDOW, now - self._began)),
            self._all_errors,
            self._p99(),
            len(running),
            max((call.seconds for call in running), default=None),
        )

    def _p99(self) -> float | None:
        left = math.ceil(0.99 * self._calls.total())
        for bucket in sorted(self._calls):
            left -= self._calls[bucket]
            if left <= 0:
                return math.exp(bucket / _BUCKETS_PER_E)
        return None


def _bucket(seconds: float) -> int:
    return math.ceil(math.log(max(seconds, _SHORTEST)) * _BUCKETS_PER_E)


KEPT: Final = 600.0
_MOST_NOTES = 500
# With more owners, those without a span or sample are removed: members may come and go endlessly.
_MOST_OWNERS = 1000
_LONGEST_NAME = 256
_MOST_DEAD_LETTERS = 200
_MOST_LETTERS = 50
_MOST_RESULTS = 200

# "held" by its owner, in a step of a revocation, or "lost", which is followed by no owner.
State: TypeAlias = Literal["held", "requested", "draining", "committing", "lost"]


class Span(NamedTuple):
    """The owner of a partition from ``began`` (seconds since the epoch) on; "" if it has none."""

    began: float
    owner: str
    state: State


class Sample(NamedTuple):
    """Figures of one owner at one time. None is unknown: brokers do not report all figures.

    ``records`` and ``dead_letters`` count from the start. ``records`` are delivered records or, if
    ``in_flight`` is None, committed ones. ``oldest``: the seconds for which the oldest record in
    flight has been the oldest. ``state``: that of the membership or of the group.
    """

    at: float
    records: int = 0
    in_flight: int | None = None
    lag: int = 0
    dead_letters: int | None = None
    oldest: float | None = None
    state: str = ""
    members: int | None = None


class Place(NamedTuple):
    """The current progress of a partition; None is unknown. ``oldest`` is the lowest offset in
    flight."""

    partition: TopicPartition
    owner: str
    in_flight: int | None
    oldest: int | None
    committed: int | None
    lag: int | None


class Unavailable(NamedTuple):
    """A topic, partition or broker that cannot be read or reached now, and the reason."""

    name: str
    reason: str


class Note(NamedTuple):
    """An event, as a sentence."""

    at: float
    owner: str
    text: str


class Pending(NamedTuple):
    """A revocation that has begun and not ended, its begin, and what it waits for."""

    partition: TopicPartition
    owner: str
    state: State
    since: float
    waits_for: str = ""


class History:
    """Written by watches and read by the page. Not thread-safe."""

    def __init__(self, title: str, clock: Callable[[], float] = time.time) -> None:
        self.title = title
        self.clock = clock
        self.version = 0
        self.owners: dict[str, int] = {}
        self._joined = 0
        self._most_owners = _MOST_OWNERS
        self.pending: dict[str, tuple[Pending, ...]] = {}
        self.places: dict[str, tuple[Place, ...]] = {}
        self.handlers: dict[str, tuple[HandlerFigures, ...]] = {}
        self.unavailable: dict[str, tuple[Unavailable, ...]] = {}
        # By member of a share group, what it has acquired and acknowledged.
        self.acquired: dict[str, tuple[ShareHealth, dict[str, int]]] = {}
        # Whether members share partitions: then these have no owner, and start offsets.
        self.is_share = False
        self._lanes: dict[TopicPartition, deque[Span]] = {}
        self._samples: dict[str, deque[Sample]] = {}
        self._notes: deque[Note] = deque(maxlen=_MOST_NOTES)
        self._listeners: set[asyncio.Event] = set()
        # By dead letter topic, origin topic and error.
        self.dead_letters: Counter[tuple[str, str, str]] = Counter()
        # The newest dead letters with their contents, if the application enables them.
        self.letters: deque[ShownDeadLetter] = deque(maxlen=_MOST_LETTERS)
        self._letters = 0
        # By result topic and handler; "" for records that are published outside of handlers.
        self.results: Counter[tuple[str, str]] = Counter()
        # By outcome.
        self.transactions: Counter[str] = Counter()

    # --- writing ---------------------------------------------------------------------------------

    def join(self, name: str) -> str:
        """Add an owner: ``name``, with a number if the name is taken."""
        taken = name = printable(name, _LONGEST_NAME)
        number = 1
        while taken in self.owners:
            number += 1
            taken = f"{name} #{number}"
        self._know(taken)
        return taken

    def count_dead_letter(self, topic: str, origin: str, error: str) -> None:
        """Count a dead letter. Beyond a limit, new origins and errors count as "others"."""
        names = (topic, origin, printable(error, _LONGEST_NAME))
        if names not in self.dead_letters and len(self.dead_letters) >= _MOST_DEAD_LETTERS:
            names = ("others", "", "")
        self.dead_letters[names] += 1
        self.changed()

    def keep_dead_letter(
        self, owner: str, topic: str, record: Record, error: BaseException
    ) -> None:
        """Keep a dead letter with its contents. The oldest one is dropped."""
        self._letters += 1
        self.letters.append(
            ShownDeadLetter(
                self._letters,
                self.clock(),
                owner,
                topic,
                record.topic_partition,
                record.offset,
                type(error).__name__,
                contents(record, error_text(error)),
            )
        )
        self.changed()

    def count_results(self, topic: str, handler: str, count: int) -> None:
        """Count results. Beyond a limit, new topics and handlers count as "others"."""
        names = (topic, printable(handler, _LONGEST_NAME))
        if names not in self.results and len(self.results) >= _MOST_RESULTS:
            names = ("others", "")
        self.results[names] += count
        self.changed()

    def count_transaction(self, outcome: str) -> None:
        """Count a transaction that was committed or aborted."""
        self.transactions[outcome] += 1
        self.changed()

    def _know(self, owner: str) -> None:
        if owner and owner not in self.owners:
            self.owners[owner] = self._joined
            self._joined += 1

    def hold(self, partition: TopicPartition, owner: str, state: State = "held") -> None:
        """Set the owner and state of a partition."""
        self._know(owner)
        lane = self._lanes.setdefault(partition, deque())
        if not lane or lane[-1][1:] != (owner, state):
            lane.append(Span(self.clock(), owner, state))
            self.changed()

    def leave(self, partition: TopicPartition, owner: str, *, lost: bool = False) -> None:
        """Remove the owner of a partition. Does nothing if the partition has another owner."""
        lane = self._lanes.get(partition)
        if lane and lane[-1].owner == owner:
            if lost:
                self.hold(partition, owner, "lost")
            self.hold(partition, "")

    def sample(self, owner: str, sample: Sample) -> None:
        """Add figures of an owner or of the group, about once a second."""
        kept = self._samples.setdefault(owner, deque())
        kept.append(sample)
        while kept[0].at < sample.at - KEPT - 60:
            kept.popleft()
        for partition, lane in [*self._lanes.items()]:
            while len(lane) > 1 and lane[1].began < sample.at - KEPT - 60:
                lane.popleft()
            if not lane[-1].owner and lane[-1].began < sample.at - KEPT - 60:
                del self._lanes[partition]
        if len(self.owners) > self._most_owners:
            self._forget_owners()
        self.changed()

    def forget(self, owner: str) -> None:
        """Remove the current progress of an owner that has left."""
        for known in (
            self.pending,
            self.places,
            self.handlers,
            self.unavailable,
            self.acquired,
        ):
            known.pop(owner, None)

    def _forget_owners(self) -> None:
        shown = {span.owner for lane in self._lanes.values() for span in lane}
        shown |= {*self._samples, *self.pending, *self.places}
        newest = [*self.owners][-_MOST_OWNERS // 2 :]
        shown.update(newest)  # may own nothing yet
        self.owners = {owner: number for owner, number in self.owners.items() if owner in shown}
        self._most_owners = max(_MOST_OWNERS, 2 * len(self.owners))

    def note(self, owner: str, text: str) -> None:
        """Add a note. A long text is cut."""
        self._notes.append(Note(self.clock(), owner, printable(text)))
        self.changed()

    def changed(self) -> None:
        """Wake listeners."""
        self.version += 1
        for listener in self._listeners:
            listener.set()

    # --- reading ---------------------------------------------------------------------------------

    @contextmanager
    def listening(self) -> Generator[asyncio.Event]:
        """An event that each change sets."""
        event = asyncio.Event()
        self._listeners.add(event)
        try:
            yield event
        finally:
            self._listeners.discard(event)

    @property
    def listeners(self) -> int:
        """The number of listeners."""
        return len(self._listeners)

    def partitions(self) -> list[TopicPartition]:
        """All partitions that have had an owner, sorted."""
        return sorted(self._lanes)

    def lane(self, partition: TopicPartition) -> Sequence[Span]:
        """The spans of one partition, oldest first. A span lasts until the next one begins."""
        return self._lanes.get(partition, ())

    def at(self, partition: TopicPartition, moment: float) -> Span | None:
        """The span of a partition at a time."""
        return next((s for s in reversed(self.lane(partition)) if s.began <= moment), None)

    def sampled(self) -> list[str]:
        """The owners that have figures."""
        return list(self._samples)

    def samples(self, owner: str, since: float, until: float) -> list[Sample]:
        """The figures of an owner in a period."""
        return [s for s in self._samples.get(owner, ()) if since <= s.at <= until]

    def notes(self, until: float, most: int) -> list[Note]:
        """The newest notes before a time, newest first."""
        return [note for note in reversed(self._notes) if note.at <= until][:most]
