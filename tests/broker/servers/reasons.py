"""Why cells are not filled: by server and capabilities, for the clients that are named."""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.servers.outcome import CAPABILITIES, CLIENTS

_OF_PEERS: Final = ("handlers", "retry_topic", "completion_map", "auto")
_WITHOUT_KIP848: Final = 'KIP-848 begins with Apache Kafka 4.0; `"auto"` joins a classic group'


class Reason(NamedTuple):
    """``clients`` do not have ``capabilities`` on ``server``, because of ``why``."""

    server: str
    capabilities: tuple[str, ...]
    clients: tuple[str, ...]
    why: str


REASONS: Final[tuple[Reason, ...]] = (
    Reason(
        "Apache Kafka with ZooKeeper",
        ("kip848",),
        ("asyncrevoke", "confluent-kafka"),
        _WITHOUT_KIP848,
    ),
    Reason(
        "Kroxylicious, Kafka 3.9.1",
        ("kip848",),
        ("asyncrevoke", "confluent-kafka"),
        _WITHOUT_KIP848,
    ),
    Reason(
        "Kroxylicious, Kafka 4.4.0",
        tuple(each for each in CAPABILITIES if each not in (*_OF_PEERS, "kip848")),
        ("aiokafka",),
        "Kroxylicious offers requests of share groups in the versions 1 to 0; aiokafka then opens "
        "no connection",
    ),
    Reason("Tansu", ("kip848",), ("asyncrevoke", "confluent-kafka"), "it has no KIP-848"),
    Reason(
        "Tansu",
        ("restart", "static_member"),
        ("asyncrevoke",),
        "it returns no records from an offset inside a batch, where the first run had committed; "
        "the log names the partition and the offset. confluent-kafka reads one partition after "
        "another here, and commits at the ends of two",
    ),
    Reason(
        "Tansu",
        ("restart", "static_member"),
        ("aiokafka",),
        "not looked into: the first failed in one run of two with an error of the coordinator, and "
        "the second did not end within 60 s",
    ),
    Reason(
        "Tansu",
        ("seek_by_time",),
        ("asyncrevoke", "confluent-kafka"),
        "it looks times up by when it wrote a batch, not by the timestamps of records",
    ),
    Reason(
        "Tansu",
        ("results",),
        ("aiokafka",),
        "it rejects InitProducerId 2 and lower, which it offers",
    ),
    Reason(
        "Tansu",
        ("completion_map",),
        ("asyncrevoke",),
        "it does not store the metadata of commits: all records from the unfinished one on repeat",
    ),
    Reason(
        "librdkafka's mock cluster",
        ("seek_by_time",),
        CLIENTS,
        "it looks up no offsets by time",
    ),
    Reason(
        "librdkafka's mock cluster",
        ("two_members",),
        ("asyncrevoke", "aiokafka"),
        "it rejects the second member's SyncGroup, with INVALID_REQUEST to aiokafka, and to "
        "asyncrevoke with a null assignment, which Kafka's protocol does not permit",
    ),
    Reason(
        "librdkafka's mock cluster",
        ("kip848", "auto"),
        ("asyncrevoke",),
        "it ends at the first ConsumerGroupHeartbeat, which librdkafka composes otherwise; use "
        '`group_protocol="classic"`',
    ),
    Reason(
        "librdkafka's mock cluster",
        ("topics",),
        CLIENTS,
        "it has no CreateTopics: it creates a topic when a client requests its metadata",
    ),
    Reason(
        "librdkafka's mock cluster", ("groups",), CLIENTS, "it has no DescribeGroups and ListGroups"
    ),
)
