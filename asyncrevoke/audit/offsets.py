"""Ranges of offsets, and the committed offsets that an audit compares with the journals."""

from __future__ import annotations

import time
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from asyncrevoke.client.config import IsolationLevel
from asyncrevoke.client.groups.cluster import GroupsClient
from asyncrevoke.client.groups.configs import group_options
from asyncrevoke.client.groups.errors import GroupsError, ShareGroupError
from asyncrevoke.client.groups.observer import committed_offsets
from asyncrevoke.client.groups.share_groups import ended_offsets

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.journal.session_list import SessionList
    from asyncrevoke.journal.topic.offsets_snapshot import OffsetsSnapshot


class Bounds(NamedTuple):
    """The first offset of a partition's log, and its end (the next offset)."""

    lo: int
    hi: int


class Range(NamedTuple):
    """Offsets of a partition, from ``lo`` up to, not including, ``hi``."""

    partition: int
    lo: int
    hi: int


class UnusedHashes(NamedTuple):
    """The partitions whose records may be read without the hashes of keys, and without those of
    whole records."""

    of_keys: Container[int] = ()
    of_records: Container[int] = ()


ALL_USED: Final = UnusedHashes()
"""All hashes are needed."""


class AuditedGroupOffsets(NamedTuple):
    """Committed offsets of one group and topic, by partition. Of a share group, the offsets below
    which it delivers no record again.

    They are those at ``at_us`` (microseconds since the epoch): from the broker when the audit
    began, or from a snapshot of ``asyncrevoke journal collect``. Read the journals later: consumers
    write rows to disk before they send a commit.
    """

    offsets: Mapping[int, int]
    source: Literal["broker", "snapshot"]
    at_us: int
    isolation_level: IsolationLevel | None = None


async def read_group_offsets(config: ConsumerConfig, group: str, topic: str) -> AuditedGroupOffsets:
    """The offsets that the broker has now. Raises GroupsError."""
    level: IsolationLevel | None = None
    async with GroupsClient(config) as brokers:
        try:
            committed = await committed_offsets(brokers, group)
        except ShareGroupError:
            level = await _isolation_level(brokers, group)
            committed = await ended_offsets(brokers, group)
    found = {tp.partition: offset for tp, offset in committed.items() if tp.topic == topic}
    return AuditedGroupOffsets(found, "broker", time.time_ns() // 1000, level)


async def _isolation_level(brokers: GroupsClient, group: str) -> IsolationLevel | None:
    """That of a share group; None if this user may not describe its options."""
    try:
        options = await group_options(brokers, group)
    except GroupsError:
        return None
    values = {option.value for option in options if option.name == "share.isolation.level"}
    return "read_committed" if "read_committed" in values else "read_uncommitted"


def known_offsets(
    broker: AuditedGroupOffsets | None,
    snapshot: OffsetsSnapshot | None,
) -> AuditedGroupOffsets | None:
    """The broker's offsets, or those of the snapshot if the broker has none, as after
    ``offsets.retention.minutes``."""
    if snapshot is None or (broker is not None and broker.offsets):
        return broker
    return AuditedGroupOffsets(snapshot.offsets, "snapshot", snapshot.at_us)


def is_of(snapshot: OffsetsSnapshot | None, listed: SessionList | None) -> bool:
    """Whether this snapshot and this list were made together. Sessions that began later may have
    committed since, so only the offsets of the snapshot can be compared with the list."""
    return snapshot is not None and listed is not None and listed.at_us == snapshot.at_us
