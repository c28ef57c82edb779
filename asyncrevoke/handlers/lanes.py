"""Which record may run next: ordered lanes, without a task or an object per key.

Theory of operation. A lane is an ordered queue of handlers: a topic's partition and a key, or a
whole partition, or nothing. What lane an item belongs to is known by its key alone, so a lane
exists only while it is busy: ``lanes[key]`` is None while one item of it is ready or running, and
a deque while others wait behind that one. An item whose lane is free is ready at once; when
it is done, the next of its lane follows, and a lane that has none is forgotten. So an idle key
costs nothing, and the cost of a record is one tuple, a dictionary entry and a place in a deque.

Oldest first: the follower of a lane goes before everything that was put later, so that a hot key
is not held up by keys that came after it, and the commit point moves on.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from asyncrevoke.config import NullKeys, OrderBy
    from asyncrevoke.model import TopicPartition


class Keyed(Protocol):
    """What the lanes know of an item: a record has it, and so has a task of the task group."""

    @property
    def key(self) -> bytes | None:
        """Items with equal keys share a lane, if lanes are by key."""
        ...

    @property
    def offset(self) -> int:
        """The offset in the item's partition."""
        ...

    @property
    def ledger_id(self) -> int:
        """The ledger that counts the item."""
        ...


T = TypeVar("T", bound=Keyed)


class Slice(Generic[T]):
    """The lanes of one partition under one ledger.

    ``started`` is the highest offset that was taken, -1 if none. After a seek the partition has
    another ledger and another slice, yet the same ``lanes``: order holds across the seek.
    """

    __slots__ = ("lanes", "ledger_id", "partition", "started")

    def __init__(
        self,
        partition: TopicPartition,
        ledger_id: int,
        lanes: dict[bytes | None, deque[Entry[T]] | None],
    ) -> None:
        self.partition = partition
        self.ledger_id = ledger_id
        self.lanes = lanes
        self.started = -1


# The slice, the item, and its turn: how many calls of put there were before.
Entry: TypeAlias = tuple[Slice[T], T, int]


class LaneQueue(Generic[T]):
    """Items put in offset order and taken as their lanes allow. No tasks, no clock.

    An entry is *queued* (waiting in its lane, or ready) until ``take`` returns it, and then
    *started*; its lane is busy until ``done``. A lane whose entry is never done stays blocked.
    """

    __slots__ = ("_by_key", "_nulls_ordered", "_ordered", "_ready", "_slices", "_turn")

    def __init__(self, order_by: OrderBy | None = "key", null_keys: NullKeys = "ordered") -> None:
        self._ordered = order_by is not None
        self._by_key = order_by == "key"
        self._nulls_ordered = not (self._by_key and null_keys == "unordered")
        self._ready: deque[Entry[T]] = deque()
        self._slices: dict[TopicPartition, Slice[T]] = {}
        self._turn = 0

    @property
    def ready(self) -> int:
        """How many entries ``take`` would return now."""
        return len(self._ready)

    @property
    def queued(self) -> int:
        """How many entries were put and neither taken nor dropped."""
        return sum(1 for _ in self._queued())

    @property
    def busy_lanes(self) -> int:
        """How many lanes exist: each has an entry that is ready, started or blocked."""
        return sum(len(lanes) for lanes in self._lanes_of_partitions())

    def put(self, partition: TopicPartition, items: Sequence[T]) -> None:
        """Queue items of one partition and one ledger, in offset order."""
        if not items:
            return
        ledger_id = items[0].ledger_id
        part = self._slices.get(partition)
        if part is None or part.ledger_id != ledger_id:
            part = Slice(partition, ledger_id, {} if part is None else part.lanes)
            self._slices[partition] = part
        self._turn = turn = self._turn + 1
        if not self._ordered:
            self._ready.extend([(part, item, turn) for item in items])
            return
        ready = self._ready.append
        lanes = part.lanes
        by_key, nulls_ordered = self._by_key, self._nulls_ordered
        for item in items:
            entry = (part, item, turn)
            key = item.key if by_key else None
            if key in lanes:
                waiting = lanes[key]
                if waiting is None:
                    lanes[key] = deque((entry,))
                else:
                    waiting.append(entry)
            else:
                if key is not None or nulls_ordered:
                    lanes[key] = None
                ready(entry)

    def take(self) -> Entry[T] | None:
        """The next entry that may run, None if there is none: it has started now."""
        if not self._ready:
            return None
        entry = self._ready.popleft()
        part = entry[0]
        offset = entry[1].offset
        if offset > part.started:  # noqa: PLR1730 - a call of max costs as much as the rest
            part.started = offset
        return entry

    def done(self, entry: Entry[T]) -> None:
        """A started entry has ended: its lane goes on."""
        if not self._ordered:
            return
        key = entry[1].key if self._by_key else None
        if key is None and not self._nulls_ordered:
            return
        lanes = entry[0].lanes
        waiting = lanes[key]
        if waiting is None:
            del lanes[key]
            return
        follower = waiting.popleft()
        if not waiting:
            lanes[key] = None
        ready = self._ready
        if ready and follower[2] <= ready[0][2]:
            ready.appendleft(follower)
        else:
            ready.append(follower)

    def again(self, entry: Entry[T]) -> None:
        """A started entry is to be taken once more, before all that is ready; its lane waits."""
        self._ready.appendleft(entry)

    def give_up(self, entry: Entry[T]) -> list[T]:
        """A started entry ends without being done: drop what waits behind it, free its lane."""
        if entry in self._ready:
            self._ready.remove(entry)
        if not self._ordered:
            return []
        key = entry[1].key if self._by_key else None
        if key is None and not self._nulls_ordered:
            return []
        waiting = entry[0].lanes.pop(key)
        return [] if waiting is None else [follower[1] for follower in waiting]

    def drain(self, partition: TopicPartition) -> list[T]:
        """Drop what a revoke drops: what is queued after H, the highest offset that has started.

        What belongs to a ledger from before a seek stays and runs to its end.
        """
        part = self._slices.get(partition)
        if part is None:
            return []
        started = part.started
        return self._drop(lambda entry: entry[0] is part and entry[1].offset > started)

    def partitions(self) -> list[TopicPartition]:
        """Every partition that anything was ever put of."""
        return list(self._slices)

    def lose(self, partition: TopicPartition) -> list[T]:
        """Drop all that is queued of a partition; what has started is the caller's to cancel."""
        return self._drop(lambda entry: entry[0].partition == partition)

    def clear(self) -> list[T]:
        """Drop all that is queued."""
        return self._drop(lambda _: True)

    def _drop(self, unwanted: Callable[[Entry[T]], bool]) -> list[T]:
        dropped: list[T] = []
        for lanes in self._lanes_of_partitions():
            for key, waiting in lanes.items():
                if waiting is not None:
                    dropped.extend(entry[1] for entry in waiting if unwanted(entry))
                    kept = deque(entry for entry in waiting if not unwanted(entry))
                    lanes[key] = kept or None
        before = self._ready
        self._ready = deque(entry for entry in before if not unwanted(entry))
        for entry in before:
            if unwanted(entry):
                dropped.append(entry[1])
                self.done(entry)
        return dropped

    def _queued(self) -> Iterator[Entry[T]]:
        yield from self._ready
        for lanes in self._lanes_of_partitions():
            for waiting in lanes.values():
                if waiting is not None:
                    yield from waiting

    def _lanes_of_partitions(self) -> Iterator[dict[bytes | None, deque[Entry[T]] | None]]:
        for part in self._slices.values():
            yield part.lanes
