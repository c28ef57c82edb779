"""Brokers that people run, as data: where they differ from Apache Kafka 4.x for a consumer.

The ranges and behaviours are those that vendors have published, or that were seen on the server.
Requests without a range are offered in all versions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from asyncrevoke.client.producing.requests import InitProducerIdRequest, ProduceRequest
from asyncrevoke.client.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    FetchRequest,
    FindCoordinatorRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetsForLeaderEpochRequest,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.client.protocol.messages import Request

Ranges: TypeAlias = "Mapping[type[Request], tuple[int, int]]"

NOT_OFFERED: Final = (0, -1)
ALL: Final = frozenset(("none", "gzip", "snappy", "lz4", "zstd"))


@dataclass(frozen=True, kw_only=True)
class PublishedBroker:
    """What the brokers of one kind offer and do.

    ``agents``: how many brokers there are. ``any_agent_leads``: each accepts requests for every
    partition. ``leaders_move_every``: seconds after which the metadata names other leaders.
    ``throttles_every``: of so many Fetches one gets an empty response with ``throttle_time``.
    ``approximate_by``: offsets by which the result of ListOffsets by time is too low.
    """

    name: str
    source: str
    ranges: Ranges
    has_topic_ids: bool = True
    has_leader_epochs: bool = True
    agents: int = 1
    any_agent_leads: bool = False
    leaders_move_every: float = 0.0
    metadata_lists_coordinator: bool = True
    longest_commit_metadata: int = 4096
    keeps_commit_metadata: bool = True
    session_timeouts: tuple[float, float] = (6.0, 1800.0)
    compressions: frozenset[str] = ALL
    offsets_stay_unstable: bool = False
    throttles_every: int = 0
    throttle_time: float = 0.0
    approximate_by: int = 0
    reads_inside_batches: bool = True


_READ: Final = "public documentation and source, 2026-11"
_SEEN: Final = "tried on the server"
_CLASSIC_ONLY: Final[Ranges] = {ConsumerGroupHeartbeatRequest: NOT_OFFERED}

BROKERS: Final = (
    PublishedBroker(
        name="Redpanda",
        source="source of 2024-12 and its changes to 2026-07",
        ranges={
            **_CLASSIC_ONLY,
            ListOffsetsRequest: (0, 4),
            ProduceRequest: (0, 7),
            FindCoordinatorRequest: (0, 3),
            MetadataRequest: (0, 8),
            InitProducerIdRequest: (0, 3),
        },
        has_topic_ids=False,
        agents=3,
    ),
    PublishedBroker(
        name="Redpanda with an open transaction of a dead producer",
        source="its issues about UNSTABLE_OFFSET_COMMIT",
        ranges=_CLASSIC_ONLY,
        has_topic_ids=False,
        offsets_stay_unstable=True,
    ),
    PublishedBroker(
        name="Azure Event Hubs",
        source=_READ,
        ranges={**_CLASSIC_ONLY, MetadataRequest: (0, 9)},
        has_topic_ids=False,
        has_leader_epochs=False,
        session_timeouts=(6.0, 300.0),
        compressions=frozenset(("none", "gzip")),
        throttles_every=3,
        throttle_time=2.0,
    ),
    PublishedBroker(
        name="WarpStream",
        source=_READ,
        ranges={**_CLASSIC_ONLY, OffsetsForLeaderEpochRequest: NOT_OFFERED},
        agents=3,
        any_agent_leads=True,
        leaders_move_every=1.0,
    ),
    PublishedBroker(
        name="Confluent Freight",
        source=_READ,
        ranges={InitProducerIdRequest: NOT_OFFERED},
        agents=3,
    ),
    PublishedBroker(name="MSK Serverless", source=_READ, ranges=_CLASSIC_ONLY, agents=3),
    PublishedBroker(name="Bufstream", source=_READ, ranges=_CLASSIC_ONLY, approximate_by=2),
    PublishedBroker(name="StreamNative Ursa", source=_READ, ranges=_CLASSIC_ONLY),
    PublishedBroker(
        name="Tansu",
        source=f"0.6, {_SEEN}",
        ranges={
            **_CLASSIC_ONLY,
            FetchRequest: (0, 17),
            ProduceRequest: (0, 11),
            MetadataRequest: (0, 12),
            OffsetCommitRequest: (0, 9),
            OffsetFetchRequest: (0, 9),
        },
        keeps_commit_metadata=False,
        reads_inside_batches=False,
    ),
    PublishedBroker(
        name="proxy",
        source="Kroxylicious and Conduktor Gateway: addresses, ids and protocols are rewritten",
        ranges=_CLASSIC_ONLY,
        has_topic_ids=False,
        agents=2,
        leaders_move_every=5.0,
        metadata_lists_coordinator=False,
        longest_commit_metadata=64,
    ),
)
BY_NAME: Final = {broker.name: broker for broker in BROKERS}
