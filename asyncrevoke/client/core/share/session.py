"""One share session: the records that this member acquires from one broker, and acknowledges there.

At most one request is outstanding. A second one beside a waiting ShareFetch would have the broker
acquire records for a response that it then refuses: they would be locked for nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.client import log_events
from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.core.io.effects import Channel, Failed, ResetConnection
from asyncrevoke.client.core.io.fatal_error import FATAL_FAILURES, fatal_error
from asyncrevoke.client.core.share.acknowledgements import (
    AcknowledgedRange,
    Acknowledgements,
    to_partition,
)
from asyncrevoke.client.core.share.error_table import SessionErrorAction, session_error_action
from asyncrevoke.client.core.share.fetch_pace import FetchPace
from asyncrevoke.client.core.share.partition_responses import PartitionResponses
from asyncrevoke.client.core.share.state_table import (
    SESSION_TRANSITIONS,
    SessionState,
    SessionTransition,
)
from asyncrevoke.client.protocol.messages import ErrorCode
from asyncrevoke.client.protocol.share_messages import (
    CLOSE_SESSION,
    OPEN_SESSION,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    SharePartition,
    TopicIdPartition,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.io.effects import Node
    from asyncrevoke.client.core.io.outbox import Outbox, Reply
    from asyncrevoke.client.core.share.held_records import HeldRecords
    from asyncrevoke.client.core.share.reactions import ShareReactions
    from asyncrevoke.client.protocol.records import RecordDecoder

_FIRST_BACKOFF = 0.1
_LONGEST_BACKOFF = 2.0
# Records of a batch in the response; smaller ones split what is acquired, and nothing else.
_BATCH_SIZE = 2**31 - 1
_OPENED_BATCH = 2**15
_NO_PARTITIONS: Mapping[TopicIdPartition, str] = {}


class _Outstanding(NamedTuple):
    sent_at: float
    epoch: int
    acknowledged: dict[TopicIdPartition, list[AcknowledgedRange]]
    # What the request adds to the session.
    partitions: frozenset[TopicIdPartition]
    forgotten: frozenset[TopicIdPartition]
    # How many records it may acquire.
    wanted: int


class ShareSession:
    """``fetched`` are the partitions to fetch from ``node``, with the names of their topics.

    :meth:`plan` sends the next request, if there is one to send.
    """

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        node: Node,
        member_id: str,
        held: HeldRecords,
        decode: RecordDecoder,
        reactions: ShareReactions,
    ) -> None:
        self._outbox = outbox
        self._config = config
        self._group_id = config.group_id or ""
        self._member_id = member_id
        self._held = held
        self._reactions = reactions
        self.node = node
        self.state = SessionState.CLOSED
        self.acknowledgements = Acknowledgements(outbox, held)
        self.fetched: Mapping[TopicIdPartition, str] = _NO_PARTITIONS
        # What the broker has in the session.
        self._partitions: set[TopicIdPartition] = set()
        self._epoch = OPEN_SESSION
        self._outstanding: _Outstanding | None = None
        self._not_before = float("-inf")
        self._backoff = Backoff(_FIRST_BACKOFF, _LONGEST_BACKOFF)
        self._pace = FetchPace(exact=config.acquire == "exact")
        self._responses = PartitionResponses(
            outbox, node, held, self.acknowledgements, decode, reactions
        )
        # Topics that have reached their limits.
        self._not_fetched: Collection[str] = ()
        self._closing = False
        # Whether it is opened only when metadata has come.
        self._awaits_metadata = False
        # Whether the broker accepts no further share session.
        self.is_refused = False

    @property
    def _timer(self) -> str:
        return f"share-session-{self.node.node_id}-{self.node.address}"

    @property
    def fetched_at(self) -> float:
        """When it has sent its last fetch that may acquire something."""
        return self._pace.sent_at

    def is_delayed(self, partition: TopicIdPartition) -> bool:
        """Whether this partition is not fetched for a time: after an error, or because its topic
        has reached its limit. The broker forgets it, so what is acquired of it is not released when
        the connection closes, but when its lock passes."""
        is_limited = self.fetched.get(partition) in self._not_fetched
        return is_limited or partition in self._responses.delayed

    @property
    def reserved(self) -> int:
        """How many records the outstanding request may acquire."""
        return 0 if self._outstanding is None else self._outstanding.wanted

    @property
    def is_idle(self) -> bool:
        """Whether nothing is outstanding, acquired or to be acknowledged."""
        return (
            self._outstanding is None
            and not self.acknowledgements
            and not self._held.of_node(self.node)
        )

    @property
    def is_closed(self) -> bool:
        """Whether it has ended, and nothing is outstanding or can be sent."""
        return (
            self.state is SessionState.CLOSED
            and self._outstanding is None
            and not self._to_acknowledge
        )

    @property
    def _to_acknowledge(self) -> frozenset[TopicIdPartition]:
        """The partitions with acknowledgements for which a session can be opened: an unknown topic
        would fail it, after records of other partitions were acquired."""
        return frozenset(
            partition
            for partition in self.acknowledgements.partitions
            if self._reactions.is_leader(self.node, partition)
        )

    def set_partitions(self, partitions: Mapping[TopicIdPartition, str]) -> None:
        """Fetch these from now on, with the names of their topics."""
        self.fetched = partitions
        self._awaits_metadata = False
        if partitions:
            self._closing = False
        self._responses.names.update(partitions)
        self._responses.delayed.keep(partitions)

    # --- sending -------------------------------------------------------------------------------

    def plan(
        self, now: float, room: int, not_fetched: Collection[str] = (), *, may_acquire: bool
    ) -> None:
        """Send what is due: acknowledgements, and a fetch of at most ``room`` records of all topics
        but those that are ``not_fetched`` now."""
        self._not_fetched = not_fetched
        if self._outstanding is not None or self._awaits_metadata:
            return
        if not self._has_come(now, self._not_before):
            return
        due = self._due(now)
        wants = may_acquire and not self._closing and bool(due)
        match self.state:
            case SessionState.CLOSED if wants or self._to_acknowledge:
                self._open(now, due if wants else {}, max(room, 1))
            case SessionState.OPEN if self._closing and not self.acknowledgements:
                self._close(now)
            case SessionState.OPEN:
                self._continue(now, due, room if wants else 0)
            case _:
                pass

    def _has_come(self, now: float, at: float) -> bool:
        if now < at:
            self._outbox.set_timer(self._timer, at, self._wake)
        return now >= at

    def _wake(self, _now: float) -> None:
        """The core plans after each event."""

    def _due(self, now: float) -> dict[TopicIdPartition, str]:
        due, next_at = self._responses.delayed.due(now, self.fetched)
        if next_at is not None:
            self._outbox.set_timer(self._timer, next_at, self._wake)
        if self._not_fetched:
            due = {p: name for p, name in due.items() if name not in self._not_fetched}
        return due

    def _open(self, now: float, due: Mapping[TopicIdPartition, str], room: int) -> None:
        """Open with all partitions. The first fetch of a partition sets the group's start offset,
        if it may acquire a record; no acknowledgement may be in it."""
        self._transition(SessionTransition.OPEN)
        self._epoch = OPEN_SESSION
        self._partitions.clear()
        # To acknowledge what was acquired before, a session needs a partition.
        partitions = frozenset(due) or self._to_acknowledge
        wanted = min(room, _OPENED_BATCH) if due else 0
        self._fetch(now, {}, partitions, frozenset(), wanted, wait=0.0)

    def _continue(self, now: float, due: Mapping[TopicIdPartition, str], room: int) -> None:
        acknowledgements = self.acknowledgements
        holds = self._held.of_node(self.node)
        # Renewals fetch nothing; acknowledgements of partitions that are fetched no more would add
        # these to the session again.
        elsewhere = any(partition not in due for partition in acknowledgements.partitions)
        unfinished = holds - acknowledgements.ending
        last = self._pace.acknowledges_alone and holds > 0 and unfinished == 0
        alone = acknowledgements.renews or elsewhere or last or self._closing
        if not alone and acknowledgements and room <= 0:
            alone = self._has_come(now, self._pace.acknowledge_at)
        if alone:
            taken = acknowledgements.take(lambda _: True, renewals=True)
            if taken:
                self._acknowledge(now, taken, self._epoch)
                return
        if room <= 0:
            return
        fetch_at = self._pace.next_fetch(holds, unfinished, acknowledges=bool(acknowledgements))
        if not self._has_come(now, fetch_at):
            return
        taken = acknowledgements.take(due.__contains__, renewals=False)
        wait = self._pace.wait(now, holds, acknowledges=bool(taken))
        added = frozenset(due.keys() - self._partitions)
        gone = frozenset(
            partition
            for partition in self._partitions - due.keys()
            if not self._held.has(partition, self.node) or self.is_delayed(partition)
        )
        self._fetch(now, taken, added, gone, room, wait=min(wait, self._config.fetch_max_wait))

    def _fetch(
        self,
        now: float,
        taken: dict[TopicIdPartition, list[AcknowledgedRange]],
        added: frozenset[TopicIdPartition],
        forgotten: frozenset[TopicIdPartition],
        wanted: int,
        *,
        wait: float,
    ) -> None:
        partitions = [to_partition(partition, taken[partition]) for partition in taken]
        partitions += [SharePartition(partition=p) for p in sorted(added - taken.keys())]
        request = ShareFetchRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            session_epoch=self._epoch,
            partitions=tuple(partitions),
            forgotten=tuple(sorted(forgotten)),
            max_wait=wait,
            min_bytes=1,
            max_bytes=self._config.fetch_max_bytes,
            max_records=wanted,
            batch_size=_BATCH_SIZE,
            exact=self._config.acquire == "exact",
        )
        self._send(now, request, taken, added, forgotten, wanted)

    def _acknowledge(
        self, now: float, taken: dict[TopicIdPartition, list[AcknowledgedRange]], epoch: int
    ) -> None:
        request = ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            session_epoch=epoch,
            partitions=tuple(to_partition(partition, taken[partition]) for partition in taken),
        )
        self._send(now, request, taken, frozenset(), frozenset(), 0)

    def _send(
        self,
        now: float,
        request: ShareFetchRequest | ShareAcknowledgeRequest,
        taken: dict[TopicIdPartition, list[AcknowledgedRange]],
        added: frozenset[TopicIdPartition],
        forgotten: frozenset[TopicIdPartition],
        wanted: int,
    ) -> None:
        self._outbox.cancel_timer(self._timer)
        sent = _Outstanding(now, request.session_epoch, taken, added, forgotten, wanted)
        self._outstanding = sent
        if wanted:
            self._pace.sent(now)
        self._outbox.send(
            request,
            self.node,
            Channel.SHARE,
            self._config.request_timeout,
            lambda later, reply: self._response_received(later, sent, reply),
        )

    # --- closing -------------------------------------------------------------------------------

    def close(self) -> None:
        """Acquire nothing more. :meth:`plan` closes it, after its acknowledgements."""
        self._closing = True

    def _close(self, now: float) -> None:
        """What is still acquired is released. All acknowledgements have been sent before: one that
        is refused would cost others theirs, which are released at once."""
        self._transition(SessionTransition.CLOSE)
        self._acknowledge(now, {}, CLOSE_SESSION)

    # --- responses -----------------------------------------------------------------------------

    def _response_received(self, now: float, sent: _Outstanding, reply: Reply) -> None:
        self._outstanding = None
        match reply:
            case ShareFetchResponse(error=ErrorCode.none):
                self._opened(sent)
                self._fetched(now, sent, reply)
            case ShareAcknowledgeResponse(error=ErrorCode.none):
                self._opened(sent)
                errors = {entry.partition: entry.error for entry in reply.partitions}
                self._responses.acknowledged(
                    now, sent.sent_at, sent.acknowledged, errors, reply.lock_timeout
                )
            case ShareFetchResponse() | ShareAcknowledgeResponse():
                self._rejected(now, sent, reply.error, reply.detail)
            case Failed() as failed if failed.kind in FATAL_FAILURES:
                self._connection_lost(now, sent, failed.detail)
                self._reactions.share_failed(fatal_error(failed))
            case Failed(kind=kind, detail=detail):
                self._connection_lost(now, sent, detail or kind.value)
            case _:
                self._connection_lost(now, sent, f"unexpected response {type(reply).__name__}")
        if self.is_closed and self._closing:
            self._reactions.session_ended()

    def _opened(self, sent: _Outstanding) -> None:
        """The broker has taken the request: its epoch, partitions and what it forgets count."""
        self._backoff.succeeded()
        self.is_refused = False
        if sent.epoch == CLOSE_SESSION:
            self._transition(SessionTransition.CLOSED)
            return
        if self.state is SessionState.OPENING:
            self._transition(SessionTransition.OPENED)
            self._held.counts.session_opens += 1
        # Epochs count from 1 again after the largest one.
        self._epoch = 1 if sent.epoch == 2**31 - 1 else sent.epoch + 1
        self._partitions -= sent.forgotten
        self._partitions |= sent.partitions

    def _rejected(self, now: float, sent: _Outstanding, error: ErrorCode, detail: str) -> None:
        action = session_error_action(error)
        self.is_refused = error is ErrorCode.share_session_limit_reached
        if action is SessionErrorAction.FAIL:
            self._connection_lost(now, sent, error.name)
            self._reactions.group_refused(error, detail)
            return
        self._outbox.emit(
            log_events.SHARE_REQUEST_REJECTED,
            node=self.node.node_id,
            error=error.name,
            detail=detail,
        )
        if action is SessionErrorAction.REFUSED:
            for partition, ranges in sent.acknowledged.items():
                self.acknowledgements.refused(partition, ranges, with_request=True)
            self._delay(now)
            if sent.epoch in (OPEN_SESSION, CLOSE_SESSION):
                self._transition(SessionTransition.EPOCH_UNKNOWN)
            return
        for partition, ranges in sent.acknowledged.items():
            # They can be sent again in a new session; those that were applied are then refused.
            self.acknowledgements.returned(partition, ranges)
        self._transition(SessionTransition.EPOCH_UNKNOWN)
        if action is SessionErrorAction.OPEN_LATER:
            self._awaits_metadata = True
            self._reactions.leader_unknown(now, f"ShareFetch: {error.name}")
            self._delay(now)

    def _connection_lost(self, now: float, sent: _Outstanding, why: str) -> None:
        """The session has ended with its connection, and so have all locks."""
        self._outbox.put(ResetConnection(self.node, Channel.SHARE))
        for ranges in sent.acknowledged.values():
            self.acknowledgements.no_response(ranges)
        self.acknowledgements.clear()
        why = f"the connection of the session is closed: {why}"
        self._held.lose_node(self.node, "connection_closed", why)
        self._transition(SessionTransition.CONNECTION_LOST)
        self._reactions.leader_unknown(now, f"broker {self.node.node_id} does not respond")
        self._delay(now)

    def give_up(self) -> None:
        """Send no more acknowledgements: what is acquired returns by itself."""
        self.acknowledgements.clear()
        self._held.lose_node(self.node, "session_ended", "the session has ended while closing")

    def leave(self) -> None:
        """The time to close is over: drop the connection, which releases what is acquired."""
        outstanding, self._outstanding = self._outstanding, None
        if outstanding is not None:
            for ranges in outstanding.acknowledged.values():
                self.acknowledgements.no_response(ranges)
        self._outbox.put(ResetConnection(self.node, Channel.SHARE))
        self._transition(SessionTransition.CONNECTION_LOST)
        self.give_up()

    def _transition(self, transition: SessionTransition) -> None:
        self.state = SESSION_TRANSITIONS[self.state, transition]

    def _delay(self, now: float) -> None:
        self._not_before = now + self._backoff.failed()

    def _fetched(self, now: float, sent: _Outstanding, reply: ShareFetchResponse) -> None:
        errors = {entry.partition: entry.acknowledge_error for entry in reply.partitions}
        lock_timeout = reply.lock_timeout
        self._responses.acknowledged(now, sent.sent_at, sent.acknowledged, errors, lock_timeout)
        if sent.wanted:
            self._pace.responded(now, sent.wanted, reply.acquired, self.acknowledgements.ending)
        for fetched in reply.partitions:
            self._responses.fetched(now, sent.sent_at, lock_timeout, fetched)
