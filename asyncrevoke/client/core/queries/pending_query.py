"""Queries of the user that are not completed yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.core.io.effects import Node
from asyncrevoke.client.model import OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from asyncrevoke.client.core.queries.offset_queries import TopicDescription
    from asyncrevoke.client.protocol.messages import ErrorCode, ListedOffset, MetadataResponse

_FIRST_BACKOFF = 0.1
_LONGEST_BACKOFF = 2.0


class _Query:
    """One query that is not completed. ``what`` is the subject, for errors."""

    def __init__(self, call_id: int, what: str) -> None:
        self.call_id = call_id
        self.what = what
        self.backoff = Backoff(_FIRST_BACKOFF, _LONGEST_BACKOFF)
        self.waits_for = "a response"

    def wait_for(self, what: str) -> None:
        """Set what the result depends on now, for the timeout error."""
        self.waits_for = what

    @property
    def retry_timer(self) -> str:
        """The timer of the next attempt."""
        return f"lookup {self.call_id} again"

    @property
    def deadline_timer(self) -> str:
        """The timer of the timeout."""
        return f"lookup {self.call_id} deadline"


class CommittedQuery(_Query):
    """The committed offsets of these partitions."""

    def __init__(self, call_id: int, wanted: tuple[TopicPartition, ...]) -> None:
        super().__init__(call_id, "the committed offsets")
        self.wanted = wanted
        self.wait_for("the group coordinator")


class TopicQuery(_Query):
    """The descriptions of these topics; None: of all topics. ``result_of`` makes the result of the
    topics that exist."""

    def __init__(
        self,
        call_id: int,
        topics: tuple[str, ...] | None,
        result_of: Callable[[dict[str, TopicDescription]], object],
    ) -> None:
        super().__init__(
            call_id,
            "all topics" if topics is None else f"topic {', '.join(map(repr, topics))}",
        )
        self.topics = topics
        self.result_of = result_of
        self.denied: frozenset[str] = frozenset()

    def note_denied(self, topics: frozenset[str]) -> None:
        """A broker has responded that there are no such topics."""
        self.denied |= topics


class TimestampQuery(_Query):
    """Offsets by timestamp: those found so far, and leaders that the cluster metadata lacks."""

    def __init__(self, call_id: int, wanted: dict[TopicPartition, int]) -> None:
        super().__init__(call_id, "offsets")
        self.wanted = wanted
        self.found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        self.leaders: dict[TopicPartition, tuple[Node, int]] = {}
        self.outstanding = 0
        self.trouble: dict[ErrorCode, list[TopicPartition]] = {}

    def begin_attempt(self, requests: int) -> None:
        """This many requests are sent."""
        self.outstanding = requests
        self.trouble = {}

    def response_received(self) -> None:
        """The response to one of them was received."""
        self.outstanding -= 1

    def offset_found(self, listed: ListedOffset) -> None:
        """A leader has listed an offset; -1 if no record has such a timestamp."""
        found = OffsetAndTimestamp(listed.offset, listed.timestamp, listed.leader_epoch)
        self.found[listed.partition] = found if listed.offset >= 0 else None

    def failed(self, error: ErrorCode, partitions: Iterable[TopicPartition]) -> None:
        """These need another attempt."""
        self.trouble.setdefault(error, []).extend(partitions)

    def forget_leaders(self) -> None:
        """The next attempt asks the cluster for them."""
        self.leaders.clear()

    def learn(self, response: MetadataResponse) -> None:
        """Take leaders from this response."""
        nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port)
            for broker in response.brokers
        }
        for topic in response.topics:
            for partition in topic.partitions:
                node = nodes.get(partition.leader_id)
                if node is not None:
                    at = TopicPartition(topic.name, partition.partition)
                    self.leaders[at] = (node, partition.leader_epoch)


PendingQuery: TypeAlias = CommittedQuery | TopicQuery | TimestampQuery
