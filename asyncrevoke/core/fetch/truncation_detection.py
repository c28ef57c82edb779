"""Whether a partition's new leader still has what was read from an older one (KIP-320).

An election among replicas that lag behind (an unclean one) cuts the log, and what was read after
the cut is not in it any more. The offsets there are given to other records, so that reading on
would skip those. Hence, before the first fetch from a leader of a later epoch, it is asked where
the epoch ends to which the last record belongs that was read; a committed offset has that epoch,
too. Where the epoch is unknown (an offset that was sought, or committed by a client that leaves
it out), nothing can be checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.core.fetch.cursor import FIRST_BACKOFF
from asyncrevoke.core.io.effects import Channel, Failed, FailureKind, Node
from asyncrevoke.core.partition.record_buffer import RecordBuffer
from asyncrevoke.errors import AuthenticationError, PartitionsError, TopicAuthorizationError
from asyncrevoke.protocol.messages import (
    EpochQuery,
    ErrorCode,
    OffsetsForLeaderEpochRequest,
    OffsetsForLeaderEpochResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.fetch.cursor import FetchSource
    from asyncrevoke.core.io.outbox import Outbox, Reply
    from asyncrevoke.core.io.wait_log import WaitLog
    from asyncrevoke.core.metadata.cluster import Cluster
    from asyncrevoke.protocol.messages import EpochEnd

_SLOW = 10.0
# Old metadata does not stay longer; a topic that was created anew has lower epochs for ever.
_TRIES_FOR_METADATA = 4
_PASSING = frozenset((ErrorCode.unknown_server_error, ErrorCode.broker_not_available))


class Query(NamedTuple):
    """What was asked for one source; the answer counts only if all of it still holds."""

    buffer: RecordBuffer
    position: int
    # Up to where the log was read, which is beyond ``position`` while something is read again.
    read_to: int
    epoch: int
    leader: Node
    leader_epoch: int


class EpochChecks:
    """Asks the leaders. ``home`` holds the sources that wait for an answer, or to be asked for.

    The composer sets ``on_checked(now, source)`` (it may be fetched for), ``on_truncated(now,
    source, offset, epoch)`` (the log ends at ``offset``, before what was fetched; None if the
    leader does not know), ``on_delayed(source)`` (to be checked later) and ``on_error``.
    """

    def __init__(
        self, outbox: Outbox, config: ConsumerConfig, cluster: Cluster, log: WaitLog
    ) -> None:
        self._outbox = outbox
        self._config = config
        self._cluster = cluster
        self._log = log
        self.home: dict[FetchSource, None] = {}
        self._asked: dict[FetchSource, Query] = {}
        self._due: dict[FetchSource, None] = {}
        self.on_checked: Callable[[float, FetchSource], None] = lambda _now, _source: None
        self.on_truncated: Callable[[float, FetchSource, int | None, int], None] = (
            lambda _now, _source, _offset, _epoch: None
        )
        self.on_delayed: Callable[[FetchSource], None] = lambda _source: None
        self.on_error: Callable[[float, Exception], None] = lambda _now, _error: None

    def hold(self, now: float, source: FetchSource, buffer: RecordBuffer) -> bool:
        """Whether this source must not be fetched for yet; it then has a place here, or waits."""
        if source.leader is None or buffer.checked_epoch >= source.leader[1]:
            return False
        node, leader_epoch = source.leader
        # What is read again lies before what was read: the log may have been cut in between.
        ledger = source.instance.ledger
        position, epoch = buffer.fetch_position, buffer.fetch_epoch
        if ledger is not None and ledger.rereads and ledger.position > position:
            position, epoch = ledger.position, ledger.position_epoch
        if epoch < 0 or epoch == leader_epoch:
            # Whatever is fetched from now on is in the log of this leader.
            buffer.checked_epoch = leader_epoch
            return False
        if epoch > leader_epoch:
            return self._awaits_metadata(now, source, epoch, leader_epoch)
        query = Query(buffer, buffer.fetch_position, position, epoch, node, leader_epoch)
        if source.home is not self.home or self._asked.get(source) != query:
            source.move_to(self.home)
            self._asked[source] = query
            self._due[source] = None
        return True

    def _awaits_metadata(
        self, now: float, source: FetchSource, epoch: int, leader_epoch: int
    ) -> bool:
        """What was read is of a later leader than the one we know of, whose log may be shorter."""
        if source.metadata_tries >= _TRIES_FOR_METADATA:
            return False
        source.metadata_tries += 1
        why = f"what was read is of leader epoch {epoch}, and its leader of {leader_epoch}"
        self._cluster.refresh(now, f"{source.name}: {why}")
        self._again(now, source, why)
        return True

    def run(self) -> None:
        """Ask for whatever has come in; costs nothing when there is nothing."""
        if not self._due:
            return
        by_node: dict[Node, dict[FetchSource, Query]] = {}
        for source in self._due:
            query = self._asked.get(source)
            if query is not None and source.home is self.home:
                by_node.setdefault(query.leader, {})[source] = query
            else:
                self._asked.pop(source, None)
        self._due.clear()
        for node, asked in by_node.items():
            self._ask(node, asked)

    def _ask(self, node: Node, asked: dict[FetchSource, Query]) -> None:
        self._outbox.send(
            OffsetsForLeaderEpochRequest(
                queries=tuple(
                    EpochQuery(
                        partition=source.instance.partition,
                        epoch=query.epoch,
                        leader_epoch=query.leader_epoch,
                    )
                    for source, query in asked.items()
                )
            ),
            node,
            Channel.METADATA,
            self._config.request_timeout,
            lambda now, reply: self._answered(now, node, asked, reply),
        )

    def _answered(
        self, now: float, node: Node, asked: dict[FetchSource, Query], reply: Reply
    ) -> None:
        current: dict[FetchSource, Query] = {}
        for source, query in asked.items():
            if self._asked.get(source) is not query:
                continue
            del self._asked[source]
            if source.home is self.home:
                current[source] = query
        match reply:
            case OffsetsForLeaderEpochResponse(ends=ends):
                self._cluster.note_success(node)
                found = {end.partition: end for end in ends}
                for source, query in current.items():
                    self._judge(now, source, query, found.get(source.instance.partition))
            case Failed(kind=FailureKind.UNSUPPORTED):
                # Then nobody can know.
                for source, query in current.items():
                    self._passed(now, source, query)
            case _:
                why = f"unexpected {type(reply).__name__}"
                if isinstance(reply, Failed):
                    why = reply.detail or reply.kind.value
                    self._cluster.note_failure(node)
                    if reply.kind is FailureKind.AUTHENTICATION:
                        self.on_error(now, AuthenticationError(why))
                self._cluster.refresh(now, f"leader epochs from broker {node.node_id}: {why}")
                for source in current:
                    self._again(now, source, why)

    def _judge(self, now: float, source: FetchSource, query: Query, found: EpochEnd | None) -> None:
        buffer = query.buffer
        if source.instance.buffer is not buffer or buffer.fetch_position != query.position:
            # It was sought elsewhere, or discarded.
            self.on_checked(now, source)
        elif found is None:
            self._again(now, source, "the answer leaves it out")
        elif found.error is not ErrorCode.none:
            self._refused(now, source, found.error)
        elif found.epoch < 0 or found.offset < 0:
            self.on_truncated(now, source, None, -1)
        else:
            offset = buffer.diverges_at(found.epoch, found.offset)
            ledger = source.instance.ledger
            if ledger is not None and query.read_to > query.position:
                offset = min(offset, ledger.diverges_at(found.epoch))
            if offset < query.read_to:
                self.on_truncated(now, source, offset, found.epoch)
            else:
                self._passed(now, source, query)

    def _passed(self, now: float, source: FetchSource, query: Query) -> None:
        query.buffer.checked_epoch = query.leader_epoch
        source.complained = False
        source.metadata_tries = 0
        self._log.over(now, source.name, "fetching again", partition=source.name)
        self.on_checked(now, source)

    def _refused(self, now: float, source: FetchSource, error: ErrorCode) -> None:
        if error.retriable or error in _PASSING:
            self._cluster.refresh(now, f"leader epochs of {source.name}: {error.name}")
            self._again(now, source, error.name)
            return
        if not source.complained:
            source.complained = True
            partition = source.instance.partition
            if error is ErrorCode.topic_authorization_failed:
                self.on_error(now, TopicAuthorizationError([partition]))
            else:
                message = f"{source.name}: the broker refuses to check its position: {error.name}"
                self.on_error(now, PartitionsError([partition], message))
        self._again(now, source, error.name)
        source.not_before = now + _SLOW

    def _again(self, now: float, source: FetchSource, why: str) -> None:
        # A leader that moves is nothing to warn of.
        if source.backoff != FIRST_BACKOFF:
            self._log.waiting(
                now, source.name, "waiting to check its position", partition=source.name, reason=why
            )
        source.delay(now)
        self.on_delayed(source)
