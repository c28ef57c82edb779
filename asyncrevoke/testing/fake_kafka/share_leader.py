"""The share sessions at one broker, and its responses to ShareFetch and ShareAcknowledge (KIP-932).

A session is one of a member, and ends with the connection that has opened it: then its records are
available at once. A ShareFetch that waits acquires when it responds, whatever has become of its
session meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from asyncrevoke.client.protocol.messages import BrokerMetadata, ErrorCode
from asyncrevoke.client.protocol.share_messages import (
    CLOSE_SESSION,
    OPEN_SESSION,
    AcknowledgeType,
    ShareAcknowledgedPartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchedPartition,
    ShareFetchRequest,
    ShareFetchResponse,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from asyncrevoke.client.protocol.share_messages import (
        AcquiredRange,
        TopicIdPartition,
    )
    from asyncrevoke.client.protocol.share_messages import (
        SharePartition as RequestedPartition,
    )
    from asyncrevoke.testing.fake_kafka.clock import Alarm, Clock
    from asyncrevoke.testing.fake_kafka.group_state import Reply
    from asyncrevoke.testing.fake_kafka.share_partition import SharePartition

LONGEST_MEMBER_ID = 36
_LARGEST_EPOCH = 2**31 - 1


class SharePartitions(Protocol):
    """The partitions of all topics, with the state that one group has there. Implemented by
    ``ShareBrokers`` of the simulation."""

    def find(self, partition: TopicIdPartition) -> SharePartition | None:
        """The state of a partition; None if no topic has this id."""
        ...

    def is_initialized(self, partition: TopicIdPartition) -> bool:
        """Whether the coordinator has ever assigned it to a member of the group."""
        ...

    def address(self, broker: int) -> BrokerMetadata | None:
        """Where a broker is; None while it is not running."""
        ...

    def next_acquisition(self) -> int:
        """A number for the next response that acquires records."""
        ...


@dataclass(slots=True)
class ShareSession:
    """``epoch`` is that of the next request. ``connection`` has opened it."""

    epoch: int
    connection: Hashable
    partitions: dict[TopicIdPartition, None] = field(default_factory=dict)


class ShareLeader:
    """One broker. ``limit`` is its ``group.share.max.share.sessions``. ``fails_whole``: as Apache
    Kafka 4.3, a topic id that it does not know fails the response, after records were acquired."""

    def __init__(
        self,
        clock: Clock,
        broker: int,
        partitions: SharePartitions,
        *,
        limit: int = 2000,
        fails_whole: bool = False,
    ) -> None:
        self.broker = broker
        self.limit = limit
        self.fails_whole = fails_whole
        self.sessions: dict[str, ShareSession] = {}
        self._clock = clock
        self._partitions = partitions
        self._waiting: dict[_WaitingFetch, None] = {}
        # Partitions of which it has acquired records.
        self._seen: dict[TopicIdPartition, None] = {}
        self._expiry: Alarm | None = None

    def restart(self) -> None:
        """The broker has stopped: its sessions and what waits are gone, its locks with leaders."""
        self.sessions.clear()
        for fetch in self._waiting:
            fetch.drop()
        self._waiting.clear()

    def connection_closed(self, connection: Hashable) -> None:
        """A client's connection has closed: fetches of its session that wait acquire nothing."""
        for member, session in list(self.sessions.items()):
            if session.connection == connection:
                for fetch in [fetch for fetch in self._waiting if fetch.session is session]:
                    fetch.drop()
                    self.waits_no_more(fetch)
                self.end(member)

    def end(self, member: str) -> None:
        """End a session: what it has acquired is released. Partitions that are not in it any more
        keep their locks."""
        session = self.sessions.pop(member)
        for partition in session.partitions:
            if (found := self._led(partition)) is not None:
                found.release(member)

    def _led(self, partition: TopicIdPartition) -> SharePartition | None:
        found = self._partitions.find(partition)
        return found if found is not None and found.log.leader_id == self.broker else None

    # --- locks -----------------------------------------------------------------------------------

    def _watch_locks(self, partition: SharePartition) -> None:
        """Let the locks of this partition pass in time."""
        at = partition.next_deadline
        if at == float("inf") or (
            self._expiry is not None and self._expiry.action is not None and self._expiry.at <= at
        ):
            return
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = self._clock.at(at, self._locks_due)

    def _locks_due(self) -> None:
        passed = False
        led = [found for partition in self._seen if (found := self._led(partition)) is not None]
        for found in led:
            passed = found.expire(self._clock.now) or passed
        for found in led:
            self._watch_locks(found)
        if passed:
            self._wake()

    def _wake(self) -> None:
        for fetch in list(self._waiting):
            fetch.retry()

    def waits(self, fetch: _WaitingFetch, session: ShareSession) -> None:
        """A fetch waits for records in the partitions of its session."""
        self._waiting[fetch] = None
        for partition in session.partitions:
            if (found := self._led(partition)) is not None:
                found.log.waiting.append(fetch.retry)

    def waits_no_more(self, fetch: _WaitingFetch) -> None:
        """It responds, or never will."""
        self._waiting.pop(fetch, None)

    # --- requests --------------------------------------------------------------------------------

    def handle(
        self,
        message: ShareFetchRequest | ShareAcknowledgeRequest,
        connection: Hashable,
        reply: Reply,
    ) -> None:
        """Respond to a request that has come over this connection."""
        if isinstance(message, ShareFetchRequest):
            self._fetch(message, connection, reply)
        else:
            reply(self._acknowledge(message))

    def _check(self, member: str, epoch: int) -> ErrorCode:
        session = self.sessions.get(member)
        if session is None:
            return ErrorCode.share_session_not_found
        if epoch not in (CLOSE_SESSION, session.epoch):
            return ErrorCode.invalid_share_session_epoch
        return ErrorCode.none

    def _fetch(self, message: ShareFetchRequest, connection: Hashable, reply: Reply) -> None:
        error = self._begin_fetch(message, connection)
        if error is not ErrorCode.none:
            reply(ShareFetchResponse(error=error))
            return
        member, epoch = message.member_id, message.session_epoch
        session = self.sessions[member]
        for gone in message.forgotten:
            session.partitions.pop(gone, None)
        errors = self._apply(member, message.partitions)
        session.partitions.update({entry.partition: None for entry in message.partitions})
        if epoch == CLOSE_SESSION:
            self.end(member)
            reply(self._fetched({}, {}, errors))
            return
        session.epoch = 1 if session.epoch == _LARGEST_EPOCH else session.epoch + 1
        _WaitingFetch(self, self._clock, message, session, errors, reply).begin()

    def _begin_fetch(self, message: ShareFetchRequest, connection: Hashable) -> ErrorCode:
        """Open or check the session; with an error, nothing has changed."""
        member = message.member_id
        types = {b.type for entry in message.partitions for b in entry.acknowledgements}
        if not 0 < len(member) <= LONGEST_MEMBER_ID:
            return ErrorCode.invalid_request
        if AcknowledgeType.RENEW in types and (message.max_records or message.max_wait):
            return ErrorCode.invalid_request
        if message.session_epoch != OPEN_SESSION:
            return self._check(member, message.session_epoch)
        if types:
            return ErrorCode.invalid_request
        if member not in self.sessions and len(self.sessions) >= self.limit:
            return ErrorCode.share_session_limit_reached
        # What was acquired before stays acquired.
        self.sessions[member] = ShareSession(0, connection)
        return ErrorCode.none

    def _apply(
        self, member: str, partitions: Iterable[RequestedPartition]
    ) -> dict[TopicIdPartition, ErrorCode]:
        return {
            entry.partition: self._apply_to(member, entry)
            for entry in partitions
            if entry.acknowledgements
        }

    def _apply_to(self, member: str, entry: RequestedPartition) -> ErrorCode:
        found = self._partitions.find(entry.partition)
        if found is None:
            return ErrorCode.unknown_topic_id
        if found.log.leader_id != self.broker or not found.is_loaded:
            return ErrorCode.unknown_topic_or_partition
        found.expire(self._clock.now)
        error = found.acknowledge(self._clock.now, member, entry.acknowledgements)
        self._watch_locks(found)
        return error

    def _acknowledge(self, message: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
        member, epoch = message.member_id, message.session_epoch
        if epoch == OPEN_SESSION:
            return ShareAcknowledgeResponse(error=ErrorCode.invalid_share_session_epoch)
        error = self._check(member, epoch)
        if error is not ErrorCode.none:
            return ShareAcknowledgeResponse(error=error)
        session = self.sessions[member]
        errors = self._apply(member, message.partitions)
        locks = [
            found.options.lock
            for partition in errors
            if (found := self._partitions.find(partition)) is not None
        ]
        if epoch == CLOSE_SESSION:
            self.end(member)
        else:
            session.epoch = 1 if session.epoch == _LARGEST_EPOCH else session.epoch + 1
        return ShareAcknowledgeResponse(
            error=ErrorCode.none,
            lock_timeout=min(locks, default=0.0),
            partitions=tuple(
                ShareAcknowledgedPartition(partition=partition, error=error)
                for partition, error in errors.items()
            ),
        )

    # --- acquiring -------------------------------------------------------------------------------

    def respond(
        self,
        message: ShareFetchRequest,
        session: ShareSession,
        errors: dict[TopicIdPartition, ErrorCode],
    ) -> ShareFetchResponse:
        """Acquire for a fetch that waits no more. Its epoch may have been used by another request
        meanwhile: then what it has acquired is locked for nobody."""
        acquisition = self._partitions.next_acquisition()
        failed: dict[TopicIdPartition, ErrorCode] = {}
        acquired: dict[TopicIdPartition, list[AcquiredRange]] = {}
        left = message.max_records
        # The order rotates, so that each partition comes first in turn.
        order = list(session.partitions)
        turn = session.epoch % max(len(order), 1)
        for partition in order[turn:] + order[:turn]:
            found = self._partitions.find(partition)
            if (error := self._fetch_error(partition, found)) is not ErrorCode.none:
                failed[partition] = error
            elif (
                found is not None
                and message.max_records > 0
                and self._clock.now >= found.loads_until
            ):
                found.load()
                self._seen[partition] = None
                found.expire(self._clock.now)
                ranges = found.acquire(
                    self._clock.now,
                    message.member_id,
                    left,
                    exact=message.exact,
                    acquisition=acquisition,
                )
                left -= sum(r.last_offset - r.first_offset + 1 for r in ranges)
                self._watch_locks(found)
                if ranges:
                    acquired[partition] = ranges
        current = self.sessions.get(message.member_id)
        used = message.session_epoch + 1
        if current is session and session.epoch != used:
            return ShareFetchResponse(error=ErrorCode.invalid_share_session_epoch)
        if self.fails_whole and ErrorCode.unknown_topic_id in failed.values():
            return ShareFetchResponse(error=ErrorCode.unknown_server_error)
        return self._fetched(failed, acquired, errors, acquisition)

    def _fetch_error(self, partition: TopicIdPartition, found: SharePartition | None) -> ErrorCode:
        if found is None:
            return ErrorCode.unknown_topic_id
        if found.log.leader_id != self.broker:
            return ErrorCode.not_leader_or_follower
        if not self._partitions.is_initialized(partition):
            return ErrorCode.unknown_server_error
        return ErrorCode.none

    def has_available(self, session: ShareSession) -> bool:
        """Whether there is something to respond to a fetch of this session before its time."""
        for partition in session.partitions:
            found = self._partitions.find(partition)
            if self._fetch_error(partition, found) is not ErrorCode.none:
                return True
            if found is None or self._clock.now < found.loads_until:
                continue
            if not found.is_loaded or found.has_available:
                return True
        return False

    def _fetched(
        self,
        failed: dict[TopicIdPartition, ErrorCode],
        acquired: dict[TopicIdPartition, list[AcquiredRange]],
        errors: dict[TopicIdPartition, ErrorCode],
        acquisition: int = 0,
    ) -> ShareFetchResponse:
        named = dict.fromkeys((*acquired, *failed, *errors))
        found = {partition: self._partitions.find(partition) for partition in named}
        lock = min((f.options.lock for f in found.values() if f is not None), default=30.0)
        entries: list[ShareFetchedPartition] = []
        leaders: dict[int, BrokerMetadata] = {}
        for partition, state in found.items():
            error = failed.get(partition, ErrorCode.none)
            moved = state is not None and error is ErrorCode.not_leader_or_follower
            ranges = tuple(acquired.get(partition, ()))
            if moved and state and (address := self._partitions.address(state.log.leader_id)):
                leaders[address.node_id] = address
            entries.append(
                ShareFetchedPartition(
                    partition=partition,
                    error=error,
                    acknowledge_error=errors.get(partition, ErrorCode.none),
                    leader_id=state.log.leader_id if moved and state else -1,
                    leader_epoch=state.log.leader_epoch if moved and state else -1,
                    acquired=ranges,
                    records=self.records(state, ranges, acquisition) if state and ranges else b"",
                )
            )
        return ShareFetchResponse(
            error=ErrorCode.none,
            lock_timeout=lock,
            partitions=tuple(entries),
            leaders=tuple(leaders.values()),
        )

    def records(
        self, partition: SharePartition, ranges: tuple[AcquiredRange, ...], _acquisition: int
    ) -> bytes:
        """The whole batches in which the ranges lie."""
        first, last = ranges[0].first_offset, ranges[-1].last_offset
        return b"".join(
            partition.log.pack(batch)
            for batch in partition.log.batches_from(first)
            if batch.base <= last
        )


class _WaitingFetch:
    """A ShareFetch, until it responds. New records wake it, and locks that pass; no record that is
    released does."""

    def __init__(
        self,
        leader: ShareLeader,
        clock: Clock,
        message: ShareFetchRequest,
        session: ShareSession,
        errors: dict[TopicIdPartition, ErrorCode],
        reply: Reply,
    ) -> None:
        self._leader = leader
        self._clock = clock
        self._message = message
        self.session = session
        self._errors = errors
        self._reply = reply
        self._alarm: Alarm | None = None

    def begin(self) -> None:
        """Respond at once if there is something to respond, otherwise within its wait."""
        message = self._message
        if message.max_records == 0 or self._leader.has_available(self.session):
            self._respond()
            return
        self._alarm = self._clock.after(message.max_wait, self._respond)
        self._leader.waits(self, self.session)

    def retry(self) -> None:
        """Something may be available."""
        if self._alarm is None or self._alarm.action is None:
            return
        if self._leader.has_available(self.session):
            self.drop()
            self._respond()

    def drop(self) -> None:
        """Wait no more."""
        if self._alarm is not None:
            self._alarm.cancel()

    def _respond(self) -> None:
        self._leader.waits_no_more(self)
        self._reply(self._leader.respond(self._message, self.session, self._errors))
