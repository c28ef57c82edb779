"""The fetches from one broker: a long poll, and a short one for what must not wait behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from asyncrevoke.backoff import Backoff
from asyncrevoke.core.fetch.cursor import PartitionCursor
from asyncrevoke.core.fetch.session import FetchSession
from asyncrevoke.core.io.effects import Channel, Node
from asyncrevoke.core.partition.record_buffer import RecordBuffer
from asyncrevoke.model import TopicPartition

# How long the short one waits at most: so long may a partition that is new wait for its turn.
_SHORT_WAIT = 0.1
# What joins the long poll at its next turn is not asked for again just before that.
_ALMOST_OVER = 0.02
_AHEAD = 0.005
_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.5
_FIRST_BACKOFF = 0.1
# Shorter than a single partition's: nothing of this broker flows before it is tried again.
_LONGEST_BACKOFF = 2.0
_SMALLEST_ANSWER = 64 * 1024
_NEVER = float("inf")


class FetchTarget(NamedTuple):
    """What one partition was asked for. The answer counts only if all of it still holds."""

    cursor: PartitionCursor
    buffer: RecordBuffer
    offset: int


class InFlightFetch(NamedTuple):
    """A fetch under way. ``reserved`` is the bytes that its answer may bring; ``over_budget`` says
    that they go beyond the budget, ``session`` is the one that it belongs to, and ``partial`` says
    that its answer leaves out what has not changed."""

    node: Node
    channel: Channel
    sent_at: float
    max_wait: float
    reserved: int
    over_budget: bool
    targets: Mapping[TopicPartition, FetchTarget]
    session: FetchSession | None = None
    partial: bool = False


class BrokerFetches:
    """One broker's partitions: those to ask for next, those that have enough, and the flights.

    Partitions without new data stand in a long poll, which may be parked at the broker. Whatever
    is to be fetched meanwhile (a partition that is new, or was drained) goes by a short one on a
    connection of its own; busy partitions stay there, so that the long poll lists the quiet ones.
    """

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        # In the order in which they are asked for: brokers fill an answer in this order.
        self.needs_fetch: dict[PartitionCursor, None] = {}
        self.sufficiently_buffered: dict[PartitionCursor, None] = {}
        self.in_flight: dict[Channel, InFlightFetch] = {}
        # Of the long poll; what is busy changes with each fetch.
        self.session = FetchSession()
        self.not_before = 0.0
        # Bytes that an answer may bring over this link, None without a limit.
        self.max_response_bytes: int | None = None
        self._backoff = Backoff(_FIRST_BACKOFF, _LONGEST_BACKOFF)
        # After answers with nothing that came at once.
        self._pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)

    @property
    def is_empty(self) -> bool:
        """Whether it holds nothing, so that it can be forgotten."""
        return not self.needs_fetch and not self.sufficiently_buffered and not self.in_flight

    def is_due(self, now: float) -> bool:
        """Whether a fetch may be sent now."""
        return bool(self.needs_fetch) and self.due_at(now) <= now

    def due_at(self, now: float) -> float:
        """When a fetch may be sent if nothing else happens; only if there is one to send."""
        if len(self.in_flight) == 2:
            return _NEVER
        if not self._long_poll_ends_soon(now) or any(cursor.busy for cursor in self.needs_fetch):
            return self.not_before
        return max(self.not_before, self._overdue_at)

    @property
    def _overdue_at(self) -> float:
        long_poll = self.in_flight[Channel.FETCH]
        return long_poll.sent_at + long_poll.max_wait + _SHORT_WAIT

    def _long_poll_ends_soon(self, now: float) -> bool:
        """Whether the long poll is about to end, so that what is quiet can wait to join it."""
        long_poll = self.in_flight.get(Channel.FETCH)
        if long_poll is None or now - long_poll.sent_at < long_poll.max_wait - _ALMOST_OVER:
            return False
        return now < self._overdue_at

    def next_fetch(
        self, now: float, longest: float
    ) -> tuple[Channel, float, list[PartitionCursor]]:
        """The channel of the next fetch, how long the broker may wait for data, and for whom."""
        long_poll = self.in_flight.get(Channel.FETCH)
        if long_poll is None:
            quiet = [cursor for cursor in self.needs_fetch if not cursor.busy]
            if not quiet or Channel.FETCH_BUSY in self.in_flight:
                quiet = list(self.needs_fetch)
            return Channel.FETCH, longest, quiet
        wait = min(_SHORT_WAIT, longest, long_poll.sent_at + long_poll.max_wait - now - _AHEAD)
        joins = self._long_poll_ends_soon(now)
        return (
            Channel.FETCH_BUSY,
            max(wait, _AHEAD),
            [cursor for cursor in self.needs_fetch if cursor.busy or not joins],
        )

    def failed(self, now: float) -> None:
        """The broker could not be asked: wait, longer each time."""
        self.not_before = now + self._backoff.failed()

    def limit_response_size(self, fetch: InFlightFetch) -> None:
        """The answer did not come in time: the link may be too slow for one of that size."""
        self.max_response_bytes = max(fetch.reserved // 2, _SMALLEST_ANSWER)

    def answered(self, now: float, fetch: InFlightFetch, *, fruitless: bool) -> None:
        """A broker that answers at once, and with nothing, is not asked again at once."""
        self._backoff.succeeded()
        if self.max_response_bytes is not None and not fruitless:
            self.max_response_bytes = (
                self.max_response_bytes * 2 if self.max_response_bytes < 2**30 else None
            )
        if not fruitless or now - fetch.sent_at >= fetch.max_wait / 2:
            self._pause.succeeded()
        else:
            self.not_before = now + self._pause.failed()
