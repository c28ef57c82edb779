"""What is told of a consumer group; ``--json`` prints these as they stand."""

from __future__ import annotations

import msgspec

from asyncrevoke.model import TopicPartition


class GroupSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One group among all: ``type`` is ``classic`` or ``consumer`` (KIP-848), empty if the broker
    is too old to tell, as is ``state``."""

    group: str
    type: str = ""
    state: str = ""


class MemberFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One member.

    ``releasing``: partitions that the group wants back and this member has not given up yet.
    ``waiting_for``: partitions that are meant for this member and that another one still has.
    ``epoch`` and ``target`` exist under KIP-848 only. ``unreadable`` says why the broker's bytes
    could not be read, if they could not.
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
    """One partition: ``lag`` is ``end - committed``, None if one of them is not known.

    ``member_id`` is who has it, None for nobody.
    """

    topic: str
    partition: int
    committed: int | None = None
    end: int | None = None
    lag: int | None = None
    member_id: str | None = None


class Rebalance(msgspec.Struct, frozen=True, kw_only=True):
    """``held_up_by``: ids of the members that the others wait for, as far as a broker tells it;
    ``known`` is False if it does not. ``says`` is that as a sentence."""

    in_progress: bool
    known: bool
    held_up_by: tuple[str, ...]
    says: str


class GroupFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One group. ``epoch`` is that of the newest assignment, under KIP-848 only."""

    group: str
    type: str
    state: str
    assignor: str
    coordinator: str
    epoch: int | None
    rebalance: Rebalance
    members: tuple[MemberFacts, ...]
    partitions: tuple[PartitionFacts, ...]
