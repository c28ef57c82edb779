"""Brokers, topics, leaders and their epochs, from Metadata responses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.core.io.effects import Channel, Failed, ResetConnection
from asyncrevoke.client.core.io.fatal_error import FATAL_FAILURES, fatal_error
from asyncrevoke.client.core.io.wait_log import WHAT_TO_CHECK, WaitLog
from asyncrevoke.client.core.metadata.brokers import KnownBrokers
from asyncrevoke.client.core.metadata.missing_topics import MissingTopics
from asyncrevoke.client.core.metadata.topic import NO_ID, KnownTopic, read_topics
from asyncrevoke.client.errors import BrokerError, TopicAuthorizationError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import ErrorCode, MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.io.effects import Node
    from asyncrevoke.client.core.io.outbox import Outbox, Reply
    from asyncrevoke.client.core.metadata.missing_topics import OutputTopics
    from asyncrevoke.client.core.metadata.reactions import MetadataReactions
    from asyncrevoke.client.core.metadata.topic import TopicPartitions
    from asyncrevoke.client.protocol.messages import BrokerMetadata, TopicMetadata

_TIMER = "metadata"
_FIRST_BACKOFF = 0.1
# Nothing flows before an attempt finds the cluster again.
_LONGEST_BACKOFF = 2.0
# Somebody has to grant or correct something first.
_SLOW = 10.0
# A topic that is not there yet may be created at any moment, and somebody waits for it.
_LONGEST_TOPIC_BACKOFF = 2.0
# Several parts notice a moved leader at the same time, and again until brokers name the new one.
_REJECTIONS = (ErrorCode.topic_authorization_failed, ErrorCode.invalid_topic_exception)
_SPACING = 0.1
# While a broker that leads a partition does not respond: its leader may move at any moment.
_LOOK_AGAIN = 1.0
# Java's default of metadata.recovery.rebootstrap.trigger.ms (KIP-1102), in seconds.
_REBOOTSTRAP_AFTER = 300.0


class ClusterMetadata:
    """Refreshes the metadata of the wanted topics, and chooses the brokers of requests."""

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        bootstrap: Sequence[Node],
        output_topics: OutputTopics,
        reactions: MetadataReactions,
    ) -> None:
        self._outbox = outbox
        self._config = config
        self.brokers = KnownBrokers(bootstrap)
        self._log = WaitLog(outbox)
        self._missing = MissingTopics(outbox.emit, bootstrap[0])
        self._missing_of_others = MissingTopics(outbox.emit, None)
        self._reactions = reactions
        self.cluster_id: str | None = None
        self._wanted: frozenset[str] | None = frozenset()
        # Of these, what only other members of the group have subscribed to.
        self._of_others: frozenset[str] = frozenset()
        self._topics: dict[str, KnownTopic] = {}
        self._output_topics = output_topics
        self._reported_errors: dict[str, ErrorCode] = {}
        self._in_flight = False
        # The number of requests sent, and of the last one with a response.
        self._sent = 0
        self._responded_to = 0
        # The topics that the last response names; None: all.
        self.named_topics: frozenset[str] | None = frozenset()
        self._again = False
        self._stopped = False
        self._backoff = Backoff(_FIRST_BACKOFF, _LONGEST_BACKOFF)
        self._topic_backoff = Backoff(_FIRST_BACKOFF, _LONGEST_TOPIC_BACKOFF)
        # When the first request failed after the last response; None if none has.
        self._failing_since: float | None = None
        self._earliest = float("-inf")
        self._due = float("inf")

    # --- what is known -----------------------------------------------------------------------

    def leader(self, partition: TopicPartition) -> tuple[Node, int] | None:
        """The leader of a partition and its epoch (-1 unknown), None while there is none."""
        topic = self._topics.get(partition.topic)
        if topic is None or (leader := topic.leaders.get(partition.partition)) is None:
            return None
        node = self.brokers.node(leader.leader_id)
        return None if node is None else (node, leader.leader_epoch)

    def learn_leader(
        self,
        partition: TopicPartition,
        leader_id: int,
        leader_epoch: int,
        addresses: Mapping[int, BrokerMetadata],
    ) -> bool:
        """Take the leader that a Fetch response names (KIP-951) until the next metadata response.

        Returns False, and changes nothing, unless its epoch is newer than the known one and the
        address of the broker is known or in ``addresses``. An address from metadata is kept.
        """
        topic = self._topics.get(partition.topic)
        known = None if topic is None else topic.leaders.get(partition.partition)
        if topic is None or known is None or leader_id < 0 or leader_epoch <= known.leader_epoch:
            return False
        if not self.brokers.learn_address(leader_id, addresses):
            return False
        topic.set_leader(known, leader_id, leader_epoch)
        return True

    def partitions(self, topic: str) -> tuple[int, ...] | None:
        """The numbers of a topic's partitions, ascending; None if the topic is unknown."""
        known = self._topics.get(topic)
        return None if known is None else known.numbers

    def partition_set(self, topic: str) -> AbstractSet[int]:
        """The same in no order, to look numbers up; empty if the topic is unknown."""
        known = self._topics.get(topic)
        return frozenset[int]() if known is None else known.leaders.keys()

    def racks(self, topics: Iterable[str]) -> dict[TopicPartition, frozenset[str]]:
        """Where the replicas of the partitions of these topics are, as far as is known (KIP-881);
        empty in a cluster without racks."""
        racks = self.brokers.racks
        if not racks:
            return {}
        return {
            TopicPartition(topic, number): frozenset(
                racks[node_id] for node_id in replicas if node_id in racks
            )
            for topic in topics
            if (known := self._topics.get(topic)) is not None
            for number, replicas in known.replicas.items()
        }

    def topic_id(self, topic: str) -> bytes | None:
        """The topic's id (KIP-516); None if it is unknown or the broker has no ids."""
        known = self._topics.get(topic)
        return None if known is None or known.topic_id == NO_ID else known.topic_id

    def topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[str, bytes] | None:
        """The ids of the topics of these partitions by their names; None if one is not known."""
        ids: dict[str, bytes] = {}
        for topic in dict.fromkeys(partition.topic for partition in partitions):
            topic_id = self.topic_id(topic)
            if topic_id is None:
                return None
            ids[topic] = topic_id
        return ids

    def names_by_id(self) -> dict[bytes, str]:
        """The names of all known topics that have an id, by their ids."""
        return {
            topic.topic_id: name for name, topic in self._topics.items() if topic.topic_id != NO_ID
        }

    @property
    def next_request(self) -> int:
        """The number of the next request for metadata, for :meth:`is_confirmed_by`."""
        return self._sent + 1

    def is_confirmed_by(self, topic: str, request: int) -> bool:
        """Whether the response to this request, or to a later one, names all known partitions of
        the topic."""
        known = self._topics.get(topic)
        return self._responded_to >= request and known is not None and known.missing_since is None

    def is_missing(self, topic: str) -> bool:
        """Whether the last response lacks this topic or some of its partitions, or it is
        unknown."""
        known = self._topics.get(topic)
        return known is None or known.missing_since is not None

    def last_response_names(self, topics: frozenset[str]) -> bool:
        """Whether the last response names all of these topics, be it as unknown."""
        return self.named_topics is None or topics <= self.named_topics

    def topics(self) -> frozenset[str]:
        """All known topics, Kafka's internal ones left out."""
        return frozenset(name for name, topic in self._topics.items() if not topic.is_internal)

    def is_internal(self, topic: str) -> bool:
        """Whether it is known as one of Kafka's own topics, such as ``__consumer_offsets``."""
        known = self._topics.get(topic)
        return known is not None and known.is_internal

    def missing_topics(self) -> frozenset[str]:
        """The topics that this consumer reads or writes, and that are unknown to the brokers."""
        if self._wanted is None or self.named_topics is None:
            return self._output_topics.missing
        asked = (self._wanted & self.named_topics) - self._of_others
        unknown = asked - self._topics.keys() - self._reported_errors.keys()
        return self._output_topics.missing | unknown

    def rejected_topics(self) -> frozenset[str]:
        """The topics for which the brokers reject metadata requests of this consumer."""
        return frozenset(self._reported_errors)

    def unreachable_brokers(self) -> tuple[Node, ...]:
        """The silent brokers that lead a partition; all that were tried if none responds."""
        failed = self.brokers.failed
        if self._backoff.has_failed:
            return failed or self.brokers.all()
        leading = self._leading() if failed else frozenset[int]()
        return tuple(node for node in failed if node.node_id in leading)

    # --- keeping it fresh --------------------------------------------------------------------

    @property
    def asking(self) -> bool:
        """Whether a response is awaited."""
        return self._in_flight

    def start(self, now: float) -> None:
        """Ask for the first time."""
        self._earliest = now
        self._send()

    def stop(self) -> None:
        """Ask no more."""
        self._stopped = True
        self._outbox.cancel_timer(_TIMER)

    def want(
        self, now: float, topics: frozenset[str] | None, of_others: frozenset[str] = frozenset()
    ) -> None:
        """Keep these topics fresh; None: all. A change is asked for at once. ``of_others`` are
        subscribed to by other members only: the rejection of one is logged, and no error."""
        self._of_others = of_others
        if topics == self._wanted:
            return
        self._wanted = topics
        if topics is not None:
            for topic in [name for name in self._reported_errors if name not in topics]:
                del self._reported_errors[topic]
                self._log.over(now, f"topic {topic}")
        self._topic_backoff.succeeded()
        if self._in_flight:
            self._again = True
        else:
            self._send()

    def refresh(self, now: float, reason: str) -> None:
        """Ask again, soon; what is under way or due already is not asked twice."""
        if self._in_flight or self._stopped:
            return
        if self._backoff.has_failed or now < self._earliest:
            # After failures the next attempt is timed already.
            if not self._backoff.has_failed:
                self._schedule(now, self._earliest)
            return
        self._outbox.emit(log_events.METADATA_REQUESTED, reason=reason)
        self._send()

    def _schedule(self, now: float, at: float, spread: float = 0.0) -> None:
        if at < self._due or self._due <= now:
            self._due = at
            self._outbox.set_timer(_TIMER, at, self._timer_fired, spread=spread)

    def _timer_fired(self, _now: float) -> None:
        self._due = float("inf")
        if not self._in_flight:
            self._send()

    def _send(self) -> None:
        if self._stopped:
            return
        self._in_flight = True
        self._sent += 1
        self._again = False
        self._due = float("inf")
        self._outbox.cancel_timer(_TIMER)
        wanted = self._wanted
        node = self.brokers.any_node()
        topics = self._output_topics.to_describe(wanted)
        self._outbox.send(
            MetadataRequest(topics=None if topics is None else tuple(sorted(topics))),
            node,
            Channel.METADATA,
            self._config.request_timeout,
            lambda later, reply: self._metadata_response_received(later, node, wanted, reply),
        )

    def _metadata_response_received(
        self, now: float, node: Node, wanted: frozenset[str] | None, reply: Reply
    ) -> None:
        self._in_flight = False
        match reply:
            case MetadataResponse(error=error) if error is not ErrorCode.none:
                if error is ErrorCode.rebootstrap_required:
                    self.bootstrap_again(now, "a broker has asked for it")
                self._retry(now, node, error.name)
            case MetadataResponse() if reply.brokers:
                self._succeeded(now, node, wanted, reply)
            case MetadataResponse():
                self._retry(now, node, "it knows no brokers yet")
            case Failed() as failed if failed.kind in FATAL_FAILURES:
                self.stop()
                self._reactions.failed(now, fatal_error(failed))
            case Failed(kind=kind, detail=detail):
                self._retry(now, node, detail or kind.value)
            case _:
                self._retry(now, node, f"unexpected response {type(reply).__name__}")

    def _retry(self, now: float, node: Node, why: str) -> None:
        self.brokers.note_failure(node)
        if self._failing_since is None:
            self._failing_since = now
        elif self._responded_to and now - self._failing_since >= _REBOOTSTRAP_AFTER:
            self.bootstrap_again(now, "no broker has responded to a metadata request for long")
        fields = {"tried": node.address, "reason": why}
        if not self._responded_to:
            fields["check"] = WHAT_TO_CHECK
        self._log.waiting(now, "cluster", log_events.WAITING_FOR_BROKER, **fields)
        if self._again:
            self._send()
            return
        delay = self._backoff.failed()
        self._schedule(now, now + delay, spread=delay / 2)

    def bootstrap_again(self, now: float, reason: str) -> None:
        """Forget the brokers and drop their connections: the next request resolves a bootstrap
        address again (KIP-1102). What is known of the topics is kept."""
        self._failing_since = now
        for node in self.brokers.forget():
            for channel in Channel:
                self._outbox.put(ResetConnection(node, channel))
        self._outbox.emit(log_events.BOOTSTRAP_AGAIN, reason=reason)

    def _succeeded(
        self, now: float, node: Node, wanted: frozenset[str] | None, response: MetadataResponse
    ) -> None:
        self._backoff.succeeded()
        self._failing_since = None
        self._responded_to = self._sent
        self.named_topics = wanted
        self._log.over(now, "cluster", log_events.BROKER_REACHABLE, node=node.address)
        failed = self.brokers.failed
        led: frozenset[int] = self._leading() if failed else frozenset()
        self.brokers.learn(response.brokers)
        self.cluster_id = response.cluster_id
        with_replicas = any(broker.rack for broker in response.brokers)
        described = self._output_topics.to_describe(wanted)
        topics = read_topics(response.topics, described, self._topics, with_replicas=with_replicas)
        self._output_topics.learn(now, topics)
        if wanted is not None:
            topics = {name: topics[name] for name in topics.keys() & wanted}
        expected = self._topics if wanted is None else wanted
        changed = False
        unresolved: list[str] = []
        rejected: list[str] = []
        missing: list[str] = []
        for name in sorted({*expected, *topics}):
            metadata, partitions = topics.get(name, (None, None))
            error = ErrorCode.unknown_topic_or_partition if metadata is None else metadata.error
            if metadata is not None and partitions is not None:
                topic_changed, is_final = self._learn_topic(now, metadata, partitions)
                changed |= topic_changed
                if not is_final:
                    unresolved.append(name)
            elif error is ErrorCode.unknown_topic_or_partition:
                changed |= self._reported_missing(now, name, missing)
                if wanted is not None or name in self._topics:
                    unresolved.append(name)
            elif wanted is None and name not in self._topics:
                continue  # a topic that is not wanted yet
            elif error in _REJECTIONS:
                rejected.append(name)
                self._topic_error(now, name, error)
            else:
                unresolved.append(name)
                if name not in self._of_others:
                    waiting = log_events.WAITING_FOR_TOPIC
                    self._log.waiting(now, f"topic {name}", waiting, topic=name, reason=error.name)
        self._log_missing(
            now, missing, [n for n in (*unresolved, *rejected) if n in self._of_others]
        )
        if failed:
            self._drop_former_leaders(failed, led)
        self._earliest = now + _SPACING
        self._plan_next(now, unresolved, [*rejected, *self._output_topics.missing])
        if changed:
            self._reactions.topics_changed(now)
        self._reactions.metadata_refreshed(now)

    def _plan_next(self, now: float, unresolved: list[str], rejected: list[str]) -> None:
        if self._again:
            self._send()
        elif unresolved or rejected:
            delay = self._topic_backoff.failed()
            if not unresolved:
                delay = _SLOW
            self._schedule(now, now + delay, spread=delay / 2)
        else:
            self._topic_backoff.succeeded()
            age = self._config.metadata_max_age
            failed_ids = {node.node_id for node in self.brokers.failed}
            if failed_ids and not self._leading().isdisjoint(failed_ids):
                age = min(age, _LOOK_AGAIN)
            self._schedule(now, now + age, spread=age / 20)

    def _leading(self) -> frozenset[int]:
        """The ids of the brokers that lead a partition."""
        return frozenset[int]().union(*(topic.leader_ids for topic in self._topics.values()))

    def _drop_former_leaders(self, failed: Iterable[Node], led: frozenset[int]) -> None:
        """Drop the connections to silent brokers that led partitions and lead none any more: their
        requests fail, and are sent to the new leaders."""
        leading = self._leading()
        for node in failed:
            if node.node_id in led and node.node_id not in leading:
                for channel in Channel:
                    self._outbox.put(ResetConnection(node, channel))

    def _learn_topic(
        self, now: float, metadata: TopicMetadata, partitions: TopicPartitions
    ) -> tuple[bool, bool]:
        """Whether its set of partitions has changed, and whether no further response is needed."""
        name = metadata.name
        self._reported_errors.pop(name, None)
        self._missing.found(now, name)
        self._log.over(now, f"topic {name}", log_events.TOPIC_AVAILABLE, topic=name)
        topic = self._topics.get(name)
        if topic is None or topic.is_replaced_by(metadata):
            new = KnownTopic(metadata)
            if topic is not None:
                new.replace(topic)
                self._outbox.emit(log_events.TOPIC_RECREATED, topic=name)
            new.learn(now, metadata, partitions)
            self._topics[name] = new
            return True, True
        if metadata.topic_id in topic.former_ids:
            return False, False  # a broker that does not know the new one yet
        return topic.learn(now, metadata, partitions)

    def learn_topics(self, now: float, topics: Iterable[TopicMetadata]) -> None:
        """Take what a request of another part has got, of topics that are wanted."""
        found = read_topics(topics, self._wanted, self._topics, with_replicas=False).values()
        changed = [self._learn_topic(now, topic, parts)[0] for topic, parts in found if parts]
        if any(changed):
            self._reactions.topics_changed(now)

    def _reported_missing(self, now: float, name: str, missing: list[str]) -> bool:
        """The response reports the topic as unknown. Adds it to ``missing`` if it was never known;
        returns whether the topic is removed."""
        topic = self._topics.get(name)
        if topic is None:
            wanted = self._wanted is None or name in self._wanted
            if wanted and name not in self._of_others:
                self._log.forget(f"topic {name}")
                missing.append(name)
            return False
        if not topic.is_missing_for_long(now):
            return False
        del self._topics[name]
        self._outbox.emit(log_events.TOPIC_NO_LONGER_EXISTS, topic=name)
        return True

    def _log_missing(self, now: float, missing: Sequence[str], of_others: Sequence[str]) -> None:
        """Log one line for all, and one for all of other members."""
        if (line := self._missing.line_due(now, missing)) is not None:
            self._outbox.emit(log_events.WAITING_FOR_MISSING_TOPICS, **line)
        if (line := self._missing_of_others.line_due(now, of_others)) is not None:
            self._outbox.emit(log_events.TOPICS_OF_OTHER_MEMBERS_MISSING, **line)

    def _topic_error(self, now: float, name: str, error: ErrorCode) -> None:
        if name in self._of_others:
            return
        self._log.waiting(
            now, f"topic {name}", log_events.WAITING_FOR_TOPIC_ACCESS, topic=name, reason=error.name
        )
        if self._reported_errors.get(name) is error:
            return
        self._reported_errors[name] = error
        if error is ErrorCode.topic_authorization_failed:
            self._reactions.failed(
                now,
                TopicAuthorizationError(
                    [TopicPartition(name, number) for number in self.partitions(name) or ()],
                    f"not authorized to read topic {name!r}: grant DESCRIBE and READ on it",
                ),
            )
        else:
            self._reactions.failed(
                now, BrokerError(f"{name!r} is not a valid topic name", int(error))
            )
