"""What the consumer reads, and by which membership: of a group of either protocol, or none."""

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
from asyncrevoke.client.core.membership.kip848.member import ConsumerGroupMembership
from asyncrevoke.client.model import BrokerPattern, TopicPartition, Value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.membership.classic.member import ClassicMembership
    from asyncrevoke.client.core.membership.manual import ManualMembership
    from asyncrevoke.client.core.membership.reactions import MembershipReactions
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.core.partition.assignment import Assignment

    Membership = ConsumerGroupMembership | ClassicMembership | ManualMembership


class _Beginning(Value, frozen=True):
    """A topic when its subscription began: the number of its partitions, and its id if brokers send
    ids."""

    partitions: int
    topic_id: bytes | None


_ABSENT = _Beginning(0, None)


class AddedPartitions:
    """Remembers how many partitions each subscribed topic had: which were created since.

    Records of these were all written while the group consumed the topic, so ``auto_offset_reset``
    does not skip them (``docs/internals/decisions/consumer.md``). Only what a metadata response has
    said counts: a topic of which none has come yet, or that was rejected, has no added partitions.
    """

    def __init__(self, cluster: ClusterMetadata) -> None:
        self._cluster = cluster
        self._beginnings: dict[str, _Beginning] = {}
        # Subscribed topics of which no response has come yet.
        self._unknown: dict[str, None] = {}
        self._awaits_listing = False

    def __contains__(self, partition: TopicPartition) -> bool:
        beginning = self._beginnings.get(partition.topic)
        return beginning is not None and partition.partition >= beginning.partitions

    def subscribe(self, topics: Iterable[str]) -> None:
        """These topics are subscribed to by their names from now on; those that were before keep
        their beginning."""
        before, self._beginnings = self._beginnings, {}
        self._awaits_listing = False
        self._unknown = {}
        for topic in topics:
            if topic in before:
                self._beginnings[topic] = before[topic]
            else:
                self._unknown[topic] = None

    def subscribe_pattern(self) -> None:
        """Topics are subscribed to by a pattern from now on: those that match in the next response
        that lists all topics, and later ones."""
        self._beginnings = {}
        self._unknown = {}
        self._awaits_listing = True

    def matched(self, topics: frozenset[str]) -> None:
        """These topics match the pattern now."""
        if self._cluster.named_topics is not None:
            return
        for topic in self._beginnings.keys() - topics:
            del self._beginnings[topic]
        for topic in topics - self._beginnings.keys():
            self._beginnings[topic] = self._present(topic) if self._awaits_listing else _ABSENT
        self._awaits_listing = False

    def metadata_received(self) -> None:
        """A metadata response has come: the beginnings of more topics may be known."""
        if not self._unknown:
            return
        missing = self._cluster.missing_topics()
        for topic in list(self._unknown):
            if self._cluster.partitions(topic) is not None:
                self._beginnings[topic] = self._present(topic)
                del self._unknown[topic]
            elif topic in missing:
                self._beginnings[topic] = _ABSENT
                del self._unknown[topic]

    def topics_changed(self) -> None:
        """Topics or partitions were created or deleted."""
        for topic, beginning in self._beginnings.items():
            topic_id = self._cluster.topic_id(topic)
            is_deleted = self._cluster.partitions(topic) is None
            is_another = None not in (topic_id, beginning.topic_id) and (
                topic_id != beginning.topic_id
            )
            if is_deleted or is_another:
                self._beginnings[topic] = _ABSENT

    def _present(self, topic: str) -> _Beginning:
        numbers = self._cluster.partitions(topic) or ()
        return _Beginning(max(numbers, default=-1) + 1, self._cluster.topic_id(topic))


class _Choice(Value, frozen=True):
    """What to read: the topics or the pattern of the subscription, or these partitions."""

    partitions: tuple[TopicPartition, ...] | None = None


