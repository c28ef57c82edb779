"""Cores with one bug each in what they make of rejected commits; see :mod:`.mutant`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from simulation.members.consumer_style import ConsumerStyle, WorkTime
from simulation.mutants.mutant import Mutant
from simulation.schedules.schedule import (
    Disturbance,
    GroupMode,
    Incident,
    IncidentKind,
    MemberPlan,
    Schedule,
)

from asyncrevoke.client.core.commit.committer import Committer
from asyncrevoke.client.core.commit.error_table import COMMIT_ERRORS, CommitErrorAction
from asyncrevoke.client.core.commit.rejected_commits import RejectedCommits
from asyncrevoke.client.core.commit.user_commits import CommitWaiters
from asyncrevoke.client.protocol.messages import ErrorCode

if TYPE_CHECKING:
    import pytest

    from asyncrevoke.client.core.partition.instance import PartitionInstance


def rejections_amid_joins(schedule: Schedule) -> Schedule:
    """Commits are rejected while members join, and asked for all the time."""
    members = tuple(
        MemberPlan(0.1 * n, ConsumerStyle.ACK, WorkTime(0.05, 0.2, 0.1)) for n in range(2)
    )
    incidents = (
        Incident(2.0, IncidentKind.REJECT_COMMITS, schedule.seed, 4.0),
        *(Incident(1.5 + 0.2 * n, IncidentKind.COMMIT, n) for n in range(30)),
        Incident(3.0, IncidentKind.JOIN, 0),
        Incident(4.0, IncidentKind.JOIN, 1),
    )
    return dataclasses.replace(
        schedule,
        members=members,
        incidents=tuple(sorted(incidents, key=lambda incident: incident.at)),
        topics=(4,),
        duration=9.0,
        produce_every=0.1,
        static=False,
        loss=0.0,
    )


def rejected_counts_as_stored(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(COMMIT_ERRORS, ErrorCode.topic_authorization_failed, CommitErrorAction.OK)


def rejected_is_never_tried_again(patch: pytest.MonkeyPatch) -> None:
    def has_to_wait(self: RejectedCommits, _now: float, instance: PartitionInstance) -> bool:
        return instance in self

    patch.setattr(RejectedCommits, "has_to_wait", has_to_wait)
    patch.setattr(RejectedCommits, "end_wait", has_to_wait)


def any_response_satisfies_commit(patch: pytest.MonkeyPatch) -> None:
    def is_satisfied(_self: Committer, _instance: PartitionInstance, _number: int) -> bool:
        return True

    def reject(
        _self: CommitWaiters, _instance: PartitionInstance, _number: int, _error: Exception
    ) -> None: ...

    patch.setattr(Committer, "is_satisfied", is_satisfied)
    patch.setattr(CommitWaiters, "reject", reject)


def nobody_hears_of_a_rejection(patch: pytest.MonkeyPatch) -> None:
    def reject(
        self: CommitWaiters, instance: PartitionInstance, _number: int, _error: Exception
    ) -> None:
        self.ended(instance, acknowledged=True)

    patch.setattr(CommitWaiters, "reject", reject)


MUTANTS = [
    Mutant(
        "a rejected commit counts as stored",
        rejected_counts_as_stored,
        ("acknowledged",),
        disturbance=Disturbance.FAULTS,
        tweak=rejections_amid_joins,
    ),
    Mutant(
        "a rejected commit is never tried again",
        rejected_is_never_tried_again,
        ("I14", "acknowledged"),
        disturbance=Disturbance.FAULTS,
        tweak=rejections_amid_joins,
    ),
    Mutant(
        "any response to an OffsetCommit ends commit()",
        any_response_satisfies_commit,
        ("acknowledged",),
        disturbance=Disturbance.FAULTS,
        tweak=rejections_amid_joins,
    ),
    Mutant(
        "commit() succeeds when it is rejected",
        nobody_hears_of_a_rejection,
        ("acknowledged",),
        GroupMode.CONSUMER,
        Disturbance.FAULTS,
        tweak=rejections_amid_joins,
    ),
]
