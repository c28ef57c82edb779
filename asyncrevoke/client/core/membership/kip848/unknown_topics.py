"""Assigned partitions of a KIP-848 member that the metadata do not have yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.core.io.effects import Channel
from asyncrevoke.client.core.metadata.topic import topic_id_text
from asyncrevoke.client.protocol.messages import ErrorCode, MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.io.outbox import Outbox, Reply
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata

_TIMER = "unknown topics"
# Between metadata requests.
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
# Seconds without a topic's metadata until a warning names it.
_WARNING_AFTER = 10.0
_MOST_NAMED = 10
# In one request.
_MOST_ASKED = 1_000


class UnknownTopics:
    """Requests the metadata of unknown assigned partitions, less and less often, also by topic id.

    Brokers leave out topics that the client may not describe when it asks for all; if it asks by
    id, they say so. Such topics are named in the log at once, and others if metadata lack them for
    ten seconds.
    """

    def __init__(self, outbox: Outbox, cluster: ClusterMetadata, config: ConsumerConfig) -> None:
        self._outbox = outbox
        self._cluster = cluster
        self._config = config
        self._asked_by_id = False
        # Topics that this client may not describe.
        self._refused: frozenset[bytes] = frozenset()
        self._pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        self.are_assigned = False
        self._topics: Mapping[bytes, str | None] = {}
        # When the first metadata without a topic came.
        self._missing_since: dict[bytes, float] = {}
        self._named: set[bytes] = set()

    def note(self, missing: Mapping[bytes, str | None]) -> None:
        """The ids of topics with an assigned partition that the metadata lack, with their names
        where these are known."""
        self.are_assigned = bool(missing)
        self._topics = missing

    def expect(self) -> None:
        """Partitions were deleted that may stay assigned."""
        self.are_assigned = True

    def assignment_changed(self, now: float) -> None:
        """The assignment has changed: ask at once."""
        self._pause.succeeded()
        self.ask(now)

    def ask(self, now: float) -> None:
        """Request metadata if a partition is unknown."""
        if self.are_assigned:
            self._cluster.refresh(now, "partitions of unknown topics are assigned")
            self._ask_by_id()

    def _ask_by_id(self) -> None:
        if self._asked_by_id or not self._topics:
            return
        self._asked_by_id = True
        self._outbox.send(
            MetadataRequest(topics=(), topic_ids=tuple(self._topics)[:_MOST_ASKED]),
            self._cluster.brokers.any_node(),
            Channel.METADATA,
            self._config.request_timeout,
            self._described,
        )

    def _described(self, now: float, reply: Reply) -> None:
        self._asked_by_id = False
        # Otherwise the response to the request for all topics decides.
        if isinstance(reply, MetadataResponse) and reply.error is ErrorCode.none:
            refused = ErrorCode.topic_authorization_failed
            self._refused = frozenset(t.topic_id for t in reply.topics if t.error is refused)
            self._cluster.learn_topics(now, [topic for topic in reply.topics if topic.name])
            self._warn(now)

    def ask_later(self, now: float) -> None:
        """Metadata came. If they lack it too, ask later."""
        self._warn(now)
        if self.are_assigned and not self._outbox.has_timer(_TIMER):
            self._outbox.set_timer(_TIMER, now + self._pause.failed(), self.ask)

    def _warn(self, now: float) -> None:
        self._missing_since = {topic: self._missing_since.get(topic, now) for topic in self._topics}
        self._named &= self._topics.keys()
        late = [
            topic
            for topic, at in self._missing_since.items()
            if topic in self._refused or now - at >= _WARNING_AFTER
        ]
        if self._named.issuperset(late):
            return
        self._named.update(late)
        shown = sorted(self._topics[topic] or topic_id_text(topic) for topic in late)
        self._outbox.emit(
            log_events.ASSIGNED_TOPICS_UNKNOWN,
            reason="not authorized to describe them"
            if self._refused.issuperset(late)
            else "the brokers do not describe them",
            count=len(shown),
            topics=shown[:_MOST_NAMED],
        )