class SubscriptionState:
    """Topics, a pattern, or the user's partitions. What is chosen while the consumer unsubscribes
    begins after that (KIP-70). ``membership`` assigns the partitions now."""

    def __init__(
        self,
        outbox: Outbox,
        cluster: ClusterMetadata,
        assignment: Assignment,
        manual: ManualMembership,
        classic: ClassicMembership | None,
        kip848: ConsumerGroupMembership | None,
        reactions: MembershipReactions,
    ) -> None:
        self._outbox = outbox
        self._cluster = cluster
        self._assignment = assignment
        self._manual = manual
        self._classic = classic
        # For subscriptions; assign() uses the manual one.
        self._group_membership: Membership = kip848 or classic or manual
        self.membership: Membership = self._group_membership
        self._reactions = reactions
        self._pattern: PatternSubscription | None = None
        self._broker_pattern: str | None = None
        self._topics: frozenset[str] = frozenset()
        self._group_topics: frozenset[str] = frozenset()
        self._next: _Choice | None = None
        self.added_partitions = AddedPartitions(cluster)
        self.started = False

    def start(self, now: float) -> None:
        """Begin what was chosen, now and later."""
        self.started = True
        self._want_topics(now)
        self._update_membership(now)

    def subscribe(
        self,
        now: float,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | BrokerPattern | None = None,
    ) -> None:
        """Replace the subscription; the assignment changes with the next rebalance (KIP-70)."""
        self._broker_pattern = pattern.regex if isinstance(pattern, BrokerPattern) else None
        self._pattern = (
            None
            if pattern is None or isinstance(pattern, BrokerPattern)
            else PatternSubscription(self._outbox, pattern)
        )
        self._topics = frozenset(topics)
        if self._pattern is not None:
            self.added_partitions.subscribe_pattern()
        else:
            self.added_partitions.subscribe(self._topics)
        if self.started:
            self._begin(now, _Choice())
        else:
            self.membership = self._group_membership

    def assign(self, now: float, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without the group's help."""
        wanted = [TopicPartition(*tp) for tp in partitions]
        self._topics = frozenset(tp.topic for tp in wanted)
        self._pattern = self._broker_pattern = None
        self.added_partitions.subscribe(())
        self._begin(now, _Choice(tuple(wanted)))

    def forget_next(self) -> None:
        """Drop what was chosen while the consumer unsubscribes: it unsubscribes again."""
        self._next = None

    def left(self, now: float, *, closing: bool) -> None:
        """The group was left: nothing is subscribed to, unless something was chosen meanwhile.

        A consumer that is closing keeps its subscription, which the last callbacks may ask for.
        """
        if self._next is None and not closing:
            self._topics, self._pattern, self._broker_pattern = frozenset(), None, None
            self.added_partitions.subscribe(())
        self._group_topics = frozenset()
        if closing:
            self._next = None
        else:
            self.membership.subscribe(now, frozenset())

    def apply_next(self, now: float) -> None:
        """Begin what was chosen while the group was being left."""
        choice, self._next = self._next, None
        if choice is not None:
            self._want_topics(now)
            self._apply(now, choice)

    def subscription(self) -> frozenset[str]:
        """The subscribed topics: for a pattern those that match now, for a broker's pattern those
        of the assigned partitions."""
        if self._broker_pattern is not None:
            return frozenset(tp.topic for tp in self._assignment.partitions())
        return self._effective_topics()

    def fall_back(self, now: float, why: str) -> None:
        """The brokers do not offer KIP-848 to this group: use the classic protocol."""
        self._outbox.emit(log_events.CLASSIC_PROTOCOL, reason=why)
        self._group_membership = self._classic or self._manual
        self._subscribe(now)

    def group_topics_known(self, now: float, topics: frozenset[str]) -> None:
        """This member leads, and the members of the group subscribe to these."""
        self._group_topics = topics
        self._want_topics(now)

    def metadata_received(self) -> None:
        """A metadata response has come."""
        if self._pattern is None:
            self.added_partitions.metadata_received()
        else:
            self.added_partitions.matched(self._effective_topics())

    def cluster_changed(self, now: float) -> None:
        """Other topics may match the pattern."""
        if self._pattern is not None:
            self._update_membership(now)

    def _begin(self, now: float, choice: _Choice) -> None:
        self._want_topics(now)
        if self._reactions.is_leaving:
            self._next = choice
        else:
            self._apply(now, choice)

    def _apply(self, now: float, choice: _Choice) -> None:
        if choice.partitions is None:
            self._subscribe(now)
        else:
            self.membership = self._manual
            self._manual.assign(now, list(choice.partitions))

    def _subscribe(self, now: float) -> None:
        self.membership = self._group_membership
        self._update_membership(now)

    def _update_membership(self, now: float) -> None:
        membership = self.membership
        if self._broker_pattern is not None and isinstance(membership, ConsumerGroupMembership):
            membership.subscribe(now, frozenset(), self._broker_pattern)
        else:
            membership.subscribe(now, self._effective_topics())

    def _effective_topics(self) -> frozenset[str]:
        if self._pattern is None:
            return self._topics
        return self._pattern.matching(self._cluster.topics())

    def _want_topics(self, now: float) -> None:
        by_pattern = self._pattern is not None or self._broker_pattern is not None
        of_others = self._group_topics - self._topics
        self._cluster.want(now, None if by_pattern else self._topics | of_others, of_others)


class PatternSubscription:
    """Matches topics of the cluster, at most as many as a member may subscribe to.

    Whoever creates topics decides how many match. The leader of a group, and brokers, reject a
    larger subscription as a whole. So the first topics by name are subscribed to, and those that
    were subscribed to before stay while they match.
    """

    def __init__(self, outbox: Outbox, pattern: str | re.Pattern[str]) -> None:
        self._outbox = outbox
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
                matching=matching,
                subscribed=subscribed,
            )
        self._is_exceeded = is_exceeded
