"""The assignment of a consumer group by topic ids, its partitions by name, and those that the
metadata do not have yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.client import log_events
from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.core.io.effects import Channel
from asyncrevoke.client.core.metadata.topic import topic_id_text
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import ErrorCode, MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.io.outbox import Outbox, Reply
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.protocol.messages import TopicIdPartitions

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


class Resolved(NamedTuple):
    """``usable`` may be started; ``kept`` are these and the live ones that may stay assigned.
    ``missing``: the ids of topics of which the metadata lack a partition, with the names that are
    known. ``internal``: topics of Kafka's own that are assigned
    and not read."""

    kept: frozenset[TopicPartition]
    usable: frozenset[TopicPartition]
    missing: dict[bytes, str | None]
    internal: frozenset[str]


class TargetAssignment:
    """The newest assignment. A topic that was deleted and recreated has another id, so that one is
    not taken for the other."""

    def __init__(self, cluster: ClusterMetadata) -> None:
        self._cluster = cluster
        self._partitions: tuple[TopicIdPartitions, ...] = ()
        # The last known names: metadata that lag behind must not lose a partition.
        self._names: dict[bytes, str] = {}
        self._ids: dict[str, bytes] = {}

    def replace(self, partitions: tuple[TopicIdPartitions, ...]) -> bool:
        """Set the assignment. Returns whether it has changed."""
        changed = sorted(partitions) != sorted(self._partitions)
        self._partitions = partitions
        return changed

    def resolve(self, live: Iterable[TopicPartition], subscribed: Container[str]) -> Resolved:
        """The assignment by the present metadata; ``live`` are the partitions of this member.

        The broker's pattern leaves no internal topic out (KIP-848), as the client's patterns do.
        Partitions of those that are not ``subscribed`` to by name are acknowledged, not read.
        """
        usable: set[TopicPartition] = set()
        assigned: dict[str, set[int]] = {}
        internal: set[str] = set()
        missing: dict[bytes, str | None] = {}
        known = self._cluster.names_by_id()
        for topic_id, numbers in self._partitions:
            name = known.get(topic_id)
            if name is not None and name not in subscribed and self._cluster.is_internal(name):
                internal.add(name)
                continue
            if name is not None:
                self._names[topic_id] = name
                self._ids[name] = topic_id
                there = self._cluster.partition_set(name)
                usable.update(TopicPartition(name, n) for n in frozenset(numbers) & there)
                if not there >= frozenset(numbers):
                    missing[topic_id] = name
            else:
                name = missing[topic_id] = self._names.get(topic_id)
            if name is not None and self._ids.get(name) == topic_id:
                assigned.setdefault(name, set()).update(numbers)
        kept = usable.union(tp for tp in live if tp.partition in assigned.get(tp.topic, ()))
        return Resolved(frozenset(kept), frozenset(usable), missing, frozenset(internal))

    def owned(self, partitions: Iterable[TopicPartition]) -> tuple[TopicIdPartitions, ...]:
        """What to report as owned with ``partitions``: those that were assigned, and all of
        the newest assignment, as unknown topics may be started before the coordinator gets it."""
        topics: dict[bytes, set[int]] = {
            topic_id: set(numbers) for topic_id, numbers in self._partitions
        }
        for name, number in partitions:
            if (topic_id := self._ids.get(name)) is not None:
                topics.setdefault(topic_id, set()).add(number)
        return tuple((topic_id, tuple(sorted(topics[topic_id]))) for topic_id in sorted(topics))
