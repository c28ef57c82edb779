"""One look-up of a user that is not answered yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.backoff import Backoff
from asyncrevoke.core.io.effects import Node
from asyncrevoke.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.model import OffsetAndTimestamp
    from asyncrevoke.protocol.messages import ErrorCode, MetadataResponse

_FIRST_BACKOFF = 0.1
_LONGEST_BACKOFF = 2.0


class PendingQuery:
    """One ticket that is not answered yet."""

    def __init__(self, now: float, ticket: int, what: str, ask: Callable[[float], None]) -> None:
        self.ticket = ticket
        self.what = what
        self.ask = ask
        self.started = now
        self.backoff = Backoff(_FIRST_BACKOFF, _LONGEST_BACKOFF)
        self.waits_for = "an answer"
        self.denied = 0

    def wait_for(self, what: str) -> None:
        """What the answer depends on now, for the error of a query that takes too long."""
        self.waits_for = what

    def count_denial(self) -> None:
        """A broker has answered that there is no such topic."""
        self.denied += 1

    @property
    def retry_timer(self) -> str:
        """The timer of the next attempt."""
        return f"lookup {self.ticket} again"

    @property
    def deadline_timer(self) -> str:
        """The timer of its end."""
        return f"lookup {self.ticket} deadline"


class OffsetSearch:
    """The offsets found so far, and the leaders that the cluster view lacks."""

    def __init__(self, wanted: dict[TopicPartition, int]) -> None:
        self.wanted = wanted
        self.found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        self.leaders: dict[TopicPartition, tuple[Node, int]] = {}
        self.outstanding = 0
        self.trouble: dict[ErrorCode, list[TopicPartition]] = {}

    def begin_attempt(self, requests: int) -> None:
        """So many requests are sent."""
        self.outstanding = requests
        self.trouble = {}

    def answered(self) -> None:
        """One of them was answered."""
        self.outstanding -= 1

    def learn(self, answer: MetadataResponse) -> None:
        """Learn who leads what."""
        nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port)
            for broker in answer.brokers
        }
        for topic in answer.topics:
            for partition in topic.partitions:
                node = nodes.get(partition.leader_id)
                if node is not None:
                    at = TopicPartition(topic.name, partition.partition)
                    self.leaders[at] = (node, partition.leader_epoch)
