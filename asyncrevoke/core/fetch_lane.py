"""The fetches from one broker: one at a time, and how long each may wait there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from asyncrevoke.core.buffer import RecordBuffer
from asyncrevoke.core.effects import Node
from asyncrevoke.core.fetch_source import FIRST_BACKOFF, FetchSource
from asyncrevoke.model import TopicPartition

_SHORTEST_WAIT = 0.005
_FIRST_WAIT = 0.01
# Shorter than a single partition's: nothing of this broker flows before it is tried again.
_LONGEST_BACKOFF = 2.0


class Asked(NamedTuple):
    """What one partition was asked for. The answer counts only if all of it still holds."""

    source: FetchSource
    buffer: RecordBuffer
    offset: int


class Flight(NamedTuple):
    """A fetch under way. ``reserved`` is the bytes that its answer may bring."""

    node: Node
    sent_at: float
    max_wait: float
    reserved: int
    others_full: bool
    asked: Mapping[TopicPartition, Asked]


class Lane:
    """One broker's partitions: those to ask for next, those that have enough, and the flight."""

    __slots__ = (
        "_backoff",
        "_fruitless",
        "_wait",
        "flight",
        "full",
        "hungry",
        "node_id",
        "not_before",
        "starved",
    )

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        # In the order in which they are asked for: brokers fill an answer in this order.
        self.hungry: dict[FetchSource, None] = {}
        self.full: dict[FetchSource, None] = {}
        self.flight: Flight | None = None
        # Whether a partition ran dry while the flight was waiting for others.
        self.starved = False
        self.not_before = 0.0
        self._wait = _FIRST_WAIT
        self._backoff = FIRST_BACKOFF
        self._fruitless = 0

    @property
    def is_empty(self) -> bool:
        """Whether it holds nothing, so that it can be forgotten."""
        return not self.hungry and not self.full and self.flight is None

    def is_due(self, now: float) -> bool:
        """Whether a fetch may be sent now."""
        return bool(self.hungry) and self.flight is None and self.not_before <= now

    def max_wait(self, longest: float) -> float:
        """How long the broker may wait for data: while some partitions have enough and may run
        dry meanwhile, not for long."""
        return min(self._wait, longest) if self.full else longest

    def landed(self, flight: Flight, longest: float) -> None:
        """The flight is over: if it kept a dry partition waiting, the next one waits shorter."""
        self.flight = None
        if flight.others_full:
            if self.starved:
                self._wait = max(self._wait / 4, _SHORTEST_WAIT)
            else:
                self._wait = min(self._wait * 1.2, longest)

    def failed(self, now: float) -> None:
        """The broker could not be asked: wait, longer each time."""
        self.not_before = now + self._backoff
        self._backoff = min(self._backoff * 2, _LONGEST_BACKOFF)

    def answered(self, now: float, flight: Flight, *, fruitless: bool) -> None:
        """A broker that answers at once, and with nothing, is not asked again at once."""
        self._backoff = FIRST_BACKOFF
        if not fruitless or now - flight.sent_at >= flight.max_wait / 2:
            self._fruitless = 0
        else:
            self._fruitless = min(self._fruitless + 1, 10)
            self.not_before = now + min(_SHORTEST_WAIT * 2**self._fruitless, 0.5)
