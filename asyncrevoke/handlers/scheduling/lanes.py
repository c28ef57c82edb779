"""Decides which record may run next: ordered lanes, without a task or an object for each key.

A lane is an ordered queue of items that run one after another: the items of one key in one
partition, or of one partition. A lane exists only while it is busy: ``lanes[key]`` is None while
one item is ready or running, and a deque while others wait behind it. An item whose lane does not
exist is ready at once. When an item has ended, the next item of its lane is ready, and an empty
lane is removed. So an idle key costs nothing, and a record costs one tuple, at most one dictionary
entry and a place in a deque.

With the default keys, lanes are assigned late: a started item gets its lane when another item is
taken before it has ended, and a ready item waits in its busy lane when it would be taken. So items
whose handlers never await cost no dictionary entry. Before an operation that drops, pauses or
requeues items, the lanes of all items are assigned.

The next item of a lane goes before all items of its partition that were put later, so these do not
delay a busy key, and the committed offset advances. Partitions take turns.

When a revocation is announced, items that have not started are dropped. If some of them have to be
handled first (see :meth:`Backlog.revocation_announced`), the longest lane runs last, so that the
other lanes are empty by then.

A limiter has to permit an item of a handler with limits before it is ready; the item waits there
without a worker.

An item of a paused partition is kept when it would be taken, and is ready again when the partition
is resumed. Limits do not count it, and its lane waits.
"""

from __future__ import annotations

from collections import deque
from itertools import repeat
from typing import TYPE_CHECKING, Final, Literal, cast

