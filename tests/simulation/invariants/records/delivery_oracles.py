"""Oracles over what applications get and do: I1, I2, I5 to I8, I11, I17 to I19, nothing lost."""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice
from typing import TYPE_CHECKING, Final

from simulation.invariants.oracle_state import Holding, MemberView, OracleState, Violation, name
from simulation.invariants.records.work_progress import WorkProgress

from asyncrevoke.client.core.partition.completion_map import decode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.model import OffsetAndMetadata, PollResult, Record, TopicPartition


_NOTHING: Final = frozenset[int]()


class DeliveryOracles:
    """Follows every record from its delivery to the commit that covers it."""

    def __init__(self, state: OracleState) -> None:
        self._state = state
        self._progress: dict[TopicPartition, WorkProgress] = {}
        # Commits that arrived late, after a newer one, and were seen by no one of their sender's:
        # the sender, and the end of what was committed before, its map included.
        self._rewound: dict[TopicPartition, tuple[int, int]] = {}
        # Those of them of which nobody can know, as their sender had released the partition before
        # they arrived, or had read the offset for the last time before it releases it; and those
        # that it knew of, and could not repair before it lost it.
        self._lasting: set[TopicPartition] = set()
        self._repairing: dict[TopicPartition, int] = {}
        # When the coordinator last read an offset to a client.
        self._read_at: dict[tuple[int, TopicPartition], float] = {}
        # Where what is stored ends, its map included.
        self._stored: dict[TopicPartition, int] = {}
        # The completed offsets beyond the committed one that each client last received.
        self._told: dict[tuple[int, TopicPartition], frozenset[int]] = {}
        # Of which topic's partition the records of a client's tracker are.
        self._trackers: dict[tuple[int, int], WorkProgress] = {}
        # Where gaps were dropped: the members of which the group knew whether they read maps, the
        # last record of those gaps, and where delivery had come to.
        self._told_of_gaps: dict[TopicPartition, tuple[frozenset[int], int, int]] = {}
        # Two members may have these: commits of one may rewind those of the other.
        self.shared: set[TopicPartition] = set()

    # --- poll results ----------------------------------------------------------------------------

    def returned(self, view: MemberView, result: PollResult) -> None:
        """A step has returned this."""
        state, client = self._state, view.member.client
        for partition, records in result.by_partition().items():
            if records:
                if partition in result.to_be_revoked:
                    raise Violation("I1", f"{name(partition)} is to be revoked, and has records")
                self._delivered(view, partition, records, result)
        for partition in sorted(result.to_be_revoked):
            holding = view.held.get(partition)
            if holding is None:
                raise Violation(
                    "I9", f"client {client} has to revoke {name(partition)}, which it does not own"
                )
            holding.announced = True
            if holding.revoking_since is None:
                holding.revoking_since = state.clock.now
        for partition in sorted(result.lost):
            if view.unreported[partition] <= 0:
                raise Violation(
                    "I7", f"client {client}: {name(partition)} is reported as lost, and was not"
                )
            del view.unreported[partition]
        if view.unreported:
            raise Violation(
                "I7", f"client {client}: lost and not reported: {sorted(view.unreported)}"
            )

    def _delivered(
        self,
        view: MemberView,
        partition: TopicPartition,
        records: Sequence[Record],
        result: PollResult,
    ) -> None:
        state, client = self._state, view.member.client
        holding = view.held.get(partition)
        if holding is None:
            raise Violation("I1", f"client {client} got {name(partition)}, not its own")
        if holding.revoking_since is not None:
            raise Violation(
                "I1",
                f"client {client} got records of {name(partition)}, which is being revoked "
                f"since {holding.revoking_since}",
            )
        if holding.paused:
            raise Violation("pause", f"client {client} got {name(partition)}, which it has paused")
        if view.unreported[partition] and partition not in result.lost:
            raise Violation(
                "I7",
                f"client {client} got {name(partition)} again before it was reported as lost",
            )
        if holding.former:
            for record in records:
                self._trackers.setdefault((client, record.tracker_id), WorkProgress())
            return
        self._check_contiguous(client, partition, holding, records)
        self._check_sole(view, partition)
        progress = self.of(partition)
        self._trackers[client, records[0].tracker_id] = progress
        for record in records:
            before = progress.deliveries.get(record.offset, ())
            progress.deliveries[record.offset] = (*before, (client, state.clock.now))
        state.counts["delivered"] += len(records)

    def _check_contiguous(
        self, client: int, partition: TopicPartition, holding: Holding, records: Sequence[Record]
    ) -> None:
        log = self._state.brokers.topics.log(partition)
        assert log is not None
        for record in records:
            if record.offset in holding.covered:
                raise Violation(
                    "I19",
                    f"client {client} gets {name(partition)} offset {record.offset}, which the "
                    "map that it has read says is done",
                )
        first = records[0].offset
        expected = first if holding.next is None else log.first_record_at_or_after(holding.next)
        start = bisect_left(log.offsets, expected)
        wanted = log.offsets[start : start + len(records)]
        if holding.covered:
            left = (offset for offset in log.offsets[start:] if offset not in holding.covered)
            wanted = list(islice(left, len(records)))
        got = [record.offset for record in records]
        if holding.may_jump_to is not None and got[0] >= holding.may_jump_to:
            holding.may_jump_to = None
            if records[0].tracker_id != holding.tracker_id:
                # Reset by the policy: from here on as if it had begun here, but for what its map
                # says of the rest.
                holding.tracker_id = None
                wanted = got
        if got != wanted:
            raise Violation(
                "I6", f"client {client}, {name(partition)}: got {got}, and {wanted} comes next"
            )
        if holding.tracker_id is None:
            holding.tracker_id = records[0].tracker_id
        if any(record.tracker_id != holding.tracker_id for record in records):
            raise Violation("I6", f"client {client}, {name(partition)}: its tracker has changed")
        holding.next = got[-1] + 1

    def _check_sole(self, view: MemberView, partition: TopicPartition) -> None:
        others = self._state.holders.get(partition, ())
        if len(others) < 2 or not self._may_commit(view):
            return
        if any(other.held[partition].overlooked for other in others):
            return
        for other in others:
            if other.held[partition].former:
                continue
            if other is not view and other.member.alive and self._may_commit(other):
                raise Violation(
                    "I8",
                    f"client {view.member.client} gets {name(partition)}, which client "
                    f"{other.member.client} still has",
                )

    def _may_commit(self, view: MemberView) -> bool:
        """Whether the coordinator would accept a commit of this member."""
        ours = view.member.core.group_metadata()
        return self._state.brokers.group.accepts(view.member.client, ours)

    def delayed(self, view: MemberView, wanted: frozenset[TopicPartition], ours: bool) -> None:
        """``delay_revoke`` has returned."""
        held = all(tp in view.held and not view.unreported[tp] for tp in wanted)
        if ours != held:
            raise Violation(
                "I2",
                f"client {view.member.client}: delay_revoke({sorted(wanted)}) is {ours}, "
                f"and it has {sorted(view.held)}",
            )

    def dropped(
        self, view: MemberView, partition: TopicPartition, offset: int, gaps: frozenset[int]
    ) -> None:
        """Records after ``offset``, and ``gaps`` before it, were dropped unstarted: they may be
        delivered again, and nothing else of what was delivered."""
        holding = view.held.get(partition)
        if holding is not None and holding.next is not None and holding.next > offset + 1:
            if holding.former:
                return
            progress = self.of(partition)
            for given in range(offset + 1, holding.next):
                if given in progress.deliveries and given not in holding.covered:
                    progress.take_back(given, view.member.client)
            holding.next = offset + 1
        if gaps and holding is not None and holding.next is not None and not holding.former:
            progress, first = self.of(partition), min(gaps)
            for given in gaps:
                progress.take_back(given, view.member.client)
            last, end = max(gaps), holding.next
            holding.covered |= frozenset(range(first, end)) - gaps
            self._state.counts["gaps dropped"] += len(gaps)
            # A member that joins only afterwards may read no completion maps.
            known = view.members
            former, last_before, end_before = self._told_of_gaps.get(partition, (known, -1, 0))
            if holding.next <= last_before:
                # Gaps dropped before are not worked through either.
                known, last, end = known | former, last_before, max(end, end_before)
            holding.next = first
            self._told_of_gaps[partition] = known, last, end

    def sought(self, view: MemberView, partition: TopicPartition, offset: int) -> None:
        """What it was given from ``offset`` on, and has not worked on, is to be delivered again."""
        holding, log = view.held.get(partition), self._state.brokers.topics.log(partition)
        if holding is None or holding.former or log is None:
            return
        progress = self.of(partition)
        for given in range(offset, offset if holding.next is None else holding.next):
            if given in progress.deliveries and given not in holding.covered:
                progress.take_back(given, view.member.client)
        if holding.covered:
            # A seek leaves the map behind.
            progress.may_repeat("a seek went back over what a completion map covers", log.end)
            holding.covered = _NOTHING
        if offset < log.start:
            holding.may_jump_to = log.start
        holding.next = offset
        holding.tracker_id = None

    def seeking_to(self, view: MemberView, partition: TopicPartition, to_end: bool) -> None:
        """A member seeks to the end, or back to the beginning, of a partition."""
        holding, log = view.held.get(partition), self._state.brokers.topics.log(partition)
        if holding is None or holding.former or log is None:
            return
        if to_end:
            holding.seeks_end = True
            return
        self.of(partition).may_repeat("a seek went back to the beginning", log.end)
        holding.rewound = True
        self.sought(view, partition, log.start)

    def deleted_before(self, partition: TopicPartition, offset: int) -> None:
        """Retention has deleted what nobody needs to have worked on now. Who was to read it next
        goes on at the new beginning, after what it had fetched already."""
        progress = self.of(partition)
        progress.deleted = True
        progress.skipped = max(progress.skipped, offset)
        for view in self._state.views.values():
            holding = view.held.get(partition)
            if holding is not None and (holding.next is None or holding.next < offset):
                holding.may_jump_to = offset

    def deleted(self, topic: str) -> None:
        """A topic is deleted: what is done of it counts for nothing any more."""
        for partition in [tp for tp in self._progress if tp.topic == topic]:
            del self._progress[partition]
            self._rewound.pop(partition, None)
            self._lasting.discard(partition)
            self._repairing.pop(partition, None)
            self._stored.pop(partition, None)
            self.shared.discard(partition)
            self._told_of_gaps.pop(partition, None)
        for key in [key for key in self._told if key[1].topic == topic]:
            del self._told[key]

    def contested(self, partition: TopicPartition, cause: str) -> None:
        """Two members have it, and neither can know of the other: both may commit."""
        self.shared.add(partition)
        self.of(partition).may_repeat(cause, 2**63)

    # --- records ---------------------------------------------------------------------------------

    def done(self, view: MemberView, record: Record) -> None:
        """An application has worked on a record."""
        state, client = self._state, view.member.client
        partition = record.topic_partition
        progress = self._trackers[client, record.tracker_id]
        first = progress.done.get(record.offset)
        if first is None:
            progress.done[record.offset] = client
            state.counts["done"] += 1
            return
        cause, end = progress.repeats
        if record.offset >= end:
            cause = None
        for former, at in progress.deliveries.get(record.offset, ()):
            cause = cause or state.permitted_duplicate(former, partition, at)
        cause = cause or state.permits_repeats
        if cause is None:
            raise Violation(
                "I11",
                f"{name(partition)} offset {record.offset} was worked on by client {first}, and "
                f"again by client {client}; delivered to {progress.deliveries.get(record.offset)}",
            )
        state.duplicates[cause] += 1

    # --- commits ---------------------------------------------------------------------------------

    def committed(
        self, view: MemberView, partition: TopicPartition, old: int | None, new: OffsetAndMetadata
    ) -> None:
        """The coordinator has stored an offset."""
        state, client = self._state, view.member.client
        if partition in view.held and view.held[partition].former:
            raise Violation(
                "I20",
                f"client {client} has committed {name(partition)}, of a topic that was deleted, "
                "for another one of its name",
            )
        progress = self.of(partition)
        log = state.brokers.topics.log(partition)
        assert log is not None
        missing = progress.first_missing(log)
        if new.offset > missing:
            raise Violation(
                "I5",
                f"client {client} has committed {new.offset} of {name(partition)}, "
                f"and {missing} is not done",
            )
        covered = self._covered(partition, new)
        ended = self._stored.get(partition, 0)
        self._stored[partition] = max(new.offset, max(covered, default=-1) + 1)
        for offset in covered:
            if offset not in progress.done and offset >= progress.skipped:
                raise Violation(
                    "I18",
                    f"client {client} has committed {new.offset} of {name(partition)} with a map "
                    f"in which {offset} is done, and it is not",
                )
        late = state.network.processing_ghost
        holding = view.held.get(partition)
        if old is not None and not late and holding is not None and holding.rewound:
            self._stored[partition] = max(new.offset, max(covered, default=-1) + 1)
            self._rewound.pop(partition, None)
            return
        if old is not None and (new.offset < old or (late and self._stored[partition] < ended)):
            if partition in self.shared:
                return
            if not late:
                raise Violation(
                    "I4",
                    f"client {client} has rewound {name(partition)} from {old} to {new.offset}",
                )
            # One late commit may follow upon another, and rewind less.
            _, before = self._rewound.get(partition, (client, ended))
            self._rewound[partition] = client, max(before, ended)
            if (
                holding is None
                or holding.since > state.network.ghost_sent_at
                or self._has_read_for_release(client, partition, holding)
            ):
                self._lasting.add(partition)
            state.counts["late commits"] += 1
        elif new.offset >= self._rewound.get(partition, (client, 0))[1]:
            self._rewound.pop(partition, None)
            self._lasting.discard(partition)
            self._repairing.pop(partition, None)

    def _has_read_for_release(
        self, client: int, partition: TopicPartition, holding: Holding
    ) -> bool:
        """Whether its owner has read the offset after the revocation was announced: it releases the
        partition when the response comes, without reading it again."""
        since = holding.revoking_since
        return since is not None and self._read_at.get((client, partition), -1.0) >= since

    def position_found(
        self, view: MemberView, partition: TopicPartition, offset: int, *, is_end: bool
    ) -> None:
        """A member received where the log begins or ends, to which the reset policy sends it, or
        its own seek."""
        progress, holding = self.of(partition), view.held.get(partition)
        if is_end and holding is not None and holding.seeks_end and not holding.former:
            # Nobody needs to work on what it passes over.
            progress.skipped = max(progress.skipped, offset)
            holding.next = holding.may_jump_to = offset
            holding.tracker_id, holding.covered = None, _NOTHING
        # A former owner of a converted group may have committed: it received no revocation.
        untold = partition in view.unset
        if progress.deleted or untold or partition not in self._state.brokers.group.offsets:
            progress.skipped = max(progress.skipped, offset)

    def offsets_fetched(self, client: int, partitions: Sequence[TopicPartition]) -> None:
        """The coordinator has read committed offsets to a client."""
        for partition in partitions:
            stored = self._state.brokers.group.offsets.get(partition)
            self._read_at[client, partition] = self._state.clock.now
            self._told[client, partition] = (
                _NOTHING if stored is None else self._covered(partition, stored)
            )
            sender, end = self._rewound.get(partition, (None, 0))
            if sender == client and partition in self._state.views[client].held:
                # It can see what happened before it lets go, and has to repair it.
                del self._rewound[partition]
                self._repairing[partition] = client
            elif sender is not None:
                late = "a commit arrived after its sender had stopped waiting"
                self.of(partition).may_repeat(late, end)

    def assigned(self, view: MemberView, partition: TopicPartition, holding: Holding) -> None:
        """A position was found; with a committed offset, its map was read."""
        config = view.member.config
        known, end = self._knew_of_gaps(partition)
        reads = (config.completion_map and config.commit_mode != "manual") or config.exactly_once
        if reads and not holding.from_reset:
            holding.covered = self._told.get((view.member.client, partition), _NOTHING)
            self._state.counts["skipped"] += len(holding.covered)
        elif not (known is None or view.member.client in known or self._state.stores_states):
            covered = self._told.get((view.member.client, partition), _NOTHING)
            # A commit of its own, before its position was known, may have removed the map.
            cause = "a member joined that reads no completion maps"
            self.of(partition).may_repeat(cause, max(covered) + 1 if covered else end)

    def _knew_of_gaps(self, partition: TopicPartition) -> tuple[frozenset[int] | None, int]:
        """Who the group knew when gaps were dropped that nobody has worked through since, and
        where delivery had come to.

        If retention deletes a gap, the commit after it still has the map of what lies beyond.
        """
        known, last, end = self._told_of_gaps.get(partition, (None, -1, 0))
        stored = self._state.brokers.group.offsets.get(partition)
        is_over = (
            stored is not None and stored.offset > last and not self._covered(partition, stored)
        )
        return (None if is_over else known), end

    def _covered(self, partition: TopicPartition, stored: OffsetAndMetadata) -> frozenset[int]:
        """The records that are done by the map beside a committed offset."""
        found = decode(stored.offset, stored.metadata)
        log = self._state.brokers.topics.log(partition)
        if found is None or log is None:
            return frozenset()
        offsets = log.offsets
        return frozenset(
            offset
            for first, end in found.runs
            for offset in offsets[bisect_left(offsets, first) : bisect_left(offsets, end)]
        )

    def lost(self, view: MemberView, partition: TopicPartition) -> None:
        """A partition was lost: what a late commit has rewound is not repaired any more."""
        sender, _ = self._rewound.get(partition, (None, 0))
        if view.member.client in (sender, self._repairing.get(partition)):
            self._lasting.add(partition)

    def released(self, view: MemberView, partition: TopicPartition, holding: Holding) -> None:
        """A partition was given back in good order."""
        state = self._state
        is_stored = partition in state.brokers.group.offsets or state.is_decided(partition)
        manual = view.member.config.commit_mode == "manual"
        if holding.from_reset and not (holding.former or manual or is_stored):
            raise Violation(
                "I17",
                f"client {view.member.client} has released {name(partition)}, whose position "
                "came from the reset policy, without having committed it",
            )

    # --- the end ---------------------------------------------------------------------------------

    def missing(self, *, released: bool = False) -> dict[TopicPartition, str]:
        """Partitions that are not worked through, or whose end is not committed, and how. The end
        may be after offsets without records, as of control batches.

        A late commit may have rewound an idle partition: its owner repairs that at the latest
        when it is ``released``, if it has sent it and is not prevented.
        """
        found: dict[TopicPartition, str] = {}
        for partition in self._state.brokers.topics.partitions():
            log = self._state.brokers.topics.log(partition)
            assert log is not None
            progress = self.of(partition)
            if not log.offsets or log.offsets[-1] < progress.skipped:
                continue
            stored = self._state.brokers.group.offsets.get(partition)
            rewound = partition in (self._lasting if released else self._rewound)
            contested = stored is not None and partition in self.shared
            behind = stored is None or log.end > stored.offset
            if behind and not rewound and not contested:
                committed = "nothing" if stored is None else stored.offset
                found[partition] = (
                    f"{name(partition)}: the log ends at {log.end}, {committed} is committed, "
                    f"{progress.first_missing(log)} is the first one not done"
                )
            elif progress.first_missing(log) < log.end:
                found[partition] = (
                    f"{name(partition)}: {progress.first_missing(log)} is committed and was "
                    "never worked on"
                )
        return found

    def of(self, partition: TopicPartition) -> WorkProgress:
        """What is known of one partition."""
        progress = self._progress.get(partition)
        if progress is None:
            progress = self._progress[partition] = WorkProgress()
        return progress
