"""Oracle over what the coordinator assigns: each partition to one member (I8), and no commit is
accepted of one that another member has (I3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.brokers.converting_group import ConvertingGroup
from simulation.invariants.evictions import LATE_JOIN
from simulation.invariants.oracle_state import MemberView, OracleState, Violation, name

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.subscription import decode_assignment

if TYPE_CHECKING:
    from simulation.invariants.evictions import Evictions
    from simulation.invariants.records.delivery_oracles import DeliveryOracles

_CONVERTED = "the group was converted while partitions were on their way"


class OwnershipOracle:
    """Follows who has what in the generation that is running at the coordinator, and which members
    it has skipped without a response to them."""

    def __init__(
        self, state: OracleState, evictions: Evictions, deliveries: DeliveryOracles
    ) -> None:
        self._state = state
        self._evictions = evictions
        self._deliveries = deliveries
        # By the keys of topics: another topic of the same name is somebody else's.
        self._owners: dict[TopicPartition, int] = {}

    def _key(self, partition: TopicPartition) -> TopicPartition:
        return TopicPartition(self._state.brokers.topics.key(partition.topic), partition.partition)

    def commit_accepted(self, view: MemberView, partition: TopicPartition) -> None:
        """The coordinator has stored an offset."""
        owner = self._owners.get(self._key(partition))
        client = view.member.client
        overlooked = partition in view.held and view.held[partition].overlooked
        # What was sent before a release or a loss may be read after it: the epoch of a member of a
        # converted group is valid until it joins again, that of KIP-848 until it has released all.
        brokers, late = self._state.brokers, False
        if partition not in view.held:
            closed = self._state.network.processing_ghost and brokers.group.protocol == "consumer"
            late = isinstance(brokers.group, ConvertingGroup) or closed
        if owner not in (None, client) and not (overlooked or late):
            raise Violation(
                "I3",
                f"client {client} has committed {name(partition)}, assigned to client {owner}",
            )

    def owned(self, owners: dict[TopicPartition, int]) -> None:
        """A coordinator that assigns has changed who has which partition."""
        self._owners = owners

    def stable(self, assignments: dict[int, bytes]) -> None:
        """A generation has its assignment."""
        self._owners = {}
        for client, data in assignments.items():
            for partition in decode_assignment(data)[0]:
                key = self._key(partition)
                other = self._owners.get(key)
                if other is not None:
                    raise Violation(
                        "I8", f"{name(partition)} is assigned to clients {other} and {client}"
                    )
                self._owners[key] = client
        self._given_away_unknown()

    def _given_away_unknown(self) -> None:
        """A JoinGroup that was processed late said what its member owned before: what it has by
        now may be assigned to others, of which it hears only when it joins again."""
        for client in self._evictions.late_joiners():
            view = self._state.views.get(client)
            if view is None or not view.member.alive:
                continue
            for partition, holding in view.held.items():
                if self._owners.get(self._key(partition), client) != client:
                    holding.overlooked = True
                    self._deliveries.contested(partition, LATE_JOIN)

    def replaced(self, old: int, new: int) -> None:
        """A static member has come back, and has what its former self had."""
        for partition, client in self._owners.items():
            if client == old:
                self._owners[partition] = new

    def converted(self, owners: dict[TopicPartition, int], behind: tuple[int, ...]) -> None:
        """The group has become of another kind: what its coordinator does not know to be somebody's
        it gives away, and members in ``behind`` are not valid ones."""
        state = self._state
        state.counts["conversions"] += 1
        self._owners = owners
        for view in state.views.values():
            client = view.member.client
            view.kept = False
            if client in behind:
                self._evictions.evict(client, _CONVERTED)
                state.permit_duplicates(client, _CONVERTED)
            for partition, holding in view.held.items():
                if owners.get(self._key(partition)) != client and view.member.alive:
                    holding.overlooked = True
                    state.counts["overlooked by a conversion"] += 1
                    state.permit_duplicates(client, _CONVERTED)
                    self._deliveries.contested(partition, _CONVERTED)
