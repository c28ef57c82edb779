"""The identity of a classic member at its coordinator, and the member's state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.core.membership.classic.state_table import (
    CLASSIC_TRANSITIONS,
    ClassicState,
    ClassicTransition,
)
from asyncrevoke.client.model import GroupMetadata

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig

_MAY_COMMIT = frozenset((ClassicState.STABLE, ClassicState.REVOKING, ClassicState.AWAIT_JOIN))


class ClassicIdentity:
    """The member id, the generation and the state of one member."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._group_id = config.group_id or ""
        self._instance_id = config.group_instance_id
        self.state = ClassicState.UNJOINED
        self.member_id = ""
        self.generation = -1
        self._synced_at = float("-inf")
        self._synced_generation = -1
        # The term of the coordinator that gave the member id, until there is an assignment for it.
        self._member_id_unwritten_since: int | None = None

    @property
    def member_identity(self) -> GroupMetadata:
        """The identity in requests of the member."""
        return GroupMetadata(self._group_id, self.generation, self.member_id, self._instance_id)

    @property
    def may_commit(self) -> bool:
        """While the coordinator delays a JoinGroup, it accepts the old generation; between join and
        sync it accepts none."""
        return self.generation >= 0 and self.state in _MAY_COMMIT

    def is_current_membership(self, sent: GroupMetadata, sent_at: float) -> bool:
        """Whether an error for ``sent`` is about the present membership: the same identity, and no
        join or sync outstanding that may have changed it. As a coordinator that has moved may reuse
        a generation, errors for requests sent before the last sync do not count."""
        return (
            sent == self.member_identity
            and self.state in (ClassicState.STABLE, ClassicState.REVOKING)
            and sent_at > self._synced_at
        )

    def is_member_id_unwritten(self, term: int) -> bool:
        """Whether a static member has its id from a coordinator of another term, which may not have
        written it."""
        return self._member_id_unwritten_since not in (None, term)

    def transition(self, expected: ClassicState, transition: ClassicTransition) -> None:
        """Take a transition of the table from the state that the caller expects."""
        if self.state is not expected:
            raise AssertionError(
                f"{transition.name} from {expected}, but the phase is {self.state}"
            )
        self.state = CLASSIC_TRANSITIONS[expected, transition]

    def transition_from_any(self, transition: ClassicTransition) -> None:
        """Take a transition of the table, whatever the state is."""
        self.state = CLASSIC_TRANSITIONS[self.state, transition]

    def set_member_id(self, member_id: str) -> None:
        """The coordinator has given the member an id to join with (KIP-394)."""
        self.member_id = member_id

    def joined(self, member_id: str, generation: int, term: int) -> None:
        """The coordinator of this ``term`` has responded to JoinGroup with a generation."""
        if member_id != self.member_id:
            self._member_id_unwritten_since = term
        self.member_id = member_id
        self.generation = generation

    def synced(self, now: float) -> None:
        """The coordinator has responded to SyncGroup with an assignment."""
        self._synced_at, self._synced_generation = now, self.generation
        self._member_id_unwritten_since = None

    def return_to_synced_generation(self) -> bool:
        """Use the last assigned generation again; False if there is no older one."""
        if not 0 <= self._synced_generation < self.generation:
            return False
        self.generation = self._synced_generation
        return True

    def clear_generation(self) -> None:
        """The member has no generation any more."""
        self.generation = self._synced_generation = -1

    def clear_member_id(self) -> None:
        """The coordinator does not know the id any more: join without one."""
        self.member_id = ""
        self._member_id_unwritten_since = None

    def left(self) -> None:
        """The member has left the group."""
        self.transition_from_any(ClassicTransition.LEFT)
        self.member_id = ""
        self.clear_generation()
