"""Cores with one bug each that seeded schedules meet in less than one of 1,000 runs; see
:mod:`simulation.mutants.mutant`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs
from simulation.mutants.mutant import Mutant
from simulation.schedules.schedule import GroupMode

from asyncrevoke.client.core.commit.committer import Committer, InFlightCommit
from asyncrevoke.client.core.commit.unverified_commits import UnverifiedCommits
from asyncrevoke.client.core.membership.kip848 import heartbeat
from asyncrevoke.client.core.membership.kip848.member import ConsumerGroupMembership
from asyncrevoke.client.producing.transactions.state_table import State
from asyncrevoke.client.producing.transactions.transaction_core import TransactionCore
from asyncrevoke.client.protocol.messages import OffsetFetchResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from asyncrevoke.client.core.io.effects import Node
    from asyncrevoke.client.core.io.outbox import Reply
    from asyncrevoke.client.core.partition.instance import PartitionInstance
    from asyncrevoke.client.protocol.messages import CommitEntry, ConsumerGroupHeartbeatRequest


def one_full_heartbeat_is_enough(patch: pytest.MonkeyPatch) -> None:
    """A heartbeat without a response is followed by one full heartbeat, and not for a while."""
    patch.setattr(heartbeat, "_FULL_AFTER_SILENCE", 0.0)


def commits_are_not_read_back(patch: pytest.MonkeyPatch) -> None:
    """A commit without a response is sent again, and not verified."""

    def add(_self: UnverifiedCommits, instance: PartitionInstance) -> None:
        if not instance.terminal:
            instance.set_committed(None, instance.committed_map)

    patch.setattr(UnverifiedCommits, "add", add)


def only_revoked_partitions_are_verified(patch: pytest.MonkeyPatch) -> None:
    """A commit without a response is sent again, and verified only if its partition is being
    revoked already."""
    add = UnverifiedCommits.add

    def hasty(self: UnverifiedCommits, instance: PartitionInstance) -> None:
        if instance.revoking:
            add(self, instance)
        elif not instance.terminal:
            instance.set_committed(None, instance.committed_map)

    patch.setattr(UnverifiedCommits, "add", hasty)


def an_acknowledgement_ends_the_doubt(patch: pytest.MonkeyPatch) -> None:
    """A commit that is sent again and acknowledged is not verified: the first may come later."""
    acknowledge = Committer._acknowledge

    def certain(
        self: Committer,
        now: float,
        sent: InFlightCommit,
        instance: PartitionInstance,
        entry: CommitEntry,
    ) -> None:
        acknowledge(self, now, sent, instance, entry)
        self._unverified.forget(instance)

    patch.setattr(Committer, "_acknowledge", certain)


def offsets_that_went_back_count_as_right(patch: pytest.MonkeyPatch) -> None:
    """What the coordinator holds of a commit that is verified is not compared."""
    received = UnverifiedCommits._offset_fetch_response_received

    def lenient(
        self: UnverifiedCommits,
        now: float,
        node: Node,
        asked: list[PartitionInstance],
        reply: Reply,
    ) -> None:
        if isinstance(reply, OffsetFetchResponse):
            ours = {
                instance.partition: {
                    "offset": instance.committed_offset,
                    "metadata": instance.committed_map,
                }
                for instance in asked
            }
            found = (structs.replace(each, **ours[each.partition]) for each in reply.offsets)
            reply = structs.replace(reply, offsets=tuple(found))
        received(self, now, node, asked, reply)

    patch.setattr(UnverifiedCommits, "_offset_fetch_response_received", lenient)


def the_thread_lists_what_is_assigned(patch: pytest.MonkeyPatch) -> None:
    """The thread's heartbeat acknowledges a revocation that has not drained."""
    repeatable = ConsumerGroupMembership.background_heartbeat

    def talkative(self: ConsumerGroupMembership) -> ConsumerGroupHeartbeatRequest | None:
        request = repeatable(self)
        return request and structs.replace(request, owned=self._target.owned(()))

    patch.setattr(ConsumerGroupMembership, "background_heartbeat", talkative)


def _no_epoch_after(method: str, *states: State) -> Callable[[pytest.MonkeyPatch], None]:
    """A request without a response, in these states of a transaction, may not arrive late."""
    ended = getattr(TransactionCore, method)

    def forget(self: TransactionCore, *arguments: object) -> None:
        before = self._has_late_request
        ended(self, *arguments)
        if self.state in states:
            self._has_late_request = before

    return lambda patch: patch.setattr(TransactionCore, method, forget)


OF_TRANSACTIONS = [
    Mutant(
        "no epoch is begun after an EndTxn without a response",
        _no_epoch_after("_coordinator_failed", State.COMMITTING),
        ("X1",),
    ),
    Mutant(
        "no epoch is begun after a TxnOffsetCommit without a response",
        _no_epoch_after("_group_replied", State.OFFSETS, State.COMMITTING),
        ("X1", "I14"),
    ),
]
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
        "a commit without a response is verified only at a revocation",
        only_revoked_partitions_are_verified,
        ("I5",),
        GroupMode.CONSUMER,
    ),
    Mutant(
        "an acknowledged repetition ends the doubt about a commit",
        an_acknowledgement_ends_the_doubt,
        ("I5",),
        GroupMode.CONSUMER,
    ),
    Mutant(
        "offsets that went back count as right",
        offsets_that_went_back_count_as_right,
        ("I5", "I14"),
        GroupMode.CONSUMER,
    ),
    Mutant(
        "a thread that acknowledges what still drains",
        the_thread_lists_what_is_assigned,
        ("I10", "I11"),
        GroupMode.CONSUMER,
    ),
]
