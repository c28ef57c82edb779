"""Fetch sessions (KIP-227): a request names only the partitions that have changed.

Without them, each long poll and its response would name all quiet partitions. Even eight
partitions take twice the time to encode and decode for a single record.

The fetches of a session are numbered, so that each uses the same connection as the one before.
After any failure the session starts anew, with all partitions.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.client.core.io.effects import Channel, Node
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import ErrorCode, FetchPartition, FetchRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.fetch.reactions import FetchReactions
    from asyncrevoke.client.core.io.outbox import Outbox, Reply

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
    """The session on one connection. A broker without room for it responds without an id; the next
    fetch tries again."""

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
