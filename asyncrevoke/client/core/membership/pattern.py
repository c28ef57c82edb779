"""The topics that match the regular expression of a subscription."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.config.topics import (
    MAX_TOPIC_BYTES,
    MAX_TOPICS,
    is_legal_topic,
    subscription_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.client.core.io.outbox import Outbox


class PatternSubscription:
    """Matches topics of the cluster, at most as many as a member may subscribe to.

    Whoever creates topics decides how many match. The leader of a group, and brokers, reject a
    larger subscription as a whole. So the first topics by name are subscribed to, and those that
    were subscribed to before stay while they match.
    """

    def __init__(self, outbox: Outbox, group: str | None, pattern: str | re.Pattern[str]) -> None:
        self._outbox = outbox
        self._group = group
        self._match = re.compile(pattern).fullmatch
        self._subscribed: frozenset[str] = frozenset()
        self._is_exceeded = False

    def matching(self, topics: Iterable[str]) -> frozenset[str]:
        """The topics to subscribe to, of all that the cluster has."""
        found = {topic for topic in topics if self._match(topic) and is_legal_topic(topic)}
        chosen = frozenset(found)
        if len(found) > MAX_TOPICS or subscription_bytes(found) > MAX_TOPIC_BYTES:
            chosen = self._first(found)
        self._subscribed = chosen
        self._log(len(found), len(chosen))
        return chosen

    def _first(self, found: set[str]) -> frozenset[str]:
        chosen: list[str] = []
        left = MAX_TOPIC_BYTES
        for topic in (*sorted(found & self._subscribed), *sorted(found - self._subscribed)):
            left -= subscription_bytes([topic])
            if left < 0 or len(chosen) == MAX_TOPICS:
                break
            chosen.append(topic)
        return frozenset(chosen)

    def _log(self, matching: int, subscribed: int) -> None:
        is_exceeded = subscribed < matching
        if is_exceeded and not self._is_exceeded:
            self._outbox.emit(
                log_events.PATTERN_TOO_WIDE,
                group=self._group,
                matching=matching,
                subscribed=subscribed,
            )
        self._is_exceeded = is_exceeded
