"""A group's description, printed by ``asyncrevoke groups --json``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence


class GroupSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One group among all. ``type`` is ``classic``, ``consumer`` (KIP-848) or ``share`` (KIP-932);
    it and ``state`` are empty if the broker does not list them and the group could not be
    described. ``members`` is their number, None if the group could not be described. ``lag`` is
    that of :class:`GroupFacts` or :class:`ShareGroupFacts`."""

    group: str
    type: str = ""
    state: str = ""
    members: int | None = None
    lag: int | None = None


class MemberFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One member.

    ``releasing``: partitions that the group has revoked and this member has not released yet.
    ``waiting_for``: partitions in this member's target assignment that another member still owns.
    ``epoch`` exists under KIP-848 and in share groups, ``target`` under KIP-848 only.
    ``unreadable`` says why the broker's bytes could not be read, if they could not.
    """

    member_id: str
    client_id: str
    host: str
    group_instance_id: str | None = None
    rack: str | None = None
    topics: tuple[str, ...] = ()
    assigned: tuple[TopicPartition, ...] = ()
    releasing: tuple[TopicPartition, ...] = ()
    waiting_for: tuple[TopicPartition, ...] = ()
    epoch: int | None = None
    target: tuple[TopicPartition, ...] | None = None
    unreadable: str | None = None


class PartitionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One partition: ``lag`` is ``end - committed``, less what retention has removed of it; None if
    one of these offsets is not known.

    ``member_id`` is the owner, None if it is not assigned.
    """

    topic: str
    partition: int
    committed: int | None = None
    end: int | None = None
    lag: int | None = None
    member_id: str | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition together."""
        return TopicPartition(self.topic, self.partition)


class UnreadFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A member that has committed nothing for ``seconds``, although records arrived in
    ``partitions``, which it is assigned. ``says`` is the same as a sentence."""

    member_id: str
    partitions: tuple[TopicPartition, ...]
    seconds: float
    says: str


class RebalanceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """``held_up_by``: ids of the members that delay the rebalance. ``known`` is False if brokers do
    not report which members those are. ``says`` is the same as a sentence."""

    in_progress: bool
    known: bool
    held_up_by: tuple[str, ...]
    says: str


class GroupFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One group. ``epoch`` is that of the newest assignment, under KIP-848 only. ``unread`` is None
    if the group was described only once, which does not tell who reads."""

    group: str
    type: str
    state: str
    assignor: str
    coordinator: str
    epoch: int | None
    rebalance: RebalanceFacts
    members: tuple[MemberFacts, ...]
    partitions: tuple[PartitionFacts, ...]
    unread: tuple[UnreadFacts, ...] | None = None

    @property
    def lag(self) -> int | None:
        """The sum over the partitions whose lag is known; None if no lag of any is known."""
        return _sum(self.partitions)


class SharePartitionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of a share group, as its coordinator stores it.

    ``start``: no record before this offset is delivered any more. It is stored later than ``lag``,
    the number of records that are neither acknowledged nor archived. Both are None before the first
    fetch of a member. ``skipped``: how many records to come are not delivered, because ``start`` is
    beyond the end of the log. ``member_ids`` are the members that are assigned the partition.
    """

    topic: str
    partition: int
    start: int | None = None
    lag: int | None = None
    skipped: int = 0
    member_ids: tuple[str, ...] = ()

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition together."""
        return TopicPartition(self.topic, self.partition)


class ShareGroupFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One share group (KIP-932). ``epoch`` is that of the newest assignment."""

    group: str
    type: str
    state: str
    assignor: str
    coordinator: str
    epoch: int
    members: tuple[MemberFacts, ...]
    partitions: tuple[SharePartitionFacts, ...]

    @property
    def lag(self) -> int | None:
        """The sum over the partitions whose lag is known; None if no lag of any is known."""
        return _sum(self.partitions)


def _sum(partitions: Sequence[PartitionFacts] | Sequence[SharePartitionFacts]) -> int | None:
    lags = [partition.lag for partition in partitions if partition.lag is not None]
    return sum(lags) if lags or not partitions else None
