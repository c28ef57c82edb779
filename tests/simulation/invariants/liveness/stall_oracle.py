"""A polling member gets records of each partition that has data and a live leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.invariants.oracle_state import Holding, MemberView, OracleState, Violation, name

if TYPE_CHECKING:
    from asyncrevoke.client.model import TopicPartition

# In seconds: a fetch that waits at the broker, one that was lost and is sent again after a backoff,
# and metadata that is refreshed after it.
LONGEST_WAIT = 4.0
# So long after a disturbance nothing is expected: time-outs and backoffs come to their ends.
_CALM = 8.0
LOOK_EVERY = 0.25


class StallOracle:
    """Checks at intervals which partitions have records for their members, and since when."""

    def __init__(self, state: OracleState) -> None:
        self._state = state
        # The position of the member, and since when there is something that it could be given.
        self._waits: dict[tuple[int, TopicPartition], tuple[int, float]] = {}

    def look(self) -> None:
        """See who waits."""
        before, self._waits = self._waits, {}
        for view in self._state.views.values():
            if not self._expects_records(view):
                continue
            for partition, holding in view.held.items():
                position = self._position(view, partition, holding)
                if position is not None and view.polls(partition):
                    self._waiting(view, partition, position, before)

    def _waiting(
        self,
        view: MemberView,
        partition: TopicPartition,
        position: int,
        before: dict[tuple[int, TopicPartition], tuple[int, float]],
    ) -> None:
        now, key = self._state.clock.now, (view.member.client, partition)
        found, since = before.get(key, (position, now))
        if found != position:
            since = now
        self._waits[key] = position, since
        if now - since > LONGEST_WAIT:
            raise Violation(
                "stall",
                f"client {view.member.client} polls since {since:.3f} at offset {position} of "
                f"{name(partition)}, which has more, and gets nothing",
            )

    def _expects_records(self, view: MemberView) -> bool:
        member, state = view.member, self._state
        return (
            member.alive
            and not member.frozen
            and not view.closing
            and member.client not in state.evicted
            and not state.disturbed(member.client, _CALM)
            and not state.hampered(member.client, state.clock.now - _CALM)
        )

    def _position(
        self, view: MemberView, partition: TopicPartition, holding: Holding
    ) -> int | None:
        """Where the next record is to come from, if there is one."""
        log = self._state.brokers.topics.log(partition)
        if log is None or holding.former or holding.paused or holding.revoking_since is not None:
            return None
        position = holding.next
        if position is None:
            stored = self._state.brokers.group.offsets.get(partition)
            if stored is None:
                return None
            # What is stored now may be a later commit of a former owner.
            position = view.fetched_offsets.get(partition, stored.offset)
            if position < log.start and view.member.config.auto_offset_reset == "latest":
                return None  # its policy may send it to the end
        # Retention may have deleted what was there.
        first = log.first_record_at_or_after(max(position, log.start))
        while first in holding.covered:
            first = log.first_record_at_or_after(first + 1)
        return position if first < log.end else None
