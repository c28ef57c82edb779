"""Oracle over what applications ask to commit: success is only reported for what was stored."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from simulation.invariants.oracle_state import MemberView, OracleState, Violation, name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simulation.invariants.oracle_state import Holding

    from asyncrevoke.client.core.io.effects import CompleteRequest
    from asyncrevoke.client.model import OffsetAndMetadata, PollResult, TopicPartition

# The offset of what is not committed.
_NONE = -1


class CommitOracle:
    """Follows each commit() from the call to its result, and the offsets that brokers reject."""

    def __init__(self, state: OracleState) -> None:
        self._state = state
        # By client and call: what must have been stored of each partition for a success.
        self._requests: dict[tuple[int, int], dict[TopicPartition, int]] = {}
        # The greatest offset that was stored for a client of each partition.
        self._stored: dict[tuple[int, TopicPartition], int] = {}
        # The first offset that was delivered of an assignment.
        self._first: dict[Holding, int] = {}
        # Of which partitions the last commit of a client was rejected, and how often in a row.
        self._rejected: Counter[tuple[int, TopicPartition]] = Counter()
        # What was stored of each partition, and when.
        self._history: dict[TopicPartition, list[tuple[float, int]]] = {}

    def returned(self, view: MemberView, result: PollResult) -> None:
        """A step has returned this."""
        for partition, records in result.by_partition().items():
            if records and (holding := view.held.get(partition)) is not None:
                self._first.setdefault(holding, records[0].offset)

    def requested(
        self, view: MemberView, call_id: int, unfinished: Mapping[TopicPartition, int] | None
    ) -> None:
        """An application asks to commit all that it has done; ``unfinished`` is the first record of
        a partition that it has not done, if there is one. None: nobody knows what counts."""
        needs: dict[TopicPartition, int] = {}
        for partition, holding in view.held.items():
            first = self._first.get(holding)
            if unfinished is None or first is None or holding.next is None or holding.former:
                continue
            # What was dropped unstarted is before the next record, and not in anybody's hands.
            done = min(unfinished.get(partition, holding.next), holding.next)
            if done > first:
                needs[partition] = done
        self._requests[view.member.client, call_id] = needs
        self._state.counts["commits asked for"] += 1

    def completed(self, view: MemberView, complete: CompleteRequest) -> None:
        """A call is completed."""
        client = view.member.client
        needs = self._requests.pop((client, complete.call_id), None)
        if needs is None:
            return
        if complete.error is not None:
            self._state.counts["commits that raised"] += 1
            return
        for partition, offset in needs.items():
            stored = self._stored.get((client, partition), -1)
            if stored < offset:
                raise Violation(
                    "acknowledged",
                    f"client {client} received that {name(partition)} is committed up to {offset}, "
                    f"and no more than {stored} was stored for it",
                )

    def committed_offsets_received(
        self,
        view: MemberView,
        seconds: float,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | None],
    ) -> None:
        """A member received committed offsets, which were committed at some time since it asked."""
        asked_at = self._state.clock.now - seconds
        for partition, received in offsets.items():
            history = self._history.get(partition, [])
            before = [offset for at, offset in history if at <= asked_at][-1:]
            since = [offset for at, offset in history if at > asked_at]
            offset = _NONE if received is None else received.offset
            if offset not in (before or [_NONE]) + since:
                raise Violation(
                    "committed",
                    f"client {view.member.client} received that {offset} is committed of "
                    f"{name(partition)}, which was {before or None} when it asked, then {since}",
                )

    def stored(self, client: int, partition: TopicPartition, offset: int) -> None:
        """A broker has stored an offset."""
        key = client, partition
        self._rejected.pop(key, None)
        self._history.setdefault(partition, []).append((self._state.clock.now, offset))
        self._stored[key] = max(offset, self._stored.get(key, -1))

    def rejected(self, client: int, partition: TopicPartition) -> None:
        """A broker has rejected an offset."""
        self._rejected[client, partition] += 1
        self._state.counts["rejected commits"] += 1

    def deleted(self, topic: str) -> None:
        """A topic is deleted: no member may receive its offsets for the new one."""
        # A lookup in flight may still receive the former topic's offset.
        for history in [self._history[tp] for tp in self._history if tp.topic == topic]:
            history.append((self._state.clock.now, _NONE))
        for key in [key for key in self._stored if key[1].topic == topic]:
            del self._stored[key]
        for needs in self._requests.values():
            for partition in [tp for tp in needs if tp.topic == topic]:
                del needs[partition]

    def gave_up(self, view: MemberView, partition: TopicPartition) -> bool:
        """Whether a client that has released a partition may have done so without a commit, since
        that was rejected, and once more; its records may be worked on again then. What an
        application commits itself is not tried again for it."""
        attempts = 1 if view.member.config.commit_mode == "manual" else 2
        return self._rejected.pop((view.member.client, partition), 0) >= attempts

    def closed(self, view: MemberView) -> None:
        """A consumer has closed: nobody waits for a commit of it any more."""
        left = [call_id for client, call_id in self._requests if client == view.member.client]
        if left:
            raise Violation(
                "acknowledged",
                f"client {view.member.client} has closed, and commits {left} are not completed",
            )
