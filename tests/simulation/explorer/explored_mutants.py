"""Cores with one bug each that seeded schedules meet in less than one of 1,000 runs; see
:mod:`simulation.mutants.mutant`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs
from simulation.mutants.mutant import Mutant
from simulation.schedules.schedule import GroupMode

from asyncrevoke.client.core.commit.unverified_commits import UnverifiedCommits
from asyncrevoke.client.core.membership.kip848 import heartbeat
from asyncrevoke.client.core.membership.kip848.member import ConsumerGroupMembership

if TYPE_CHECKING:
    import pytest

    from asyncrevoke.client.core.partition.instance import PartitionInstance
    from asyncrevoke.client.protocol.messages import ConsumerGroupHeartbeatRequest


def one_full_heartbeat_is_enough(patch: pytest.MonkeyPatch) -> None:
    """A heartbeat without a response is followed by one full heartbeat, and not for a while."""
    patch.setattr(heartbeat, "_FULL_AFTER_SILENCE", 0.0)


def commits_are_not_read_back(patch: pytest.MonkeyPatch) -> None:
    """A commit without a response is sent again, and not verified."""

    def add(_self: UnverifiedCommits, instance: PartitionInstance) -> None:
        if not instance.terminal:
            instance.set_committed(None, instance.committed_map)

    patch.setattr(UnverifiedCommits, "add", add)


def the_thread_lists_what_is_assigned(patch: pytest.MonkeyPatch) -> None:
    """The thread's heartbeat acknowledges a revocation that has not drained."""
    repeatable = ConsumerGroupMembership.background_heartbeat

    def talkative(self: ConsumerGroupMembership) -> ConsumerGroupHeartbeatRequest | None:
        request = repeatable(self)
        return request and structs.replace(request, owned=self._target.owned(()))

    patch.setattr(ConsumerGroupMembership, "background_heartbeat", talkative)


MUTANTS = [
    Mutant(
        "one full heartbeat after one without a response",
        one_full_heartbeat_is_enough,
        ("I14", "undue removal"),
        GroupMode.CONSUMER,
    ),
    Mutant(
        "a commit without a response is not verified",
        commits_are_not_read_back,
        ("I5",),
        GroupMode.CONSUMER,
    ),
    Mutant(
        "a thread that acknowledges what still drains",
        the_thread_lists_what_is_assigned,
        ("I10", "I11"),
        GroupMode.CONSUMER,
    ),
]
