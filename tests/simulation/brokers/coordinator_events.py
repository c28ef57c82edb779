"""What a group coordinator reports to the invariants."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncrevoke.client.model import OffsetAndMetadata, TopicPartition

# The reason for removing a member.
NO_SYNC = "it sent no SyncGroup in time"


class CoordinatorEvents:
    """Events of a group. Each method is called after its event. Subclasses
    override the methods that they need."""

    def commit_accepted(
        self, client: int, partition: TopicPartition, old: int | None, new: OffsetAndMetadata
    ) -> None:
        """An offset was committed."""

    def commit_rejected(self, client: int, partition: TopicPartition) -> None:
        """An offset was rejected: the client may not commit offsets of the topic."""

    def offsets_fetched(self, client: int, partitions: tuple[TopicPartition, ...]) -> None:
        """Offsets were fetched."""

    def member_removed(self, client: int, member_id: str, reason: str) -> None:
        """A timer has removed a member, or has ended the wait for a static member, which stays a
        member."""

    def member_replaced(self, old: int, new: int) -> None:
        """A static member has returned, with the assignment that it had before."""

    def stable(self, generation: int, assignments: dict[int, bytes]) -> None:
        """A generation has its assignments, which are by client."""

    def owned(self, owners: dict[TopicPartition, int]) -> None:
        """The coordinator of a KIP-848 group has changed the owners of partitions."""

    def converted(self, owners: dict[TopicPartition, int], behind: tuple[int, ...]) -> None:
        """The group was converted to the other type. ``owners`` are by client. Members in
        ``behind`` had not reached the group epoch, and are no longer valid."""

    def loaded(self) -> None:
        """A coordinator has loaded the group."""

    def generation_forgotten(self, generation: int, clients: tuple[int, ...]) -> None:
        """A coordinator has loaded the group without the generation that these members joined."""
