"""Oracle over staged releases, a part of I16: drained partitions are released in time, not too
often, and never at the cost of a partition that was kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.invariants.oracle_state import MemberView, OracleState, Violation

from asyncrevoke.client.protocol.subscription import decode_subscription

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.client.protocol.messages import JoinGroupRequest

STAGED = "some partitions were released"
LEAST_INTERVAL = 1.0
_SLACK = 0.05
_ROUNDING = 1e-6


class StagingOracle:
    """Follows the joins of every member. ``owed``, by client: what was released, and is still
    listed as owned in the client's last JoinGroup."""

    def __init__(
        self, state: OracleState, owed: Mapping[int, Mapping[TopicPartition, None]]
    ) -> None:
        self._state = state
        self._owed = owed
        self._joined: dict[int, float] = {}
        self._took: dict[int, float] = {}
        self._staged: set[int] = set()
        self._due: dict[int, float] = {}
        self._topics: set[tuple[str, ...]] = set()

    def joined(self, view: MemberView, message: JoinGroupRequest) -> None:
        """A member sends a JoinGroup that it has not sent before."""
        client = view.member.client
        topics = decode_subscription(message.protocols[0][1]).topics
        if topics:
            self._topics.add(topics)
        if message.reason == STAGED:
            self._state.counts["staged joins"] += 1
            self._staged.add(client)
        else:
            self._staged.discard(client)

    def decided(self, view: MemberView, reason: object) -> None:
        """A member has decided to join, which an unknown coordinator may put off.

        By its own clock, which may have jumped.
        """
        client, now = view.member.client, view.member.now
        if reason == STAGED:
            since, least = now - self._joined[client], self._interval(client)
            if since < least - _ROUNDING:
                raise Violation(
                    "I16",
                    f"client {client} joins by itself again after {since:.3f} s, not {least:.3f}",
                )
        self._joined[client] = now
        self._due.pop(client, None)

    def synced(self, view: MemberView, given: frozenset[TopicPartition]) -> None:
        """A member is about to learn of its assignment."""
        client = view.member.client
        self._took[client] = view.member.now - self._joined[client]
        # Who does not want the same topics as the others may have to give more than its share.
        if client not in self._staged or view.closing or len(self._topics) > 1:
            return
        kept = {tp for tp, holding in view.held.items() if holding.revoking_since is None}
        back = {tp for tp, holding in view.held.items() if holding.revoking_since is not None}
        if kept - given and back & given:
            raise Violation(
                "I16",
                f"a staged join of client {client} takes {sorted(kept - given)} from it, "
                f"and gives {sorted(back & given)} back",
            )

    def call_ended(self, view: MemberView) -> None:
        """A call into a core has ended."""
        client = view.member.client
        if not self._owed.get(client) or not self._may_stage(view):
            self._due.pop(client, None)
        elif client not in self._due:
            due = self._state.clock.now + self._interval(client) + _SLACK
            self._due[client] = due
            self._state.clock.at(due, lambda: self._overdue(view, due))

    def _interval(self, client: int) -> float:
        return max(LEAST_INTERVAL, 2 * self._took.get(client, 0.0))

    def _disturbed(self, client: int) -> bool:
        return bool(self._state.disturbed(client, 10.0))

    @staticmethod
    def _may_stage(view: MemberView) -> bool:
        if view.eager or view.member.config.group_protocol != "classic":
            return False
        return view.join is None and view.sync is None and not view.closing

    def _overdue(self, view: MemberView, due: float) -> None:
        client = view.member.client
        if self._due.get(client) != due or not view.member.alive or self._disturbed(client):
            return
        raise Violation(
            "I16",
            f"client {client} has released {sorted(self._owed[client])}, and waits for its "
            f"other partitions to send its rejoin",
        )
