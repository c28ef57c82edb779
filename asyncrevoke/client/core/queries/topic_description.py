"""A topic as a Metadata response describes it."""

from __future__ import annotations

from typing import NamedTuple


class TopicDescription(NamedTuple):
    """``topic_id`` identifies the topic among all that have had its name (KIP-516); None from
    brokers without topic ids, before Kafka 3.1. ``is_internal``: as ``__consumer_offsets``."""

    topic_id: bytes | None
    partitions: frozenset[int]
    is_internal: bool
