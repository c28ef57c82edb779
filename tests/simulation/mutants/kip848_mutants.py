"""Cores with one bug each in a consumer group (KIP-848); see :mod:`.mutant`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs
from simulation.mutants.mutant import Mutant
from simulation.mutants.mutant_schedules import (
    many_lost_responses,
    slow_commits,
)
from simulation.schedules.schedule import (
    Disturbance,
    GroupMode,
)

from asyncrevoke.client.core.commit.error_table import COMMIT_ERRORS, CommitErrorAction
from asyncrevoke.client.core.membership.kip848.heartbeat import ConsumerGroupHeartbeat
from asyncrevoke.client.core.membership.kip848.member import ConsumerGroupMembership
from asyncrevoke.client.core.membership.kip848.state_table import MemberState
from asyncrevoke.client.core.membership.kip848.target_assignment import TargetAssignment
from asyncrevoke.client.core.partition.revocation import Revocation
from asyncrevoke.client.protocol.messages import ErrorCode

if TYPE_CHECKING:
    import pytest

    from asyncrevoke.client.model import GroupMetadata, TopicPartition
    from asyncrevoke.client.protocol.messages import (
        ConsumerGroupHeartbeatRequest,
        TopicIdPartitions,
    )


def acknowledges_before_the_barrier(patch: pytest.MonkeyPatch) -> None:
    owned = TargetAssignment.owned

    def without_what_drains(
        self: TargetAssignment, partitions: frozenset[TopicPartition]
    ) -> tuple[TopicIdPartitions, ...]:
        return owned(self, partitions & self.resolve(partitions, ()).kept)

    def at_barrier(_self: Revocation) -> bool:
        return True

    patch.setattr(TargetAssignment, "owned", without_what_drains)
    patch.setattr(Revocation, "at_barrier", property(at_barrier))


def says_what_it_owns_while_it_drains(patch: pytest.MonkeyPatch) -> None:
    compose = ConsumerGroupMembership.compose_heartbeat

    def talkative(self: ConsumerGroupMembership, full: bool) -> ConsumerGroupHeartbeatRequest:
        request = compose(self, full)
        if self.state is MemberState.RECONCILING:
            owned = self._target.owned(self._assignment.partitions())
            return structs.replace(request, owned=owned)
        return request

    patch.setattr(ConsumerGroupMembership, "compose_heartbeat", talkative)


def never_acknowledges(patch: pytest.MonkeyPatch) -> None:
    def barrier(_self: ConsumerGroupMembership, _now: float) -> None:
        return

    patch.setattr(ConsumerGroupMembership, "barrier", barrier)


def forgets_that_a_response_was_lost(patch: pytest.MonkeyPatch) -> None:
    def no_response(self: ConsumerGroupHeartbeat, now: float, why: str) -> None:
        self._coordinator.no_response(now, why, self._asked)
        self._coordinator.call_when_known("heartbeat", self.soon, now)

    patch.setattr(ConsumerGroupHeartbeat, "no_response", no_response)


def stale_epochs_count(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(COMMIT_ERRORS, ErrorCode.stale_member_epoch, CommitErrorAction.MEMBERSHIP)

    def is_current(_self: ConsumerGroupMembership, _sent: GroupMetadata, _sent_at: float) -> bool:
        return True

    patch.setattr(ConsumerGroupMembership, "is_current_membership", is_current)


MUTANTS = [
    Mutant(
        "an acknowledgement before the barrier",
        acknowledges_before_the_barrier,
        ("I10",),
        GroupMode.CONSUMER,
    ),
    Mutant(
        "a member that says what it owns while it drains",
        says_what_it_owns_while_it_drains,
        ("I10",),
        GroupMode.CONSUMER,
    ),
    Mutant(
        "a release that is never acknowledged",
        never_acknowledges,
        ("I16", "undue removal"),
        GroupMode.CONSUMER,
    ),
    Mutant(
        "a heartbeat without a response that is not followed by a full one",
        forgets_that_a_response_was_lost,
        ("undue loss", "undue removal", "I14"),
        GroupMode.CONSUMER,
        Disturbance.LOSS,
        many_lost_responses,
    ),
    Mutant(
        "a stale epoch that counts",
        stale_epochs_count,
        ("undue loss",),
        GroupMode.CONSUMER,
        tweak=slow_commits,
    ),
]
