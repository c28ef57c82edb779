"""The fetches from one broker: a long poll, and a short one beside it. A long poll has a fetch
session (KIP-227)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.core.fetch.cursor import PartitionCursor
from asyncrevoke.client.core.io.effects import Channel, Node
from asyncrevoke.client.core.partition.record_buffer import RecordBuffer
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.dialects.dialect import LONGEST_THROTTLE_TIME
from asyncrevoke.client.protocol.messages import ErrorCode, FetchPartition, FetchRequest

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.fetch.reactions import FetchReactions
    from asyncrevoke.client.core.io.outbox import Outbox, Reply

# Seconds that the broker may hold the short fetch, and a new partition may wait for its turn.
_SHORT_WAIT = 0.1
# A partition that joins the next long poll is not fetched just before it.
_ALMOST_OVER = 0.02
_AHEAD = 0.005
_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.5
_FIRST_BACKOFF = 0.1
# Shorter than a partition's: nothing of this broker is fetched before the next attempt.
_LONGEST_BACKOFF = 2.0
_SMALLEST_RESPONSE = 64 * 1024
_NEVER = float("inf")
# A broker responds so when it has evicted the session.
NO_SUCH_SESSION = frozenset(
    (
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    )
)
_FIRST_EPOCH = 0
_LAST_EPOCH = 2**31 - 1
_FINAL_EPOCH = -1
# Brokers evict idle sessions anyway: closing waits no longer for it.
_LONGEST_END = 1.0


class SessionFetch(NamedTuple):
    """The fields of one fetch in a session. With epoch 0 it names all partitions."""

    session_id: int
    epoch: int
    partitions: tuple[FetchPartition, ...]
    forgotten: tuple[TopicPartition, ...]
    topic_ids: dict[str, bytes] | None = None

    def request(
        self, config: ConsumerConfig, max_wait: float, max_bytes: int, rack: str
    ) -> FetchRequest:
        """The request with these fields."""
        return FetchRequest(
            partitions=self.partitions,
            max_wait=max_wait,
            min_bytes=max(config.fetch_min_bytes, 1),
            max_bytes=max_bytes,
            read_committed=config.isolation_level == "read_committed",
            rack=rack,
            session_id=self.session_id,
            session_epoch=self.epoch,
            forgotten=self.forgotten,
            topic_ids=self.topic_ids,
        )


class FetchSession:
    """The session on one connection: a request names only the partitions that have changed.

    Without it, each long poll and its response would name all quiet partitions. Even eight
    partitions take twice the time to encode and decode for a single record.

    The fetches of a session are numbered, so that each uses the same connection as the one before.
    After any failure the session starts anew, with all partitions. A broker without room for a
    session responds without an id; the next fetch tries again.
    """

    def __init__(self) -> None:
        self._id = 0
        self._epoch = _FIRST_EPOCH
        # What the broker knows of the request.
        self._known: dict[TopicPartition, FetchPartition] = {}
        self._topic_ids: dict[str, bytes] | None = None

    def next_fetch(
        self, wanted: Mapping[TopicPartition, FetchPartition], topic_ids: dict[str, bytes] | None
    ) -> SessionFetch:
        """The fields to fetch ``wanted``; the same object as before has not changed. ``topic_ids``
        has those of all topics; None: the request uses names."""
        known, self._known = self._known, dict(wanted)
        known_ids, self._topic_ids = self._topic_ids, topic_ids
        if topic_ids != known_ids and _contradict(topic_ids, known_ids):
            # A session uses ids or names, and a name keeps its id.
            self.restart()
        if self._epoch == _FIRST_EPOCH:
            return SessionFetch(self._id, self._epoch, tuple(wanted.values()), (), topic_ids)
        forgotten = tuple(tp for tp in known if tp not in wanted)
        if forgotten and topic_ids is not None and known_ids is not None:
            topic_ids = known_ids | topic_ids
        return SessionFetch(
            self._id,
            self._epoch,
            tuple(asked for tp, asked in wanted.items() if known.get(tp) is not asked),
            forgotten,
            topic_ids,
        )

    def response_received(self, session_id: int) -> None:
        """The response to a fetch of the session was received."""
        self._id = session_id
        if not session_id:
            self._epoch = _FIRST_EPOCH
        else:
            # After the last epoch comes the first that does not begin a session.
            self._epoch = self._epoch + 1 if self._epoch < _LAST_EPOCH else 1

    def restart(self) -> None:
        """A fetch failed, and the broker may have seen it: the next one replaces the session."""
        self._epoch = _FIRST_EPOCH

    def forget(self) -> None:
        """The broker does not know the session, or knows another epoch of it."""
        self._id = 0
        self._epoch = _FIRST_EPOCH

    def end(self) -> SessionFetch | None:
        """The fields that end the session; None if there is none."""
        if not self._id:
            return None
        named = SessionFetch(self._id, _FINAL_EPOCH, (), (), self._topic_ids)
        self.forget()
        return named


def _contradict(ids: dict[str, bytes] | None, others: dict[str, bytes] | None) -> bool:
    if ids is None or others is None:
        return True
    return any(others.get(topic, topic_id) != topic_id for topic, topic_id in ids.items())


def end_sessions(
    outbox: Outbox, sessions: Iterable[tuple[Node, FetchSession]], reactions: FetchReactions
) -> bool:
    """End these sessions; returns whether there are any. ``sessions_ended`` is reported when all
    brokers have responded, or after a second.

    A broker has room for 1,000 sessions, and evicts idle ones only after minutes. The request uses
    the other connection, since a long poll may be held on the session's own.
    """
    waiting: set[Node] = set()

    def ended(node: Node, _now: float, _reply: Reply) -> None:
        waiting.discard(node)
        if not waiting:
            reactions.sessions_ended()

    for node, session in sessions:
        named = session.end()
        if named is not None:
            waiting.add(node)
            message = FetchRequest(
                partitions=(),
                max_wait=0.0,
                min_bytes=0,
                max_bytes=0,
                read_committed=False,
                session_id=named.session_id,
                session_epoch=named.epoch,
                topic_ids=named.topic_ids,
            )
            outbox.send(message, node, Channel.FETCH_BUSY, _LONGEST_END, partial(ended, node))
    return bool(waiting)


def all_known(ids: dict[str, bytes | None]) -> dict[str, bytes] | None:
    """The ids if all are known, else None: the request uses names."""
    known = {topic: topic_id for topic, topic_id in ids.items() if topic_id is not None}
    return known if len(known) == len(ids) else None


class FetchTarget(NamedTuple):
    """What one partition was asked for. The response counts only if all of it still holds."""

    cursor: PartitionCursor
    buffer: RecordBuffer
    offset: int


class InFlightFetch(NamedTuple):
    """A fetch under way. ``reserved`` bytes are counted for its response, ``over_budget`` if beyond
    the budget. ``partial``: its response leaves out partitions that have not changed."""

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
    """One broker's partitions: those to fetch, those that have enough, and the fetches in flight.

    Partitions without new data are in the long poll, which the broker may hold. Those to be fetched
    meanwhile (new, or emptied) go by a short fetch on another connection; busy partitions stay
    there, so that the long poll lists the quiet ones. If all are busy and responses are large, each
    fetch has half of them: the broker prepares one response while the other is received.
    """

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        # In the order in which they are requested: brokers fill a response in this order.
        self.needs_fetch: dict[PartitionCursor, None] = {}
        self.sufficiently_buffered: dict[PartitionCursor, None] = {}
        self.in_flight: dict[Channel, InFlightFetch] = {}
        # For long polls only: busy partitions change with each fetch.
        self.session = FetchSession()
        self.not_before = 0.0
        # Nothing is fetched before, because of a quota (KIP-219).
        self.throttled_until = 0.0
        # Bytes that a response may have on this link, None without a limit.
        self.max_response_bytes: int | None = None
        # Whether the next fetch for busy partitions has half of them.
        self._in_halves = False
        self._backoff = Backoff(_FIRST_BACKOFF, _LONGEST_BACKOFF)
        # After empty responses that came at once.
        self._pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)

    @property
    def is_empty(self) -> bool:
        """Whether it has no partitions and no fetch in flight."""
        return not self.needs_fetch and not self.sufficiently_buffered and not self.in_flight

    def is_due(self, now: float) -> bool:
        """Whether a fetch may be sent now."""
        return bool(self.needs_fetch) and self.due_at(now) <= now

    def due_at(self, now: float) -> float:
        """When a fetch may be sent if nothing else changes; only if there is one to send."""
        if len(self.in_flight) == 2:
            return _NEVER
        earliest = max(self.not_before, self.throttled_until)
        if not self._long_poll_ends_soon(now) or any(cursor.busy for cursor in self.needs_fetch):
            return earliest
        return max(earliest, self._overdue_at)

    @property
    def _overdue_at(self) -> float:
        long_poll = self.in_flight[Channel.FETCH]
        return long_poll.sent_at + long_poll.max_wait + _SHORT_WAIT

    def _long_poll_ends_soon(self, now: float) -> bool:
        """Whether the long poll is about to end, so that quiet partitions can join the next."""
        long_poll = self.in_flight.get(Channel.FETCH)
        if long_poll is None or now - long_poll.sent_at < long_poll.max_wait - _ALMOST_OVER:
            return False
        return now < self._overdue_at

    def next_fetch(
        self, now: float, longest: float
    ) -> tuple[Channel, float, list[PartitionCursor]]:
        """The channel of the next fetch, how long the broker may hold it, and its partitions."""
        long_poll = self.in_flight.get(Channel.FETCH)
        if long_poll is None:
            quiet = [cursor for cursor in self.needs_fetch if not cursor.busy]
            if Channel.FETCH_BUSY in self.in_flight:
                quiet = list(self.needs_fetch)
            elif not quiet:
                quiet = list(self.needs_fetch)
                if self._in_halves:
                    # The rest is the next fetch. A session keeps its half from now on.
                    del quiet[-(-len(quiet) // 2) :]
            return Channel.FETCH, longest, quiet
        wait = min(_SHORT_WAIT, longest, long_poll.sent_at + long_poll.max_wait - now - _AHEAD)
        joins = self._long_poll_ends_soon(now)
        return (
            Channel.FETCH_BUSY,
            max(wait, _AHEAD),
            [cursor for cursor in self.needs_fetch if cursor.busy or not joins],
        )

    def sent(self, fetch: InFlightFetch) -> None:
        """This fetch is in flight from now on."""
        self.in_flight[fetch.channel] = fetch

    def ended(self, fetch: InFlightFetch) -> None:
        """It has failed, or its response is handled."""
        del self.in_flight[fetch.channel]

    def failed(self, now: float) -> None:
        """The fetch failed: wait, longer each time."""
        self.not_before = now + self._backoff.failed()

    def throttled(self, now: float, throttle_time: float) -> None:
        """The broker has returned this throttle time, in seconds."""
        until = now + min(throttle_time, LONGEST_THROTTLE_TIME)
        self.throttled_until = max(self.throttled_until, until)

    def limit_response_size(self, fetch: InFlightFetch) -> None:
        """The response was late: the link may be too slow for this size."""
        self.max_response_bytes = max(fetch.reserved // 2, _SMALLEST_RESPONSE)

    def response_received(
        self, now: float, fetch: InFlightFetch, *, fruitless: bool, in_halves: bool
    ) -> None:
        """A broker that responds at once without records is not asked again at once. ``in_halves``:
        from now on, two fetches share busy partitions."""
        self._backoff.succeeded()
        self._in_halves = in_halves
        if self.max_response_bytes is not None and not fruitless:
            self.max_response_bytes = (
                self.max_response_bytes * 2 if self.max_response_bytes < 2**30 else None
            )
        if not fruitless or now - fetch.sent_at >= fetch.max_wait / 2:
            self._pause.succeeded()
        else:
            self.not_before = now + self._pause.failed()
