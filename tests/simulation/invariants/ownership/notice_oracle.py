"""Oracle over the calls of listeners, I12: each notice once, none of them empty, and those of one
event in order: lost, revoked, assigned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.invariants.oracle_state import Holding, MemberView, OracleState, Violation, name
from simulation.invariants.ownership.loss_oracle import LossOracle

from asyncrevoke.client.core.io.effects import Notify, NotifyKind

if TYPE_CHECKING:
    from simulation.invariants.evictions import Evictions
    from simulation.invariants.ownership.follow_up_oracle import FollowUpOracle
    from simulation.invariants.records.commit_oracle import CommitOracle
    from simulation.invariants.records.delivery_oracles import DeliveryOracles

    from asyncrevoke.client.model import TopicPartition

_ORDER = {NotifyKind.LOST: 0, NotifyKind.REVOKED: 1, NotifyKind.ASSIGNED: 2}


class NoticeOracle:
    """Follows what every member has by the notices that begin and end it: a view's ``held``."""

    def __init__(
        self,
        state: OracleState,
        evictions: Evictions,
        follow_ups: FollowUpOracle,
        deliveries: DeliveryOracles,
        commits: CommitOracle,
    ) -> None:
        self._state = state
        self._follow_ups = follow_ups
        self._deliveries = deliveries
        self._commits = commits
        self._losses = LossOracle(state, evictions)
        # Those of the call that is under way.
        self._kinds: list[NotifyKind] = []

    def notified(self, view: MemberView, notice: Notify) -> None:
        """A listener is called."""
        if not notice.partitions:
            raise Violation("I12", f"client {view.member.client}: empty notice")
        self._kinds.append(notice.kind)
        for partition in sorted(notice.partitions):
            if notice.kind is NotifyKind.ASSIGNED:
                self._assigned(view, partition)
            elif notice.kind is NotifyKind.REVOKED:
                self._revoked(view, partition)
            else:
                self._deliveries.lost(view, partition)
                self._losses.lost(view, partition, self._end_holding(view, partition))

    def _assigned(self, view: MemberView, partition: TopicPartition) -> None:
        state, client = self._state, view.member.client
        if partition in view.held:
            raise Violation("I12", f"client {client}: {name(partition)} is assigned twice")
        found = view.held[partition] = Holding(state.clock.now, partition in view.unset)
        # Of the topic that it knows of, which may be another one by now.
        current = state.brokers.topics.id_of(partition.topic)
        found.topic_id = view.topic_ids.get(partition.topic, current)
        found.former = found.topic_id != current
        state.holders.setdefault(partition, []).append(view)
        self._deliveries.assigned(view, partition, found)

    def _revoked(self, view: MemberView, partition: TopicPartition) -> None:
        holding = self._end_holding(view, partition)
        if holding is None:
            raise Violation(
                "I12",
                f"client {view.member.client}: {name(partition)} is revoked, and was not its",
            )
        if self._commits.gave_up(view, partition):
            self._state.permit_partition_duplicates(
                view.member.client, partition, "its final commit was rejected"
            )
        else:
            self._deliveries.released(view, partition, holding)
        if not holding.former:
            self._follow_ups.released(view, partition)

    def _end_holding(self, view: MemberView, partition: TopicPartition) -> Holding | None:
        holding = view.held.pop(partition, None)
        if holding is not None:
            self._state.holders[partition].remove(view)
        return holding

    def call_ended(self, view: MemberView) -> None:
        """A call into a core has ended."""
        if self._kinds:
            ranks = [_ORDER[kind] for kind in self._kinds]
            self._kinds.clear()
            if ranks != sorted(ranks):
                raise Violation(
                    "I12", f"client {view.member.client}: notices are out of order: {ranks}"
                )
