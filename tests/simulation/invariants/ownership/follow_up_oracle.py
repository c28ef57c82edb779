"""Oracle over follow-ups, I16: a released partition is no longer reported as owned, and the
group receives that in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.invariants.oracle_state import MemberView, OracleState, Violation
from simulation.invariants.ownership.staging_oracle import StagingOracle

if TYPE_CHECKING:
    from simulation.invariants.evictions import Evictions

    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.client.protocol.messages import JoinGroupRequest
    from asyncrevoke.testing.fake_kafka.group_state import Protocols

FOLLOW_UP_WITHIN = 1.0


class FollowUpOracle:
    """Follows what every member owes its group: a request that lists what is owned without what
    was released. A member that was evicted owes nothing more in time."""

    def __init__(self, state: OracleState, evictions: Evictions) -> None:
        self._state = state
        self._evictions = evictions
        # Released, and not yet missing from a list of what is owned.
        self._owed: dict[int, dict[TopicPartition, None]] = {}
        self._due: dict[int, float] = {}
        self._staging = StagingOracle(state, self._owed)
        self._last_protocols: dict[int, Protocols] = {}

    # --- what is owed, and what settles it -------------------------------------------------------

    def released(self, view: MemberView, partition: TopicPartition) -> None:
        """A partition was given back in good order."""
        if not view.closing and not view.eager and partition not in view.granted:
            self._owed.setdefault(view.member.client, {})[partition] = None

    def joined(
        self, view: MemberView, message: JoinGroupRequest, owned: frozenset[TopicPartition]
    ) -> None:
        """A member sends a JoinGroup, maybe one that it has sent before."""
        client = view.member.client
        again = self._last_protocols.get(client) == message.protocols
        self._last_protocols[client] = message.protocols
        if not again:
            self._staging.joined(view, message)
        owed = self._owed.get(client, {})
        if not again and owned & owed.keys():
            raise Violation(
                "I16",
                f"client {client} lists {sorted(owned & owed.keys())} as owned, "
                "which it has released",
            )
        for partition in list(owed):
            if partition not in owned:
                del owed[partition]

    def acknowledged(self, client: int, owned: frozenset[TopicPartition]) -> None:
        """A member sends a heartbeat that lists what it owns."""
        owed = self._owed.get(client, {})
        if again := owned & owed.keys():
            raise Violation(
                "I16", f"client {client} says that it owns {sorted(again)}, which it has released"
            )
        owed.clear()

    def synced(self, view: MemberView, given: frozenset[TopicPartition]) -> None:
        """A member is about to learn of its assignment."""
        self._staging.synced(view, given)
        owed = self._owed.get(view.member.client, {})
        for partition in given:
            owed.pop(partition, None)

    def parted(self, client: int) -> None:
        """A member says that it leaves, or that it has nothing."""
        self._owed.pop(client, None)

    def deleted(self, topic: str) -> None:
        """A topic is deleted."""
        for owed in self._owed.values():
            for partition in [tp for tp in owed if tp.topic == topic]:
                del owed[partition]

    # --- in time ---------------------------------------------------------------------------------

    def decided(self, view: MemberView, reason: object) -> None:
        """A member has decided to join."""
        self._staging.decided(view, reason)

    def call_ended(self, view: MemberView) -> None:
        """A call into a core has ended."""
        self._staging.call_ended(view)
        client = view.member.client
        if not self._owed.get(client):
            self._due.pop(client, None)
        elif client not in self._due and self._may_follow_up(view):
            due = self._state.clock.now + FOLLOW_UP_WITHIN
            self._due[client] = due
            self._state.clock.at(due + 0.001, lambda: self._follow_up_due(view, due))

    @staticmethod
    def _may_follow_up(view: MemberView) -> bool:
        return (
            view.join is None
            and view.sync is None
            and not view.closing
            and all(holding.revoking_since is None for holding in view.held.values())
        )

    def _follow_up_due(self, view: MemberView, due: float) -> None:
        client = view.member.client
        if self._due.get(client) != due:
            return
        del self._due[client]
        if not self._may_follow_up(view) or not view.member.alive or view.member.frozen:
            return
        owed = self._owed.get(client)
        permitted = self._state.disturbed(client, 10.0) or self._evictions.is_evicted(client)
        if owed and not permitted:
            raise Violation(
                "I16",
                f"client {client} has released {sorted(owed)}, and has not reported it "
                f"within {FOLLOW_UP_WITHIN} s",
            )