from asyncrevoke.handlers.scheduling.partition_lanes import (
    NO_LANE,
    Entry,
    LaneKeys,
    PartitionLanes,
    ReadyEntries,
    lane_keys_by_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from asyncrevoke.client.config import NullKeys
    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.handlers.policy.batch import Item
    from asyncrevoke.handlers.scheduling.handler_ordering import HandlerLimiter, Place

# The length of an entry whose lane is not assigned yet, or that needs none with order_by=None.
_WITHOUT_KEY: Final = 3


class LaneQueue:
    """Items put in offset order and taken as their lanes allow. No tasks, no clock.

    An entry is *queued* (it waits in its lane, or is ready) until :meth:`take` returns it, and then
    *started*; its lane is busy until :meth:`free_lane` or :meth:`drop_lane`.
    """

    __slots__ = (
        "_by_key",
        "_exempt",
        "_has_default_keys",
        "_lane_keys",
        "_limiters",
        "_next",
        "_ordered",
        "_parts",
        "_paused",
        "_puts",
        "_ready",
        "_unassigned",
        "started_without_lane",
    )

    def __init__(
        self,
        order_by: Literal["key", "partition"] | None = "key",
        null_keys: NullKeys = "ordered",
    ) -> None:
        self._lane_keys: LaneKeys = lane_keys_by_name(order_by, null_keys)
        self._ordered = order_by is not None
        self._by_key = order_by == "key"
        # Whether an item's lane key is its key.
        self._has_default_keys = not (self._by_key and null_keys == "unordered")
        self._ready: ReadyEntries = ReadyEntries()
        # Read here, because take() is called for each record.
        self._next = self._ready.next
        self._parts: dict[TopicPartition, PartitionLanes] = {}
        self._limiters: dict[HandlerLimiter, None] = {}
        # Entries of each paused partition that could start without the pause, in order.
        self._paused: dict[TopicPartition, deque[Entry]] = {}
        # The item of a paused partition that may start in spite of the pause.
        self._exempt: dict[TopicPartition, Item] = {}
        self._puts = 0
        # The last started entry, if it has not ended and its lane is not assigned. Who ends it may
        # set None, which takes less time than a call of free_lane.
        self.started_without_lane: Entry | None = None
        # Whether ready entries may have no lane yet.
        self._unassigned = False

    def count_ready(self, most: int) -> int:
        """How many entries are ready, or wait when they would be taken; may end at ``most``."""
        return self._ready.count(most)

    def turn_ended(self) -> None:
        """A turn of the event loop has ended."""
        self._ready.turn_ended()

    @property
    def limited(self) -> list[tuple[TopicPartition, Item]]:
        """Entries that wait for a limiter."""
        return [
            (entry[0].partition, entry[1])
            for limiter in self._limiters
            for entry in limiter.waiting
        ]

    @property
    def queued(self) -> int:
        """How many entries were put and neither taken nor dropped."""
        return sum(1 for _ in self._queued())

    def tracker_of(self, partition: TopicPartition) -> int | None:
        """The offset tracker of the items that were put last; None if no items were put."""
        part = self._parts.get(partition)
        return None if part is None else part.tracker_id

    def put(
        self,
        partition: TopicPartition,
        items: Sequence[Item],
        lane_keys: LaneKeys | None = None,
        limiter: HandlerLimiter | None = None,
    ) -> None:
        """Queue items of one partition and one offset tracker, in offset order.

        ``lane_keys`` replace the default keys of the queue. A ``limiter``, the same for all items
        of a partition, has to permit items before they are ready.
        """
        if not items:
            return
        part = self._parts.get(partition)
        default_keys = self._has_default_keys and lane_keys is None and limiter is None
        if part is None or part.tracker_id != items[0].tracker_id:
            part = self._replace(part, partition, items[0].tracker_id, limiter, default_keys)
        elif part.runs_last is not NO_LANE:
            part.revocation_withdrawn(default_keys=default_keys)
        self._puts = put_number = self._puts + 1
        if not part.default_keys:
            self._put_with_keys(part, items, lane_keys or self._lane_keys)
            return
        part.ready.extend([(part, item, put_number) for item in items])
        self._ready.added(part)
        self._unassigned = self._ordered
        if part.check_on_take:
            self._assign_lanes()

    def _replace(
        self,
        former: PartitionLanes | None,
        partition: TopicPartition,
        tracker_id: int,
        limiter: HandlerLimiter | None,
        default_keys: bool,
    ) -> PartitionLanes:
        """Make the lanes of another offset tracker of a partition."""
        self._assign_lanes()
        lanes: dict[Hashable, deque[Entry] | None] = {}
        if former is not None:
            lanes = former.lanes
            former.supersede()
        # A paused partition delivers no records, so it was assigned again since the pause.
        self.resume(partition)
        part = PartitionLanes(partition, tracker_id, lanes, limiter, default_keys=default_keys)
        self._parts[partition] = part
        if limiter is not None:
            self._limiters[limiter] = None
        return part

    def _put_with_keys(
        self, part: PartitionLanes, items: Sequence[Item], lane_keys: LaneKeys
    ) -> None:
        lanes = part.lanes
        keys = lane_keys(items)
        for item, key in zip(items, repeat(NO_LANE) if keys is None else keys, strict=False):
            entry = (part, item, self._puts, key)
            if key not in lanes:
                if key is not NO_LANE:
                    lanes[key] = None
                if part.limiter is None or part.limiter.try_start(entry):
                    part.ready.append(entry)
            elif (waiting := lanes[key]) is None:
                lanes[key] = deque((entry,))
            else:
                waiting.append(entry)
        self._ready.added(part)

    def take(self) -> Entry | None:
        """Start and return the next ready entry; None if there is none."""
        if (started := self.started_without_lane) is not None:
            self.started_without_lane = None
            if self._ordered:
                started[0].lanes[started[1].key if self._by_key else None] = None
        entries = self._next
        while entries or self._ready.refill():
            entry = entries.popleft()
            part = entry[0]
            if part.check_on_take:
                return self._take_checked(entry)
            if len(entry) == _WITHOUT_KEY:
                if part.lanes and self._waits(entry):
                    continue
                self.started_without_lane = entry
            offset = entry[1].offset
            if offset > part.last_started:  # noqa: PLR1730 - a call of max costs as much as the rest
                part.last_started = offset
            return entry
        return None

    def _waits(self, entry: Entry) -> bool:
        """Whether the lane of an entry is busy: then it waits there."""
        lanes, key = entry[0].lanes, entry[1].key if self._by_key else None
        if key not in lanes:
            return False
        if (waiting := lanes[key]) is None:
            lanes[key] = deque((entry,))
        else:
            waiting.append(entry)
        return True

    def _assign_started(self) -> None:
        """Assign the lane of the last started entry, if it has not ended."""
        entry, self.started_without_lane = self.started_without_lane, None
        if self._ordered and entry is not None:
            entry[0].lanes[self._key(entry)] = None

    def _assign_lanes(self) -> None:
        """Assign the lanes of all started and queued entries."""
        self._assign_started()
        if self._unassigned:
            self._unassigned = False
            self._ready.replace(self._assigned)

    def _assigned(self, entry: Entry) -> Entry | None:
        """A ready entry with its lane; None if it waits there."""
        if len(entry) == _WITHOUT_KEY:
            if self._waits(entry):
                return None
            entry[0].lanes[self._key(entry)] = None
        return self._with_key(entry)

    def _with_key(self, entry: Entry) -> Entry:
        """The entry as it is queued when its lane is assigned."""
        return (*entry, self._key(entry)) if len(entry) == _WITHOUT_KEY else entry

    def _take_checked(self, entry: Entry) -> Entry | None:
        part = entry[0]
        paused = self._paused.get(part.partition)
        if paused is not None and self._exempt.get(part.partition) is not entry[1]:
            paused.append(entry)
            self.free_limiter(entry)
            return self.take()
        part.last_started = max(part.last_started, entry[1].offset)
        if part.limiter is not None:
            part.limiter.call_started(entry[1])
        return entry

    def pause(self, partition: TopicPartition) -> None:
        """Start no entry of this partition until :meth:`resume`; started ones keep running."""
        self._assign_lanes()
        self._paused.setdefault(partition, deque())
        for part in self._parts_of(partition):
            part.pause()

    def resume(self, partition: TopicPartition) -> None:
        """End a pause: kept entries start before all ready ones."""
        paused = self._paused.pop(partition, None)
        self._exempt.pop(partition, None)
        if paused is None:
            return
        for part in self._parts_of(partition):
            part.resume()
        for entry in reversed(paused):
            self.requeue(entry)

    def _parts_of(self, partition: TopicPartition) -> set[PartitionLanes]:
        """The current lanes of a partition, and those from before a seek with queued entries."""
        queued = {entry[0] for entry in self._queued() if entry[0].partition == partition}
        part = self._parts.get(partition)
        return queued if part is None else queued | {part}

    def free_lane(self, entry: Entry) -> None:
        """A started entry has ended: the next entry of its lane is ready."""
        if entry is self.started_without_lane:
            self.started_without_lane = None
            return
        part = entry[0]
        if not part.default_keys:
            self._free_lane_with_key(entry)
            return
        if not self._ordered:
            return
        key = entry[1].key if self._by_key else None
        lanes = part.lanes
        if (waiting := lanes[key]) is None:
            del lanes[key]
            return
        successor = self._with_key(waiting.popleft())
        if not waiting:
            lanes[key] = None
        self._ready.put_in_order(successor, successor[2])

    def _free_lane_with_key(self, entry: Entry) -> None:
        part, key = entry[0], self._key(entry)
        waiting = None if key is NO_LANE else part.lanes[key]
        if waiting is not None:
            successor = self._with_key(waiting.popleft())
            if not waiting:
                part.lanes[key] = None
            if part.runs_last is not NO_LANE:
                self._run_next_during_revocation(part, key, successor)
            elif part.limiter is None or part.limiter.try_start(successor, "put_order"):
                self._ready.put_in_order(successor, successor[2])
        elif key is not NO_LANE:
            del part.lanes[key]
        self.free_limiter(entry)

    def _run_next_during_revocation(
        self, part: PartitionLanes, key: Hashable, successor: Entry
    ) -> None:
        is_last = key == part.runs_last
        place: Place = "last" if is_last else "first"
        if part.limiter is not None and not part.limiter.try_start(successor, place):
            return
        if is_last:
            part.ready.append(successor)
            self._ready.added(part)
        else:
            self._next.appendleft(successor)

    def _key(self, entry: Entry) -> Hashable:
        if len(entry) == _WITHOUT_KEY:
            return entry[1].key if self._by_key else None if self._ordered else NO_LANE
        return entry[3]

    def free_limiter(self, entry: Entry) -> None:
        """The call of a started entry has ended: its limiter may permit another. Idempotent."""
        limiter = entry[0].limiter
        if limiter is not None:
            limiter.call_ended(entry[1])
            self.queue_permitted(limiter)

    def queue_permitted(self, limiter: HandlerLimiter) -> None:
        """Make the entries ready that this limiter permits now."""
        while (entry := limiter.next_permitted()) is not None:
            self._ready.put_in_order(entry, entry[2] + 1)

    def requeue(self, entry: Entry, *, limited: bool = True) -> None:
        """Let a started entry be taken again, before all ready ones; its lane waits.

        ``limited=False``: the handler is not called, so its limits do not apply.
        """
        self._assign_lanes()
        limiter = entry[0].limiter
        if limiter is None or not limited or limiter.try_start(entry, "first"):
            self._next.appendleft(self._with_key(entry))

    def requeue_in_pause(self, entry: Entry) -> None:
        """Like :meth:`requeue`, for the one entry of a paused partition that may start."""
        self._exempt[entry[0].partition] = entry[1]
        self.requeue(entry)

    def drop_lane(self, entry: Entry) -> list[Item]:
        """Remove the lane of a started entry, and return the items that waited behind it."""
        self._assign_lanes()
        entry = self._with_key(entry)
        self._ready.remove(entry)
        paused = self._paused.get(entry[0].partition, ())
        if entry in paused:
            cast("deque[Entry]", paused).remove(entry)
        part, key = entry[0], self._key(entry)
        if part.limiter is not None:
            part.limiter.drop(lambda waiting: waiting is entry)
            self.free_limiter(entry)
        if key is NO_LANE:
            return []
        waiting = part.lanes.pop(key)
        return [] if waiting is None else [successor[1] for successor in waiting]

    def unstarted(
        self, partition: TopicPartition, has_started: Callable[[Item], bool]
    ) -> list[Item]:
        """The queued items of a partition that were never taken.

        ``has_started`` returns whether an item was taken before and requeued. Items delivered
        before a seek are left out.
        """
        part = self._parts.get(partition)
        items = (entry[1] for entry in self._queued() if entry[0] is part)
        return [item for item in items if not has_started(item)]

    def drop_unstarted_from(
        self,
        partition: TopicPartition,
        offset: int,
        first_offset: Callable[[Item], int],
        has_started: Callable[[Item], bool],
    ) -> list[Item]:
        """Drop the items that :meth:`unstarted` returns and that begin at ``offset`` or later."""
        part = self._parts.get(partition)
        if part is None:
            return []
        return self._drop(
            lambda entry: (
                entry[0] is part and first_offset(entry[1]) >= offset and not has_started(entry[1])
            )
        )

    def run_longest_lane_last(self, partition: TopicPartition) -> None:
        """Let the lane of the partition with the most queued entries run last."""
        part = self._parts.get(partition)
        if part is None:
            return
        self._assign_lanes()
        left: dict[Hashable, int] = {}
        for entry in self._queued():
            if entry[0] is part and (key := self._key(entry)) is not NO_LANE:
                left[key] = left.get(key, 0) + 1
        if len(left) <= 1:
            return
        runs_last = max(left, key=lambda key: left[key])
        part.run_last(runs_last)
        self._ready.run_last(part, lambda entry: self._key(entry) == runs_last)
        waiting = deque[Entry]() if part.limiter is None else part.limiter.waiting
        late = [e for e in waiting if e[0] is part and self._key(e) == runs_last]
        for entry in late:
            waiting.remove(entry)
            ends = (at + 1 for at, e in enumerate(waiting) if e[0] is part)
            waiting.insert(max(ends, default=0), entry)

    def last_started(self, partition: TopicPartition) -> int:
        """The highest offset of the partition that was taken; -1 if none was."""
        part = self._parts.get(partition)
        return -1 if part is None else part.last_started

    def partitions(self) -> list[TopicPartition]:
        """Every partition for which :meth:`put` was called."""
        return list(self._parts)

    def drop_partition(self, partition: TopicPartition) -> list[Item]:
        """Drop all queued items of a partition; the caller cancels the started ones."""
        return self._drop(lambda entry: entry[0].partition == partition)

    def drop_unstarted(
        self, partition: TopicPartition, has_started: Callable[[Item], bool]
    ) -> list[Item]:
        """Drop the queued items of a partition that were never taken, also those delivered before a
        seek. ``has_started`` returns whether an item was taken before and requeued."""
        return self._drop(
            lambda entry: entry[0].partition == partition and not has_started(entry[1])
        )

    def drop_all(self) -> list[Item]:
        """Drop all queued items."""
        return self._drop(lambda _: True)

    def _drop(self, unwanted: Callable[[Entry], bool]) -> list[Item]:
        self._assign_lanes()
        dropped: list[Item] = []
        for part in self._parts.values():
            for key, waiting in part.lanes.items():
                if waiting is not None:
                    dropped.extend(entry[1] for entry in waiting if unwanted(entry))
                    kept = deque(entry for entry in waiting if not unwanted(entry))
                    part.lanes[key] = kept or None
        gone = self._ready.drop(unwanted)
        for partition, paused in self._paused.items():
            gone += [entry for entry in paused if unwanted(entry)]
            self._paused[partition] = deque(entry for entry in paused if not unwanted(entry))
        for limiter in self._limiters:
            gone += limiter.drop(unwanted)
        for entry in gone:
            dropped.append(entry[1])
            self.free_lane(entry)
        return dropped

    def _queued(self) -> Iterator[Entry]:
        yield from self._ready
        for paused in self._paused.values():
            yield from paused
        for limiter in self._limiters:
            yield from limiter.waiting
        for part in self._parts.values():
            for waiting in part.lanes.values():
                if waiting is not None:
                    yield from waiting
