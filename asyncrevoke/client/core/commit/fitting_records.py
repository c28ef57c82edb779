"""Which finished records of a partition a transaction can have: those that the new commit point
passes, and those beyond it as far as the completion map has room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, cast

from asyncrevoke.client.core.partition.completion_map import LONGEST, EncodedMap, encode
from asyncrevoke.client.core.partition.truncated_tracker import TruncatedTracker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from asyncrevoke.client.core.partition.instance import PartitionInstance
    from asyncrevoke.client.core.partition.offset_tracker import OffsetTracker

# The offset of a finished record, or those of records that enter a transaction together.
Finished: TypeAlias = int | tuple[int, ...]
# Characters of a map that offsets without a record may need later.
_ROOM: Final = 16


class TransactionRoom:
    """How many more finished records a transaction takes, and how many more bytes of their results;
    ``size_of`` says the bytes by tracker id and index. The first one may have any size."""

    def __init__(self, records: int, size: int, size_of: Callable[[int, int], int]) -> None:
        self._records = records
        self._size = size
        self._size_of = size_of
        self._is_empty = True

    def offer(self, sources: Mapping[int, Sequence[Finished]]) -> dict[int, Sequence[Finished]]:
        """The first ones of one partition, as many as there is room for."""
        records, size, is_first = self._records, self._size, self._is_empty
        offered: dict[int, Sequence[Finished]] = {}
        for tracker_id, groups in sources.items():
            count = 0
            for index, group in enumerate(groups):
                records -= 1 if isinstance(group, int) else len(group)
                size -= self._size_of(tracker_id, index)
                if not is_first and (records < 0 or size < 0):
                    break
                count, is_first = index + 1, False
            offered[tracker_id] = groups[:count]
        return offered

    def take(self, included: Mapping[int, Sequence[int]], records: int) -> None:
        """The transaction has these, by tracker id and index: so many records."""
        self._records -= records
        self._size -= sum(
            self._size_of(tracker_id, index)
            for tracker_id, indices in included.items()
            for index in indices
        )
        self._is_empty = self._is_empty and not records


def that_fit(
    tracker: OffsetTracker, groups: Sequence[Finished], limit: int
) -> tuple[OffsetTracker, Sequence[int], str | None]:
    """The tracker after a transaction, the indices of the groups that it has, and its completion
    map, None if it is not known. The map has at most ``limit`` characters: groups are all that the
    commit point passes, and the first ones beyond it."""
    every = range(len(groups))
    after = _after(tracker, groups, every)
    if not groups or after.is_contiguous:
        return after, every, "" if after.is_contiguous else None
    base, passed = _that_are_passed(tracker, groups, after)
    if limit <= _ROOM:
        return base, passed, None
    encoded = _encode(after, limit - _ROOM)
    if encoded.cut_at is None:
        return after, every, encoded.metadata
    known, cut_at = set(passed), encoded.cut_at
    beyond = [index for index in every if index not in known]
    beyond.sort(key=lambda index: last_offset(groups[index]))
    low, high = 0, sum(last_offset(groups[index]) < cut_at for index in beyond)
    middle, after, metadata = high, base, None
    while low < high:
        trial = _after(base, groups, beyond[:middle])
        encoded = _encode(trial, limit - _ROOM)
        if encoded.cut_at is None:
            low, after, metadata = middle, trial, encoded.metadata
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return after, sorted([*passed, *beyond[:low]]), metadata


def _that_are_passed(
    tracker: OffsetTracker, groups: Sequence[Finished], after: OffsetTracker
) -> tuple[OffsetTracker, Sequence[int]]:
    """All that the commit point passes: no map lists more than before."""
    chosen: Sequence[int] = range(len(groups))
    while True:
        point = after.commit_point
        passed = [index for index in chosen if last_offset(groups[index]) < point]
        if len(passed) == len(chosen):
            return after, chosen
        chosen, after = passed, _after(tracker, groups, passed)


def that_never_fit(
    instance: PartitionInstance, own: Sequence[Finished], chosen: Sequence[int]
) -> list[int]:
    """The indices of finished records that are left at a revocation when all handlers have ended:
    the next owner handles them, since one before them was abandoned."""
    if not instance.revoking or instance.tracker is None:
        return []
    finished = sum(1 if isinstance(group, int) else len(group) for group in own)
    if instance.tracker.in_flight > finished:
        return []
    known = set(chosen)
    return [index for index in range(len(own)) if index not in known]


def whole_map(tracker: OffsetTracker) -> str | None:
    """The completion map of a tracker; None if no metadata has room for it."""
    encoded = _encode(tracker, LONGEST)
    return encoded.metadata if encoded.cut_at is None else None


def _encode(tracker: OffsetTracker, limit: int) -> EncodedMap:
    if tracker.is_contiguous:
        return EncodedMap("", None)
    return encode(tracker.commit_point, tracker.completed_runs(), tracker.leader_epoch, limit)


def _after(
    tracker: OffsetTracker, groups: Sequence[Finished], chosen: Sequence[int]
) -> OffsetTracker:
    """The tracker after these groups are completed."""
    if not chosen:
        return tracker
    preview = tracker.preview()
    preview.complete_all(offsets_of(groups, chosen))
    return preview


def offsets_of(groups: Sequence[Finished], chosen: Sequence[int]) -> list[int]:
    """The offsets of the records of these groups."""
    if len(chosen) == len(groups) and set(map(type, groups)) == {int}:
        return list(cast("Sequence[int]", groups))
    offsets: list[int] = []
    for index in chosen:
        group = groups[index]
        if isinstance(group, int):
            offsets.append(group)
        else:
            offsets.extend(group)
    return offsets


def last_offset(group: Finished) -> int:
    """The highest offset of a group."""
    return group if isinstance(group, int) else max(group)


def kept_to(instance: PartitionInstance, tracker_id: int, tracker: OffsetTracker) -> int:
    """The offset before which the records of a former tracker are those of the present one."""
    former = instance.former_trackers.get(tracker_id)
    return former.kept_by(tracker) if isinstance(former, TruncatedTracker) else 0
