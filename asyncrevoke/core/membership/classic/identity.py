"""What the coordinator knows a classic member by, and the state that the member is in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.core.membership.classic.state_table import (
    CLASSIC_TRANSITIONS,
    ClassicState,
    ClassicTransition,
)
from asyncrevoke.model import GroupMetadata

if TYPE_CHECKING:
    from asyncrevoke.config import ConsumerConfig

_MAY_COMMIT = frozenset((ClassicState.STABLE, ClassicState.REVOKING, ClassicState.AWAIT_JOIN))


class ClassicIdentity:
    """The member id and the generation of one member, and its state."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._group_id = config.group_id or ""
        self._instance_id = config.group_instance_id
        self._state = ClassicState.UNJOINED
        self._member_id = ""
        self._generation = -1
        self._synced_at = float("-inf")
        self._synced_generation = -1
        # The term of the coordinator that gave us our id, until there was an assignment for it.
        self._member_id_unwritten_since: int | None = None

    # --- facts -----------------------------------------------------------------------------------

    @property
    def state(self) -> ClassicState:
        """Where the member is."""
        return self._state

    @property
    def member_id(self) -> str:
        """The id that a coordinator has given to the member; empty without one."""
        return self._member_id

    @property
    def generation(self) -> int:
        """The generation that was joined last, -1 without one."""
        return self._generation

    @property
    def member_identity(self) -> GroupMetadata:
        """What requests of the member carry."""
        return GroupMetadata(self._group_id, self._generation, self._member_id, self._instance_id)

    @property
    def may_commit(self) -> bool:
        """While the coordinator holds a JoinGroup back, it accepts the old generation; between
        join and sync it accepts none."""
        return self._generation >= 0 and self._state in _MAY_COMMIT

    def is_current_membership(self, sent: GroupMetadata, sent_at: float) -> bool:
        """Whether an error for ``sent`` is about the membership as it is now: the same identity,
        and no join or sync outstanding that may just have changed it at the broker. A coordinator
        that has moved may count to the same generation again, so that an error for what was sent
        before the last sync says nothing of the present generation."""
        return (
            sent == self.member_identity
            and self._state in (ClassicState.STABLE, ClassicState.REVOKING)
            and sent_at > self._synced_at
        )

    def is_member_id_unwritten(self, term: int) -> bool:
        """Whether a coordinator gave a static member its id, and the one of this ``term`` may not
        know it."""
        return self._member_id_unwritten_since not in (None, term)

    # --- changes ---------------------------------------------------------------------------------

    def transition(self, expected: ClassicState, transition: ClassicTransition) -> None:
        """Take a transition of the table from the state that the caller expects."""
        if self._state is not expected:
            raise AssertionError(
                f"{transition.name} from {expected}, but the phase is {self._state}"
            )
        self._state = CLASSIC_TRANSITIONS[expected, transition]

    def transition_from_any(self, transition: ClassicTransition) -> None:
        """Take a transition of the table, whatever the state is."""
        self._state = CLASSIC_TRANSITIONS[self._state, transition]

    def set_member_id(self, member_id: str) -> None:
        """The coordinator has given the member an id to join with (KIP-394)."""
        self._member_id = member_id

    def joined(self, member_id: str, generation: int, term: int) -> None:
        """The coordinator of this ``term`` has answered JoinGroup with a generation."""
        if member_id != self._member_id:
            self._member_id_unwritten_since = term
        self._member_id = member_id
        self._generation = generation

    def synced(self, now: float) -> None:
        """The coordinator has answered SyncGroup with an assignment."""
        self._synced_at, self._synced_generation = now, self._generation
        self._member_id_unwritten_since = None

    def return_to_synced_generation(self) -> bool:
        """Use the generation that was assigned last again; False if there is no older one."""
        if not 0 <= self._synced_generation < self._generation:
            return False
        self._generation = self._synced_generation
        return True

    def clear_generation(self) -> None:
        """The member has no generation any more."""
        self._generation = self._synced_generation = -1

    def clear_member_id(self) -> None:
        """The coordinator does not know the id any more: join without one."""
        self._member_id = ""
        self._member_id_unwritten_since = None

    def left(self) -> None:
        """The member has left the group."""
        self.transition_from_any(ClassicTransition.LEFT)
        self._member_id = ""
        self.clear_generation()
