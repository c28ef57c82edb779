"""Queries of the user: committed offsets, offsets by timestamp, the partitions of a topic.

Each ends with one ``CompleteRequest``. Errors that may pass are retried until ``request_timeout``;
then the error names what was waited for.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.client.core.io.effects import Channel, CompleteRequest, Failed, Node
from asyncrevoke.client.core.io.fatal_error import FATAL_FAILURES, fatal_error
from asyncrevoke.client.core.metadata.topic import NO_ID
from asyncrevoke.client.core.queries.pending_query import (
    CommittedQuery,
    PendingQuery,
    TimestampQuery,
    TopicQuery,
)
from asyncrevoke.client.errors import (
    BrokerError,
    ConfigError,
    GroupAuthorizationError,
    RequestTimeoutError,
    TopicAuthorizationError,
)
from asyncrevoke.client.model import OffsetAndMetadata, TopicPartition
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetQuery,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.io.outbox import Outbox, Reply
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.core.metadata.coordinator import Coordinator
    from asyncrevoke.client.protocol.messages import TopicMetadata

_MOVED = frozenset((ErrorCode.not_coordinator, ErrorCode.coordinator_not_available))
_UNKNOWN = frozenset((ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id))


class TopicDescription(NamedTuple):
    """A topic as a Metadata response describes it.

    ``topic_id`` identifies the topic among all that have had its name (KIP-516); None from
    brokers without topic ids, before Kafka 3.1. ``is_internal``: as ``__consumer_offsets``.
    """

    topic_id: bytes | None
    partitions: frozenset[int]
    is_internal: bool


class OffsetQueries:
    """Completes queries, independently of the assignment."""

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        cluster: ClusterMetadata,
        coordinator: Coordinator,
    ) -> None:
        self._outbox = outbox
        self._config = config
        self._cluster = cluster
        self._coordinator = coordinator
        self._open: dict[int, PendingQuery] = {}

    def committed(self, now: float, call_id: int, partitions: Iterable[TopicPartition]) -> None:
        """Complete the call with the group's committed offsets:
        ``dict[TopicPartition, OffsetAndMetadata | None]``."""
        wanted = tuple(dict.fromkeys(TopicPartition(*partition) for partition in partitions))
        if self._config.group_id is None:
            error = ConfigError("committed() needs a group: give the consumer a group_id")
            self._outbox.put(CompleteRequest(call_id, error=error))
        elif not wanted:
            self._outbox.put(CompleteRequest(call_id, {}))
        else:
            self._start(now, CommittedQuery(call_id, wanted))

    def offsets_for_times(
        self, now: float, call_id: int, timestamps: Mapping[TopicPartition, int]
    ) -> None:
        """Complete the call with the first offset at or after each timestamp (ms, or EARLIEST or
        LATEST): ``dict[TopicPartition, OffsetAndTimestamp | None]``."""
        wanted = {TopicPartition(*partition): at for partition, at in timestamps.items()}
        if not wanted:
            self._outbox.put(CompleteRequest(call_id, {}))
            return
        self._start(now, TimestampQuery(call_id, wanted))

    def partitions_for_topic(self, now: float, call_id: int, topic: str) -> None:
        """Complete the call with a topic's partitions, ``frozenset[int]``; empty without it."""
        known = self._cluster.partitions(topic) if self._is_kept_fresh(topic) else None
        if known is not None:
            self._outbox.put(CompleteRequest(call_id, frozenset(known)))
            return

        def partitions(described: Mapping[str, TopicDescription]) -> frozenset[int]:
            return described[topic].partitions if topic in described else frozenset()

        self._start(now, TopicQuery(call_id, (topic,), partitions))

    def describe_topics(self, now: float, call_id: int, topics: Iterable[str] | None) -> None:
        """Complete the call with what the brokers say now of these topics, of all for None:
        ``dict[str, TopicDescription]``, without those that do not exist."""
        names = None if topics is None else tuple(sorted(set(topics)))
        if names == ():
            self._outbox.put(CompleteRequest(call_id, {}))
            return
        self._start(now, TopicQuery(call_id, names, dict))

    def fail_all(self, error: Exception) -> None:
        """The consumer ends: fail all open queries."""
        for query in list(self._open.values()):
            self._end(query, error=error)

    # --- life of a call --------------------------------------------------------------------------

    def _start(self, now: float, query: PendingQuery) -> None:
        self._open[query.call_id] = query
        self._outbox.set_timer(
            query.deadline_timer,
            now + self._config.request_timeout,
            lambda _later: self._end(
                query,
                error=RequestTimeoutError(
                    f"no response about {query.what} within request_timeout="
                    f"{self._config.request_timeout:g} s; last waited for: {query.waits_for}"
                ),
            ),
        )
        self._ask(now, query)

    def _ask(self, now: float, query: PendingQuery) -> None:
        match query:
            case CommittedQuery():
                self._coordinator.call_when_known(
                    f"lookup {query.call_id}", lambda _later: self._ask_committed(query), now
                )
            case TimestampQuery():
                self._ask_offsets(query)
            case TopicQuery():
                self._request_metadata(query.topics, partial(self._topic_response_received, query))

    def _is_open(self, query: PendingQuery) -> bool:
        return self._open.get(query.call_id) is query

    def _end(
        self, query: PendingQuery, result: object = None, error: Exception | None = None
    ) -> None:
        if self._is_open(query):
            del self._open[query.call_id]
            self._outbox.cancel_timer(query.retry_timer)
            self._outbox.cancel_timer(query.deadline_timer)
            self._outbox.put(CompleteRequest(query.call_id, result, error))

    def _retry_later(self, now: float, query: PendingQuery, waits_for: str) -> None:
        if not self._is_open(query):
            return
        query.wait_for(waits_for)
        backoff = query.backoff.failed()
        self._outbox.set_timer(
            query.retry_timer,
            now + backoff,
            lambda later: self._ask(later, query),
            spread=backoff / 2,
        )

    def _failed(self, now: float, query: PendingQuery, node: Node, reply: Reply) -> None:
        """A response of another type than expected."""
        if isinstance(reply, MetadataResponse):
            self._cluster.brokers.note_failure(node)
            self._retry_later(now, query, f"broker {node.address} ({reply.error.name})")
        elif not isinstance(reply, Failed):
            self._retry_later(now, query, f"a response other than {type(reply).__name__}")
        elif reply.kind in FATAL_FAILURES:
            self._end(query, error=fatal_error(reply))
        else:
            self._cluster.brokers.note_failure(node)
            self._retry_later(
                now, query, f"broker {node.address} ({reply.detail or reply.kind.value})"
            )

    def _handle_error(
        self,
        now: float,
        query: PendingQuery,
        error: ErrorCode,
        partitions: Sequence[TopicPartition],
    ) -> None:
        """A broker responded with an error: retry, or end."""
        names = ", ".join(str(tp) for tp in partitions[:5])
        if error.retriable or error is ErrorCode.unknown_server_error:
            self._retry_later(now, query, f"{names}: {error.name}")
        elif error is ErrorCode.topic_authorization_failed:
            self._end(query, error=TopicAuthorizationError(partitions))
        elif error is ErrorCode.group_authorization_failed:
            self._end(
                query,
                error=GroupAuthorizationError(
                    f"not authorized to read the offsets of group {self._config.group_id!r}"
                ),
            )
        else:
            self._end(
                query,
                error=BrokerError(f"looking up {query.what}: {names} {error.name}", int(error)),
            )

    # --- committed offsets -------------------------------------------------------------------

    def _ask_committed(self, query: CommittedQuery) -> None:
        node = self._coordinator.node
        if node is None or not self._is_open(query):
            return
        self._outbox.send(
            OffsetFetchRequest(
                group_id=self._config.group_id or "",
                partitions=query.wanted,
                require_stable=True,
            ),
            node,
            Channel.COMMIT,
            self._config.request_timeout,
            lambda now, reply: self._committed(now, query, node, reply),
        )

    def _committed(self, now: float, query: CommittedQuery, node: Node, reply: Reply) -> None:
        if not self._is_open(query):
            return
        if not isinstance(reply, OffsetFetchResponse):
            if isinstance(reply, Failed):
                why = f"offset fetch: {reply.detail or reply.kind.value}"
                self._coordinator.no_response(now, why, node)
            self._failed(now, query, node, reply)
            return
        found = {offset.partition: offset for offset in reply.offsets}
        errors: dict[ErrorCode, Sequence[TopicPartition]] = {}
        if reply.error is not ErrorCode.none:
            errors[reply.error] = query.wanted
        result: dict[TopicPartition, OffsetAndMetadata | None] = {}
        for partition in query.wanted if not errors else ():
            offset = found.get(partition)
            if offset is None:
                errors.setdefault(ErrorCode.network_exception, (partition,))
            elif offset.error is not ErrorCode.none:
                errors.setdefault(offset.error, (partition,))
            elif offset.offset >= 0:
                result[partition] = OffsetAndMetadata(
                    offset.offset, offset.metadata, offset.leader_epoch
                )
            else:
                result[partition] = None
        if not errors:
            self._end(query, result)
            return
        if not _MOVED.isdisjoint(errors):
            why = "another broker than the coordinator responded to an offset fetch"
            self._coordinator.mark_unknown(now, why, node)
        error, partitions = _worst(errors)
        self._handle_error(now, query, error, partitions)

    # --- offsets by timestamp ----------------------------------------------------------------

    def _ask_offsets(self, query: TimestampQuery) -> None:
        missing = sorted(
            {
                partition.topic
                for partition in query.wanted
                if partition not in query.found and self._leader(query, partition) is None
            }
        )
        if missing:
            query.wait_for(f"the leaders of {', '.join(missing)}")
            self._request_metadata(tuple(missing), partial(self._leaders_response_received, query))
        else:
            self._list_offsets(query)

    def _leader(self, query: TimestampQuery, partition: TopicPartition) -> tuple[Node, int] | None:
        leader = query.leaders.get(partition)
        if leader is None and self._is_kept_fresh(partition.topic):
            leader = self._cluster.leader(partition)
        return leader

    def _is_kept_fresh(self, topic: str) -> bool:
        """A topic that was read before may have other leaders and partitions by now."""
        return self._cluster.last_response_names(frozenset((topic,)))

    def _leaders_response_received(
        self, query: TimestampQuery, node: Node, now: float, reply: Reply
    ) -> None:
        if not self._is_open(query):
            return
        if not isinstance(reply, MetadataResponse) or reply.error is not ErrorCode.none:
            self._failed(now, query, node, reply)
            return
        query.learn(reply)
        for topic in reply.topics:
            if topic.error is not ErrorCode.none and not topic.error.retriable:
                concerned = [tp for tp in query.wanted if tp.topic == topic.name]
                self._handle_error(now, query, topic.error, concerned)
                return
        lost = [tp for tp in query.wanted if tp not in query.found]
        lost = [tp for tp in lost if self._leader(query, tp) is None]
        if lost:
            self._handle_error(now, query, ErrorCode.leader_not_available, lost)
        else:
            self._list_offsets(query)

    def _list_offsets(self, query: TimestampQuery) -> None:
        by_node: dict[Node, list[OffsetQuery]] = {}
        for partition, timestamp in query.wanted.items():
            leader = self._leader(query, partition)
            if partition not in query.found and leader is not None:
                by_node.setdefault(leader[0], []).append(
                    OffsetQuery(partition=partition, timestamp=timestamp, leader_epoch=leader[1])
                )
        query.begin_attempt(len(by_node))
        for node, queries in by_node.items():
            self._outbox.send(
                ListOffsetsRequest(
                    queries=tuple(queries),
                    read_committed=self._config.isolation_level == "read_committed",
                ),
                node,
                Channel.METADATA,
                self._config.request_timeout,
                partial(self._listed, query, node, queries),
            )

    def _listed(
        self,
        query: TimestampQuery,
        node: Node,
        queries: list[OffsetQuery],
        now: float,
        reply: Reply,
    ) -> None:
        if not self._is_open(query):
            return
        query.response_received()
        asked = [query.partition for query in queries]
        if isinstance(reply, ListOffsetsResponse):
            received = {offset.partition: offset for offset in reply.offsets}
            for partition in asked:
                offset = received.get(partition)
                if offset is None:
                    query.failed(ErrorCode.network_exception, [partition])
                elif offset.error is not ErrorCode.none:
                    query.failed(offset.error, [partition])
                else:
                    query.offset_found(offset)
        elif isinstance(reply, Failed) and reply.kind not in FATAL_FAILURES:
            self._cluster.brokers.note_failure(node)
            query.failed(ErrorCode.network_exception, asked)
        else:
            self._failed(now, query, node, reply)
            return
        if query.outstanding:
            return
        # A late response of a former attempt may have replaced one of this attempt.
        missing = [tp for tp in query.wanted if tp not in query.found]
        if missing and ErrorCode.network_exception not in query.trouble:
            query.failed(ErrorCode.network_exception, missing)
        if query.trouble:
            query.forget_leaders()
            self._cluster.refresh(now, "offsets could not be looked up")
            self._handle_error(now, query, *_worst(query.trouble))
        else:
            self._end(query, {partition: query.found[partition] for partition in query.wanted})

    # --- topics ------------------------------------------------------------------------------

    def _request_metadata(
        self, topics: tuple[str, ...] | None, on_reply: Callable[[Node, float, Reply], None]
    ) -> None:
        node = self._cluster.brokers.any_node()
        self._outbox.send(
            MetadataRequest(topics=topics),
            node,
            Channel.METADATA,
            self._config.request_timeout,
            partial(on_reply, node),
        )

    def _topic_response_received(
        self, query: TopicQuery, node: Node, now: float, reply: Reply
    ) -> None:
        if not self._is_open(query):
            return
        if not isinstance(reply, MetadataResponse) or reply.error is not ErrorCode.none:
            self._failed(now, query, node, reply)
            return
        received = {metadata.name: metadata for metadata in reply.topics}
        described: dict[str, TopicDescription] = {}
        denied: set[str] = set()
        for name in received if query.topics is None else query.topics:
            metadata = received.get(name)
            error = ErrorCode.unknown_topic_or_partition if metadata is None else metadata.error
            if metadata is not None and error is ErrorCode.none:
                described[name] = _description(metadata)
            elif error in _UNKNOWN:
                denied.add(name)
            elif error is ErrorCode.topic_authorization_failed:
                message = f"not authorized to describe topic {name!r}: grant DESCRIBE on it"
                self._end(query, error=TopicAuthorizationError([], message))
                return
            else:
                self._handle_error(now, query, error, [])
                return
        if query.topics is None or denied <= query.denied:
            self._end(query, query.result_of(described))
            return
        # A broker that has just started may not know the topic yet.
        query.note_denied(frozenset(denied))
        self._handle_error(now, query, ErrorCode.unknown_topic_or_partition, [])


def _description(metadata: TopicMetadata) -> TopicDescription:
    return TopicDescription(
        topic_id=None if metadata.topic_id == NO_ID else metadata.topic_id,
        partitions=frozenset(numbered.partition for numbered in metadata.partitions),
        is_internal=metadata.is_internal,
    )


def _worst(
    errors: Mapping[ErrorCode, Sequence[TopicPartition]],
) -> tuple[ErrorCode, Sequence[TopicPartition]]:
    """A permanent error, if there is one."""
    for error, partitions in errors.items():
        if not error.retriable:
            return error, partitions
    return next(iter(errors.items()))
