"""Oracle over losses: a member loses a partition only by eviction, past a deadline, or with its
topic ("undue loss"), and nothing that was never its (I12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.invariants.oracle_state import Holding, MemberView, OracleState, Violation, name

from asyncrevoke.client.core.io.deadline import Deadline
from asyncrevoke.testing.fake_kafka.group_state import GroupState

if TYPE_CHECKING:
    from simulation.invariants.evictions import Evictions

    from asyncrevoke.client.model import TopicPartition


class LossOracle:
    """Finds for every loss what permits it, and records what may be repeated for that."""

    def __init__(self, state: OracleState, evictions: Evictions) -> None:
        self._state = state
        self._evictions = evictions

    def lost(self, view: MemberView, partition: TopicPartition, holding: Holding | None) -> None:
        """A member has lost a partition, or what it was about to be assigned: no ``holding``."""
        state, client = self._state, view.member.client
        described_now = view.described_at.get(partition.topic) == state.clock.now
        gone_now = described_now and partition.topic in view.recreated
        given = partition in view.granted | view.granted_before
        if holding is None and not (given or gone_now):
            raise Violation("I12", f"client {client}: {name(partition)} is lost, and was not its")
        view.granted_before -= {partition}
        view.unreported[partition] += 1
        cause = self._evictions.why_lost(client)
        overdue = holding is not None and (
            holding.state_not_stored or self._overdue(view, partition, holding)
        )
        if cause is None and overdue and not state.strict:
            state.counts["lost partitions"] += 1
            state.permit_overdue_duplicates(client, partition)
            return
        if cause is None and self._closes_too_long(view):
            cause = "nothing could be committed within close_timeout"
        former = gone_now if holding is None else holding.former
        if cause is None and former:
            # Nobody else can have anything of it.
            state.counts["lost with their topics"] += 1
            return
        if cause is None:
            raise Violation(
                "undue loss",
                f"client {client} has lost {name(partition)}, and nothing was done to it",
            )
        state.counts["lost partitions"] += 1
        state.permit_duplicates(client, cause)

    def _closes_too_long(self, view: MemberView) -> bool:
        deadline = Deadline.after(view.closing_since, view.member.config.close_timeout)
        return view.closing and self._state.clock.now >= deadline.commits - 0.001

    def _overdue(self, view: MemberView, partition: TopicPartition, holding: Holding) -> bool:
        """Whether a deadline, its own or the group's, has passed for giving the partition back."""
        since_when = [holding.revoking_since, holding.dropped_since]
        if view.eager:
            # It may join again for a change, before which it gives everything up.
            since_when.extend(change for change in view.changes if change >= holding.since)
        begun = min((since for since in since_when if since is not None), default=None)
        if begun is None:
            return False
        config = view.member.config
        slack = 1.1
        if self._state.disturbed(view.member.client, config.rebalance_timeout):
            slack = config.rebalance_timeout / 2 + 1
        elif not (
            view.works_on(partition)
            or self._state.hampered(view.member.client, begun)
            # Nothing can be committed until the leader has assigned: it may be gone.
            or self._state.brokers.group.state is GroupState.COMPLETING
        ):
            return False
        own = begun + (config.revoke_timeout or config.rebalance_timeout)
        since = view.confirmed_at if holding.wanted_since is None else holding.wanted_since
        group = since + config.rebalance_timeout
        now = self._state.clock.now + self._state.client_jumped.get(view.member.client, 0.0)
        deadline = min(own, group)
        # Time enough for a last commit like the slowest, but no more than half of it all.
        slack = max(slack, min(2 * view.slowest_commit, (deadline - begun) / 2) + 0.1)
        return now >= deadline - slack
