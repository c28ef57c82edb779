"""Which versions of each request are implemented, and what is lost in the lower ones.

A broker says which versions it offers (ApiVersions), and each broker of a cluster may offer others.
The lowest ones here are the highest that a server in use offers: Apache Kafka 2.4, or Redpanda.
``docs/reference/protocol-versions.md`` is made of this table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from asyncrevoke.client.model import Value

if TYPE_CHECKING:
    from collections.abc import Mapping


class Version(NamedTuple):
    """A version of a request. ``lacks``: what is lost with it in comparison with the preferred one,
    as a part of a sentence; empty: nothing."""

    number: int
    lacks: str = ""


class Api(Value, frozen=True):
    """A request. ``purpose``: what is done with it. ``versions`` are those that are implemented,
    the preferred one first. ``without``: what happens, or helps, if a broker shares no version, as
    a sentence without its full stop."""

    key: int
    purpose: str
    versions: tuple[Version, ...]
    without: str
    # The first version that identifies topics by id only.
    by_id_from: int = 2**15
    # Its responses identify topics by id only: Metadata must give the ids.
    needs_topic_ids: bool = False


_NO_TOPIC_IDS: Final = "topic ids"
_NO_TOPIC_IDS_AT_ALL: Final = "topic ids (a topic that was created again is not noticed)"
_NO_EXPECTED_BROKER: Final = "the check whether it is the broker that metadata names (KIP-1242)"
_NO_CLIENT_NAME: Final = "the client's name in the broker's metrics"
_NO_GROUPS: Final = "read its partitions with assign() and without group_id"
_NO_TRANSACTIONS: Final = "use a Producer without transactional_id"
_AT_LEAST_ONCE: Final = 'use processing="at_least_once"'
_SHARE_GROUPS: Final = "share groups"
_NO_SHARE_GROUPS: Final = "share groups need Apache Kafka 4.2 or later"
_OLD_COMMAND: Final = "use a command of that server"

# The first version of Metadata that is used and has topic ids.
METADATA_WITH_TOPIC_IDS: Final = 12

# A version without tagged fields is preferred where it lacks nothing: it is smaller, and
# ``guard.py`` walks it faster.
APIS: Final[Mapping[str, Api]] = {
    "Produce": Api(
        0,
        "results, retry topics, dead letters",
        (
            Version(13),
            Version(8, _NO_TOPIC_IDS),
            Version(7, f"{_NO_TOPIC_IDS}; the broker's text for a rejected batch"),
        ),
        "handlers without publish_to, retry topics and dead letters do without it",
        by_id_from=13,
    ),
    "Fetch": Api(
        1,
        "records",
        (
            Version(16),
            Version(13, "the new leader of a partition that has moved"),
            Version(11, f"{_NO_TOPIC_IDS}; the new leader of a partition that has moved"),
            Version(12, f"{_NO_TOPIC_IDS}; the new leader of a partition that has moved"),
        ),
        "nothing can be read without it",
        by_id_from=13,
    ),
    "ListOffsets": Api(
        2,
        "the first and last offset, offsets by time, lag",
        (Version(5), Version(6), Version(4)),
        "positions must be committed, or sought as numbers, and lag is unknown",
    ),
    "Metadata": Api(
        3,
        "brokers, topics, leaders",
        (
            Version(13),
            Version(12, "a broker's request to bootstrap again"),
            Version(8, f"{_NO_TOPIC_IDS_AT_ALL}; a broker's request to bootstrap again"),
            Version(7, f"{_NO_TOPIC_IDS_AT_ALL}; a broker's request to bootstrap again"),
        ),
        "nothing can be read without it",
    ),
    "OffsetCommit": Api(
        8,
        "commits",
        (
            Version(10),
            Version(9, _NO_TOPIC_IDS),
            Version(7, f"{_NO_TOPIC_IDS}; commits of members of KIP-848 groups"),
        ),
        _NO_GROUPS,
        by_id_from=10,
    ),
    "OffsetFetch": Api(
        9,
        "committed offsets",
        (
            Version(10),
            Version(9, _NO_TOPIC_IDS),
            Version(7, f"{_NO_TOPIC_IDS}; the member epoch of KIP-848"),
            Version(5, f"{_NO_TOPIC_IDS}; waiting for offsets of open transactions"),
        ),
        _NO_GROUPS,
        by_id_from=10,
    ),
    "FindCoordinator": Api(
        10,
        "the coordinator of a group, or of a transactional id",
        (Version(2), Version(3)),
        _NO_GROUPS,
    ),
    "JoinGroup": Api(
        11,
        "classic groups",
        (
            Version(9),
            Version(
                5,
                "the reason of a rebalance in the broker's log; the subscriptions of the others for"
                " a static leader that restarts (KIP-814): until the next rebalance it watches its"
                " own topics alone",
            ),
        ),
        _NO_GROUPS,
    ),
    "Heartbeat": Api(12, "classic groups", (Version(3), Version(4)), _NO_GROUPS),
    "LeaveGroup": Api(
        13,
        "classic groups",
        (Version(5), Version(3, "the reason for leaving in the broker's log")),
        "the group waits for the end of the member's session when it leaves",
    ),
    "SyncGroup": Api(
        14,
        "classic groups",
        (Version(5), Version(3, "the broker's check of the assignor's name")),
        _NO_GROUPS,
    ),
    "DescribeGroups": Api(
        15,
        "`asyncrevoke groups`; the assignor of a group that rejects a member",
        (Version(5), Version(4)),
        _OLD_COMMAND,
    ),
    "ListGroups": Api(
        16,
        "`asyncrevoke groups`",
        (
            Version(5),
            Version(4, "types of groups"),
            Version(3, "types of groups; states come from DescribeGroups"),
        ),
        _OLD_COMMAND,
    ),
    "SaslHandshake": Api(
        17,
        "authentication",
        (Version(1),),
        "use a listener without SASL, or with TLS certificates",
    ),
    # The features of the cluster (KIP-584) are tagged fields, which version 3 has, too. Version 5
    # is asked if the address has offered it before, and the broker there is known.
    "ApiVersions": Api(
        18,
        "the versions that a broker offers",
        (
            Version(5),
            Version(3, _NO_EXPECTED_BROKER),
            Version(2, f"{_NO_EXPECTED_BROKER}; {_NO_CLIENT_NAME}"),
            Version(1, f"{_NO_EXPECTED_BROKER}; {_NO_CLIENT_NAME}"),
            Version(0, f"{_NO_EXPECTED_BROKER}; {_NO_CLIENT_NAME}; its throttle time"),
        ),
        "no connection can be opened",
    ),
    "CreateTopics": Api(
        19,
        "`asyncrevoke topics create`",
        (Version(7), Version(5)),
        _OLD_COMMAND,
    ),
    "DeleteTopics": Api(
        20,
        "`asyncrevoke topics delete`",
        (Version(5), Version(4, "the broker's text for an error")),
        _OLD_COMMAND,
    ),
    "InitProducerId": Api(
        22,
        "results, retry topics, dead letters",
        # Tansu 0.6 offers version 2, and rejects it.
        (Version(3), Version(2)),
        "use `Consumer(idempotent=False)`",
    ),
    "AddPartitionsToTxn": Api(24, "transactions", (Version(3), Version(1)), _NO_TRANSACTIONS),
    "AddOffsetsToTxn": Api(
        25, "transactions with offsets", (Version(3), Version(1)), _AT_LEAST_ONCE
    ),
    "EndTxn": Api(
        26,
        "transactions",
        # Version 5 ends those of transaction.version 2 only, earlier ones all others.
        (Version(5), Version(4), Version(3), Version(1)),
        _NO_TRANSACTIONS,
    ),
    "OffsetsForLeaderEpoch": Api(
        23,
        "whether a log was truncated (KIP-320)",
        (
            Version(3),
            Version(4),
            Version(2, "the right to ask with DESCRIBE on the topic"),
        ),
        "a log that an unclean leader election has truncated is not noticed",
    ),
    "TxnOffsetCommit": Api(
        28,
        "transactions with offsets",
        # Version 5 is for transaction.version 2 only. Lower ones than 3 lack the member (KIP-447).
        (Version(5), Version(4), Version(3)),
        _AT_LEAST_ONCE,
    ),
    "CreateAcls": Api(30, "brokers for tests", (Version(3), Version(1)), _OLD_COMMAND),
    "DescribeConfigs": Api(
        32,
        "`--timestamps original`, limits of topics, `asyncrevoke groups configure`, "
        "`asyncrevoke topics describe`",
        (Version(1),),
        _OLD_COMMAND,
    ),
    "SaslAuthenticate": Api(
        36,
        "authentication",
        (Version(1), Version(2), Version(0, "the lifetime of a session (KIP-368)")),
        "use a listener without SASL, or with TLS certificates",
    ),
    "IncrementalAlterConfigs": Api(
        44, "`asyncrevoke groups configure`", (Version(1), Version(0)), _OLD_COMMAND
    ),
    "CreatePartitions": Api(37, "brokers for tests", (Version(3), Version(1)), _OLD_COMMAND),
    "DeleteGroups": Api(42, "`asyncrevoke groups delete`", (Version(2),), _OLD_COMMAND),
    # An exception to two versions of each request: no release offers a second one of
    # ShareGroupDescribe, whose version 0 was of the early access in Apache Kafka 4.0, nor of the
    # requests that change offsets.
    "ShareGroupDescribe": Api(77, "`asyncrevoke groups`", (Version(1),), _NO_SHARE_GROUPS),
    "DescribeShareGroupOffsets": Api(
        90,
        "`asyncrevoke groups`",
        (Version(1), Version(0, "the lag of share groups")),
        "share groups are shown without lag",
    ),
    "AlterShareGroupOffsets": Api(
        91, "`asyncrevoke groups reset-offsets`", (Version(0),), _NO_SHARE_GROUPS
    ),
    "DeleteShareGroupOffsets": Api(
        92, "`asyncrevoke groups delete-offsets`", (Version(0),), _NO_SHARE_GROUPS
    ),
    "ConsumerGroupHeartbeat": Api(
        68,
        "KIP-848 groups",
        (Version(1), Version(0, "BrokerPattern")),
        'use group_protocol="auto" or "classic"',
        needs_topic_ids=True,
    ),
    "ConsumerGroupDescribe": Api(
        69, "`asyncrevoke groups`", (Version(0),), "KIP-848 groups are shown as classic ones"
    ),
    # Earlier versions of these three are a preview, without renewed locks, of Kafka 4.0 and 4.1.
    "ShareGroupHeartbeat": Api(
        76, _SHARE_GROUPS, (Version(1),), _NO_SHARE_GROUPS, needs_topic_ids=True
    ),
    "ShareFetch": Api(78, _SHARE_GROUPS, (Version(2),), _NO_SHARE_GROUPS),
    "ShareAcknowledge": Api(79, _SHARE_GROUPS, (Version(2),), _NO_SHARE_GROUPS),
}
