"""Which record may run next: ordered lanes, without a task or an object per key.

Theory of operation. A lane is an ordered queue of handlers: a topic's partition and a key, or a
whole partition, or nothing. What lane an item belongs to is known by its key alone, so a lane
exists only while it is busy: ``lanes[key]`` is None while one item of it is ready or running, and
a deque while others wait behind that one. An item whose lane is free is ready at once; when
it is done, the next of its lane follows, and a lane that has none is forgotten. So an idle key
costs nothing, and the cost of a record is one tuple, a dictionary entry and a place in a deque.

Oldest first: the follower of a lane goes before everything that was put later, so that a hot key
is not held up by keys that came after it, and the commit point moves on.

When a revoke is announced, what has not started is dropped. Where a part of it has to be worked off
first (see ``LaneQueue.drain``), the lane with the most of it, the lagging one, goes after the
others of its partition, so that in the end only that one remains.

An item whose handler has limits goes through a gate before it is ready, and waits there, in no
worker's way, while it is closed. Without one nothing of that happens.

An item of a paused partition that would be taken is parked instead, and ready again when the
partition is resumed. Parked items stand outside of the gate, and their lanes wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeAlias, TypeVar, cast

from asyncrevoke.handlers.scheduling.lane_order import NO_LANE, Keyed, Order, order_by_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncrevoke.config import NullKeys
    from asyncrevoke.handlers.scheduling.handler_limiter import Gate
    from asyncrevoke.model import TopicPartition

T = TypeVar("T", bound=Keyed)

# Without the key of its lane.
_USUAL_LENGTH: Final = 3
_SEVERAL: Final = 2


def _never(_item: object) -> bool:
    return False


class Slice(Generic[T]):
    """The lanes of one partition under one tracker.

    ``started`` is the highest offset that was taken, -1 if none. After a seek the partition has
    another tracker and another slice, yet the same ``lanes``: order holds across the seek.
    ``usual``: in the queue's own order, and without limits; then the key is the item's own.
    ``watched``: it has a gate, or its partition is paused. ``lagging``: while records are worked
    off for a revoke, the key of the lane that goes last.
    """

    __slots__ = (
        "gate",
        "lagging",
        "lanes",
        "partition",
        "started",
        "tracker_id",
        "usual",
        "watched",
    )

    def __init__(
        self,
        partition: TopicPartition,
        tracker_id: int,
        lanes: dict[Hashable, deque[Entry[T]] | None],
        gate: Gate[Entry[T]] | None,
        *,
        usual: bool,
    ) -> None:
        self.usual = usual
        self.gate = gate
        self.partition = partition
        self.tracker_id = tracker_id
        self.lanes = lanes
        self.started = -1
        self.watched = gate is not None
        self.lagging: Hashable = NO_LANE


# The slice, the item, its turn (how many calls of put there were before), and its lane's key
# unless the slice is usual: a longer tuple, and a look at a key that is known, cost time.
Entry: TypeAlias = tuple[Slice[T], T, int] | tuple[Slice[T], T, int, Hashable]


class LaneQueue(Generic[T]):
    """Items put in offset order and taken as their lanes allow. No tasks, no clock.

    An entry is *queued* (waiting in its lane, or ready) until ``take`` returns it, and then
    *started*; its lane is busy until ``done``. A lane whose entry is never done stays blocked.
    """

    __slots__ = (
        "_by_key",
        "_gates",
        "_order",
        "_ordered",
        "_parked",
        "_ready",
        "_slices",
        "_turn",
        "_usual",
    )

    def __init__(
        self,
        order_by: Literal["key", "partition"] | None = "key",
        null_keys: NullKeys = "ordered",
    ) -> None:
        self._order: Order[T] = order_by_name(order_by, null_keys)
        self._ordered = order_by is not None
        self._by_key = order_by == "key"
        # Whether an item's key is that of its lane.
        self._usual = not (self._by_key and null_keys == "unordered")
        self._ready: deque[Entry[T]] = deque()
        self._slices: dict[TopicPartition, Slice[T]] = {}
        self._gates: dict[Gate[Entry[T]], None] = {}
        # What would run of each paused partition, in order.
        self._parked: dict[TopicPartition, deque[Entry[T]]] = {}
        self._turn = 0

    @property
    def ready(self) -> int:
        """How many entries ``take`` would return now."""
        return len(self._ready)

    @property
    def held(self) -> list[tuple[TopicPartition, T]]:
        """What would be ready if its handler's limits allowed it."""
        return [(entry[0].partition, entry[1]) for gate in self._gates for entry in gate.held]

    @property
    def queued(self) -> int:
        """How many entries were put and neither taken nor dropped."""
        return sum(1 for _ in self._queued())

    @property
    def busy_lanes(self) -> int:
        """How many lanes exist: each has an entry that is ready, started or blocked."""
        return sum(len(lanes) for lanes in self._lanes_of_partitions())

    def put(
        self,
        partition: TopicPartition,
        items: Sequence[T],
        order: Order[T] | None = None,
        gate: Gate[Entry[T]] | None = None,
    ) -> None:
        """Queue items of one partition and one tracker, in offset order.

        ``order`` is another one than the queue's. With a ``gate``, which is the same for all items
        of a partition, items are ready when it lets them through.
        """
        if not items:
            return
        tracker_id = items[0].tracker_id
        part = self._slices.get(partition)
        if part is None or part.tracker_id != tracker_id:
            lanes = {} if part is None else part.lanes
            # Nothing new comes of a paused partition: it is another assignment of it.
            self.resume(partition)
            usual = self._usual and order is None and gate is None
            part = Slice(partition, tracker_id, lanes, gate, usual=usual)
            self._slices[partition] = part
            if gate is not None:
                self._gates[gate] = None
        elif part.lagging is not NO_LANE:  # the revoke was withdrawn
            part.lagging = NO_LANE
            part.usual = self._usual and order is None and gate is None
        self._turn = turn = self._turn + 1
        if not part.usual:
            self._put_unusual(part, items, order or self._order)
            return
        if not self._ordered:
            self._ready.extend([(part, item, turn) for item in items])
            return
        ready = self._ready.append
        lanes = part.lanes
        by_key = self._by_key
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
                lanes[key] = None
                ready(entry)

    def _put_unusual(self, part: Slice[T], items: Sequence[T], order: Order[T]) -> None:
        lanes = part.lanes
        keys = order(items)
        for item, key in zip(items, repeat(NO_LANE) if keys is None else keys, strict=False):
            entry = (part, item, self._turn, key)
            if key not in lanes:
                if key is not NO_LANE:
                    lanes[key] = None
                if part.gate is None or part.gate.enter(entry):
                    self._ready.append(entry)
            elif (waiting := lanes[key]) is None:
                lanes[key] = deque((entry,))
            else:
                waiting.append(entry)

    def take(self) -> Entry[T] | None:
        """The next entry that may run, None if there is none: it has started now."""
        if not self._ready:
            return None
        entry = self._ready.popleft()
        part = entry[0]
        if part.watched:
            return self._take_watched(entry)
        offset = entry[1].offset
        if offset > part.started:  # noqa: PLR1730 - a call of max costs as much as the rest
            part.started = offset
        return entry

    def _take_watched(self, entry: Entry[T]) -> Entry[T] | None:
        part = entry[0]
        parked = self._parked.get(part.partition)
        if parked is not None:
            parked.append(entry)
            self.leave(entry)
            return self.take()
        part.started = max(part.started, entry[1].offset)
        if part.gate is not None:
            part.gate.started(entry[1])
        return entry

    def pause(self, partition: TopicPartition) -> None:
        """Start nothing of this partition until :meth:`resume`; what has started goes on."""
        self._parked.setdefault(partition, deque())
        for part in self._known_slices(partition):
            part.watched = True

    def resume(self, partition: TopicPartition) -> None:
        """What is queued of this partition may start again, before all that is ready."""
        parked = self._parked.pop(partition, None)
        if parked is None:
            return
        for part in self._known_slices(partition):
            part.watched = part.gate is not None
        for entry in reversed(parked):
            self.again(entry)

    def _known_slices(self, partition: TopicPartition) -> set[Slice[T]]:
        """The one that is put into, and those from before a seek of which something is queued."""
        queued = {entry[0] for entry in self._queued() if entry[0].partition == partition}
        part = self._slices.get(partition)
        return queued if part is None else queued | {part}

    def done(self, entry: Entry[T]) -> None:
        """A started entry has ended: its lane goes on."""
        part = entry[0]
        if not part.usual:
            self._done_unusual(entry)
            return
        if not self._ordered:
            return
        key = entry[1].key if self._by_key else None
        lanes = part.lanes
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

    def _done_unusual(self, entry: Entry[T]) -> None:
        part, key = entry[0], self._key(entry)
        waiting = None if key is NO_LANE else part.lanes[key]
        if waiting is not None:
            follower = waiting.popleft()
            if not waiting:
                part.lanes[key] = None
            if part.lagging is not NO_LANE:
                self._follow_in_drain(part, key, follower)
            elif part.gate is None or part.gate.enter(follower, "turn"):
                self._let_through(follower, follower[2])
        elif key is not NO_LANE:
            del part.lanes[key]
        self.leave(entry)

    def _follow_in_drain(self, part: Slice[T], key: Hashable, follower: Entry[T]) -> None:
        lags = key == part.lagging
        if part.gate is not None and not part.gate.enter(follower, "last" if lags else "first"):
            return
        if lags:
            self._ready.insert(self._end_of(part), follower)
        else:
            self._ready.appendleft(follower)

    def _end_of(self, part: Slice[T]) -> int:
        """Where what is ready of one partition ends."""
        ends = (at + 1 for at, entry in enumerate(self._ready) if entry[0] is part)
        return max(ends, default=0)

    def _key(self, entry: Entry[T]) -> Hashable:
        if len(entry) == _USUAL_LENGTH:
            return entry[1].key if self._by_key else None if self._ordered else NO_LANE
        return entry[3]

    def leave(self, entry: Entry[T]) -> None:
        """A started entry runs no more, whatever becomes of it: its handler's limits allow another
        one. Idempotent."""
        gate = entry[0].gate
        if gate is not None:
            gate.left(entry[1])
            self.admit(gate)

    def admit(self, gate: Gate[Entry[T]]) -> None:
        """What this gate lets through now is ready."""
        while (entry := gate.next()) is not None:
            self._let_through(entry, entry[2] + 1)

    def _let_through(self, entry: Entry[T], turn: int) -> None:
        """Ready, before what was put in this turn or later if that comes next."""
        if self._ready and turn <= self._ready[0][2]:
            self._ready.appendleft(entry)
        else:
            self._ready.append(entry)

    def again(self, entry: Entry[T], *, limited: bool = True) -> None:
        """A started entry is to be taken once more, before all that is ready; its lane waits.

        Unless ``limited``, its handler's limits have nothing to do with it.
        """
        gate = entry[0].gate
        if gate is None or not limited or gate.enter(entry, "first"):
            self._ready.appendleft(entry)

    def give_up(self, entry: Entry[T]) -> list[T]:
        """A started entry ends without being done: drop what waits behind it, free its lane."""
        for entries in (self._ready, self._parked.get(entry[0].partition, ())):
            if entry in entries:
                cast("deque[Entry[T]]", entries).remove(entry)
        part, key = entry[0], self._key(entry)
        if part.gate is not None:
            part.gate.drop(lambda held: held is entry)
            self.leave(entry)
        if key is NO_LANE:
            return []
        waiting = part.lanes.pop(key)
        return [] if waiting is None else [follower[1] for follower in waiting]

    def unstarted(
        self, partition: TopicPartition, has_started: Callable[[T], bool] = _never
    ) -> list[T]:
        """What is queued of a partition and was never taken.

        ``has_started`` tells what was taken, and is queued to be taken once more. What belongs to
        a tracker from before a seek is left out.
        """
        part = self._slices.get(partition)
        items = (entry[1] for entry in self._queued() if entry[0] is part)
        return [item for item in items if not has_started(item)]

    def drain(
        self,
        partition: TopicPartition,
        droppable_from: int | None = None,
        has_started: Callable[[T], bool] = _never,
    ) -> list[T]:
        """Drop what a revoke drops: what :meth:`unstarted` tells, at ``droppable_from`` or after.

        None, and any offset beyond it: after H, the highest offset that has started.
        """
        part = self._slices.get(partition)
        if part is None:
            return []
        beyond = part.started + 1
        first = beyond if droppable_from is None else min(beyond, droppable_from)
        return self._drop(
            lambda entry: (
                entry[0] is part and entry[1].offset >= first and not has_started(entry[1])
            )
        )

    def put_lagging_last(self, partition: TopicPartition) -> None:
        """What is queued of a partition is worked off for a revoke: the lane with the most of it
        goes last."""
        part = self._slices.get(partition)
        if part is None:
            return
        left: dict[Hashable, int] = {}
        for entry in self._queued():
            if entry[0] is part and (key := self._key(entry)) is not NO_LANE:
                left[key] = left.get(key, 0) + 1
        if len(left) < _SEVERAL:
            return
        lagging = max(left, key=lambda key: left[key])
        part.lagging, part.usual = lagging, False
        for entries in (self._ready, *([] if part.gate is None else [part.gate.held])):
            late = [e for e in entries if e[0] is part and self._key(e) == lagging]
            for entry in late:
                entries.remove(entry)
                ends = (at + 1 for at, e in enumerate(entries) if e[0] is part)
                entries.insert(max(ends, default=0), entry)

    def last_started(self, partition: TopicPartition) -> int:
        """H: the highest offset of the partition that was taken, -1 if none."""
        part = self._slices.get(partition)
        return -1 if part is None else part.started

    def partitions(self) -> list[TopicPartition]:
        """Every partition that anything was ever put of."""
        return list(self._slices)

    def lose(self, partition: TopicPartition) -> list[T]:
        """Drop all that is queued of a partition; what has started is the caller's to cancel."""
        return self._drop(lambda entry: entry[0].partition == partition)

    def drop_unstarted(
        self, partition: TopicPartition, has_started: Callable[[T], bool]
    ) -> list[T]:
        """Drop all that is queued of a partition, of every tracker, but what ``has_started`` and is
        queued to be taken once more."""
        return self._drop(
            lambda entry: entry[0].partition == partition and not has_started(entry[1])
        )

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
        gone = [entry for entry in before if unwanted(entry)]
        for partition, parked in self._parked.items():
            gone += [entry for entry in parked if unwanted(entry)]
            self._parked[partition] = deque(entry for entry in parked if not unwanted(entry))
        for gate in self._gates:
            gone += gate.drop(unwanted)
        for entry in gone:
            dropped.append(entry[1])
            self.done(entry)
        return dropped

    def _queued(self) -> Iterator[Entry[T]]:
        yield from self._ready
        for parked in self._parked.values():
            yield from parked
        for gate in self._gates:
            yield from gate.held
        for lanes in self._lanes_of_partitions():
            for waiting in lanes.values():
                if waiting is not None:
                    yield from waiting

    def _lanes_of_partitions(self) -> Iterator[dict[Hashable, deque[Entry[T]] | None]]:
        for part in self._slices.values():
            yield part.lanes
