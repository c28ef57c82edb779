"""What users ask the cluster: committed offsets, offsets by timestamp, the partitions of a topic.

Each request ends with exactly one ``CompleteRequest``. What may pass is asked again until
``request_timeout`` is over; then the error names what was waited for.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from asyncrevoke.core.io.effects import Channel, CompleteRequest, Failed, Node
from asyncrevoke.core.io.fatal_error import FATAL_FAILURES, fatal_error
from asyncrevoke.core.queries.pending_query import OffsetSearch, PendingQuery
from asyncrevoke.errors import (
    BrokerError,
    ConfigError,
    GroupAuthorizationError,
    RequestTimeoutError,
    TopicAuthorizationError,
)
from asyncrevoke.model import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from asyncrevoke.protocol.messages import (
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

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.io.outbox import Outbox, Reply
    from asyncrevoke.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.core.metadata.coordinator import Coordinator

_MOVED = frozenset((ErrorCode.not_coordinator, ErrorCode.coordinator_not_available))
_UNKNOWN = frozenset((ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id))


class OffsetQueries:
    """Answers tickets. Nothing of it depends on the assignment."""

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

    def committed(self, now: float, ticket: int, partitions: Iterable[TopicPartition]) -> None:
        """Answer with what the group has committed: ``dict[TopicPartition, OffsetAndMetadata |
        None]``."""
        wanted = tuple(dict.fromkeys(TopicPartition(*partition) for partition in partitions))
        if self._config.group_id is None:
            error = ConfigError("committed() needs a group: give the consumer a group_id")
            self._outbox.put(CompleteRequest(ticket, error=error))
        elif not wanted:
            self._outbox.put(CompleteRequest(ticket, {}))
        else:
            key = f"lookup {ticket}"

            def ask(at: float) -> None:
                self._coordinator.call_when_known(
                    key, lambda _later: self._ask_committed(lookup, wanted), at
                )

            lookup = self._start(now, ticket, "the committed offsets", ask)
            lookup.wait_for("the group coordinator")
            ask(now)

    def offsets_for_times(
        self, now: float, ticket: int, timestamps: Mapping[TopicPartition, int]
    ) -> None:
        """Answer with the first offset at or after each timestamp (ms, or EARLIEST or LATEST):
        ``dict[TopicPartition, OffsetAndTimestamp | None]``."""
        wanted = {TopicPartition(*partition): at for partition, at in timestamps.items()}
        if not wanted:
            self._outbox.put(CompleteRequest(ticket, {}))
            return
        search = OffsetSearch(wanted)
        lookup = self._start(
            now, ticket, "offsets", lambda _later: self._ask_offsets(lookup, search)
        )
        lookup.ask(now)

    def partitions_for_topic(self, now: float, ticket: int, topic: str) -> None:
        """Answer with the numbers of its partitions, ``frozenset[int]``; empty if there is no such
        topic."""
        known = self._cluster.partitions(topic)
        if known is not None:
            self._outbox.put(CompleteRequest(ticket, frozenset(known)))
            return
        lookup = self._start(
            now, ticket, f"topic {topic!r}", lambda _later: self._ask_topic(lookup, topic)
        )
        lookup.ask(now)

    def fail_all(self, error: Exception) -> None:
        """End all that is open, because the consumer ends."""
        for lookup in list(self._open.values()):
            self._end(lookup, error=error)

    # --- life of a ticket --------------------------------------------------------------------

    def _start(
        self, now: float, ticket: int, what: str, ask: Callable[[float], None]
    ) -> PendingQuery:
        lookup = self._open[ticket] = PendingQuery(now, ticket, what, ask)
        self._outbox.set_timer(
            lookup.deadline_timer,
            now + self._config.request_timeout,
            lambda _later: self._end(
                lookup,
                error=RequestTimeoutError(
                    f"no answer about {lookup.what} within request_timeout="
                    f"{self._config.request_timeout:g} s; last waited for: {lookup.waits_for}"
                ),
            ),
        )
        return lookup

    def _is_open(self, lookup: PendingQuery) -> bool:
        return self._open.get(lookup.ticket) is lookup

    def _end(
        self, lookup: PendingQuery, result: object = None, error: Exception | None = None
    ) -> None:
        if self._is_open(lookup):
            del self._open[lookup.ticket]
            self._outbox.cancel_timer(lookup.retry_timer)
            self._outbox.cancel_timer(lookup.deadline_timer)
            self._outbox.put(CompleteRequest(lookup.ticket, result, error))

    def _retry_later(self, now: float, lookup: PendingQuery, waits_for: str) -> None:
        if not self._is_open(lookup):
            return
        lookup.wait_for(waits_for)
        backoff = lookup.backoff.failed()
        self._outbox.set_timer(lookup.retry_timer, now + backoff, lookup.ask, spread=backoff / 2)

    def _failed(self, now: float, lookup: PendingQuery, node: Node, reply: Reply) -> None:
        """Anything but the response that was asked for."""
        if not isinstance(reply, Failed):
            self._retry_later(now, lookup, f"an answer other than {type(reply).__name__}")
        elif reply.kind in FATAL_FAILURES:
            self._end(lookup, error=fatal_error(reply))
        else:
            self._cluster.note_failure(node)
            self._retry_later(
                now, lookup, f"broker {node.host}:{node.port} ({reply.detail or reply.kind.value})"
            )

    def _handle_error(
        self,
        now: float,
        lookup: PendingQuery,
        error: ErrorCode,
        partitions: Sequence[TopicPartition],
    ) -> None:
        """A broker answered with an error: wait for it to pass, or end."""
        names = ", ".join(str(tp) for tp in partitions[:5])
        if error.retriable or error is ErrorCode.unknown_server_error:
            self._retry_later(now, lookup, f"{names}: {error.name}")
        elif error is ErrorCode.topic_authorization_failed:
            self._end(lookup, error=TopicAuthorizationError(partitions))
        elif error is ErrorCode.group_authorization_failed:
            self._end(
                lookup,
                error=GroupAuthorizationError(
                    f"not authorized to read the offsets of group {self._config.group_id!r}"
                ),
            )
        else:
            self._end(
                lookup,
                error=BrokerError(f"looking up {lookup.what}: {names} {error.name}", int(error)),
            )

    # --- committed offsets -------------------------------------------------------------------

    def _ask_committed(self, lookup: PendingQuery, wanted: tuple[TopicPartition, ...]) -> None:
        node = self._coordinator.node
        if node is None or not self._is_open(lookup):
            return
        self._outbox.send(
            OffsetFetchRequest(
                group_id=self._config.group_id or "", partitions=wanted, require_stable=True
            ),
            node,
            Channel.COMMIT,
            self._config.request_timeout,
            lambda now, reply: self._committed(now, lookup, node, wanted, reply),
        )

    def _committed(
        self,
        now: float,
        lookup: PendingQuery,
        node: Node,
        wanted: tuple[TopicPartition, ...],
        reply: Reply,
    ) -> None:
        if not self._is_open(lookup):
            return
        if not isinstance(reply, OffsetFetchResponse):
            if isinstance(reply, Failed):
                why = f"offset fetch: {reply.detail or reply.kind.value}"
                self._coordinator.unanswered(now, why, node)
            self._failed(now, lookup, node, reply)
            return
        found = {offset.partition: offset for offset in reply.offsets}
        errors: dict[ErrorCode, Sequence[TopicPartition]] = {}
        if reply.error is not ErrorCode.none:
            errors[reply.error] = wanted
        result: dict[TopicPartition, OffsetAndMetadata | None] = {}
        for partition in wanted if not errors else ():
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
            self._end(lookup, result)
            return
        if not _MOVED.isdisjoint(errors):
            self._coordinator.mark_unknown(now, "offset fetch answered by another broker", node)
        error, partitions = _worst(errors)
        self._handle_error(now, lookup, error, partitions)

    # --- offsets by timestamp ----------------------------------------------------------------

    def _ask_offsets(self, lookup: PendingQuery, search: OffsetSearch) -> None:
        missing = sorted(
            {
                partition.topic
                for partition in search.wanted
                if partition not in search.found and self._leader(search, partition) is None
            }
        )
        if missing:
            node = self._cluster.any_node()
            lookup.wait_for(f"the leaders of {', '.join(missing)}")
            self._outbox.send(
                MetadataRequest(topics=tuple(missing)),
                node,
                Channel.METADATA,
                self._config.request_timeout,
                lambda later, reply: self._leaders_answered(later, lookup, search, node, reply),
            )
        else:
            self._list_offsets(lookup, search)

    def _leader(self, search: OffsetSearch, partition: TopicPartition) -> tuple[Node, int] | None:
        return search.leaders.get(partition) or self._cluster.leader(partition)

    def _leaders_answered(
        self, now: float, lookup: PendingQuery, search: OffsetSearch, node: Node, reply: Reply
    ) -> None:
        if not self._is_open(lookup):
            return
        if not isinstance(reply, MetadataResponse):
            self._failed(now, lookup, node, reply)
            return
        search.learn(reply)
        for topic in reply.topics:
            if topic.error is not ErrorCode.none and not topic.error.retriable:
                concerned = [tp for tp in search.wanted if tp.topic == topic.name]
                self._handle_error(now, lookup, topic.error, concerned)
                return
        lost = [tp for tp in search.wanted if tp not in search.found]
        lost = [tp for tp in lost if self._leader(search, tp) is None]
        if lost:
            self._handle_error(now, lookup, ErrorCode.leader_not_available, lost)
        else:
            self._list_offsets(lookup, search)

    def _list_offsets(self, lookup: PendingQuery, search: OffsetSearch) -> None:
        by_node: dict[Node, list[OffsetQuery]] = {}
        for partition, timestamp in search.wanted.items():
            leader = self._leader(search, partition)
            if partition not in search.found and leader is not None:
                by_node.setdefault(leader[0], []).append(
                    OffsetQuery(partition=partition, timestamp=timestamp, leader_epoch=leader[1])
                )
        search.begin_attempt(len(by_node))
        for node, queries in by_node.items():
            self._outbox.send(
                ListOffsetsRequest(
                    queries=tuple(queries),
                    read_committed=self._config.isolation_level == "read_committed",
                ),
                node,
                Channel.METADATA,
                self._config.request_timeout,
                partial(self._listed, lookup, search, node, queries),
            )

    def _listed(
        self,
        lookup: PendingQuery,
        search: OffsetSearch,
        node: Node,
        queries: list[OffsetQuery],
        now: float,
        reply: Reply,
    ) -> None:
        if not self._is_open(lookup):
            return
        search.answered()
        asked = [query.partition for query in queries]
        if isinstance(reply, ListOffsetsResponse):
            told = {offset.partition: offset for offset in reply.offsets}
            for partition in asked:
                offset = told.get(partition)
                if offset is None:
                    search.trouble.setdefault(ErrorCode.network_exception, [partition])
                elif offset.error is not ErrorCode.none:
                    search.trouble.setdefault(offset.error, []).append(partition)
                else:
                    search.found[partition] = (
                        OffsetAndTimestamp(offset.offset, offset.timestamp, offset.leader_epoch)
                        if offset.offset >= 0
                        else None
                    )
        elif isinstance(reply, Failed) and reply.kind not in FATAL_FAILURES:
            self._cluster.note_failure(node)
            search.trouble.setdefault(ErrorCode.network_exception, []).extend(asked)
        else:
            self._failed(now, lookup, node, reply)
            return
        if search.outstanding:
            return
        # An answer of a former attempt may have come in place of one of this attempt.
        if missing := [tp for tp in search.wanted if tp not in search.found]:
            search.trouble.setdefault(ErrorCode.network_exception, missing)
        if search.trouble:
            search.leaders.clear()
            self._cluster.refresh(now, "offsets could not be looked up")
            self._handle_error(now, lookup, *_worst(search.trouble))
        else:
            self._end(lookup, {partition: search.found[partition] for partition in search.wanted})

    # --- topics ------------------------------------------------------------------------------

    def _ask_topic(self, lookup: PendingQuery, topic: str) -> None:
        node = self._cluster.any_node()
        self._outbox.send(
            MetadataRequest(topics=(topic,)),
            node,
            Channel.METADATA,
            self._config.request_timeout,
            lambda now, reply: self._topic_answered(now, lookup, topic, node, reply),
        )

    def _topic_answered(
        self, now: float, lookup: PendingQuery, topic: str, node: Node, reply: Reply
    ) -> None:
        if not self._is_open(lookup):
            return
        if not isinstance(reply, MetadataResponse):
            self._failed(now, lookup, node, reply)
            return
        told = next((metadata for metadata in reply.topics if metadata.name == topic), None)
        error = ErrorCode.unknown_topic_or_partition if told is None else told.error
        if told is not None and error is ErrorCode.none:
            self._end(lookup, frozenset(p.partition for p in told.partitions))
        elif error in _UNKNOWN and lookup.denied:
            self._end(lookup, frozenset[int]())
        elif error is ErrorCode.topic_authorization_failed:
            message = f"not authorized to describe topic {topic!r}: grant DESCRIBE on it"
            self._end(lookup, error=TopicAuthorizationError([], message))
        else:
            # A broker that has just started may not know the topic yet.
            if error in _UNKNOWN:
                lookup.count_denial()
            self._handle_error(now, lookup, error, [])


def _worst(
    errors: Mapping[ErrorCode, Sequence[TopicPartition]],
) -> tuple[ErrorCode, Sequence[TopicPartition]]:
    """An error that will not pass, if there is one."""
    for error, partitions in errors.items():
        if not error.retriable:
            return error, partitions
    return next(iter(errors.items()))
