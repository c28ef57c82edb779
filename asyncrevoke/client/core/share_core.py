"""The consumer of a share group (KIP-932) without I/O: what follows from what, and its parts.

It has no partition of its own, no offset and no revocation. What it must know is the lock of each
acquired record. It is driven as :class:`asyncrevoke.client.core.core.Core` is, and shares with it
the outbox, the metadata and the search for the coordinator.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.core.io.effects import CompleteRequest, Effect, Event, Node
from asyncrevoke.client.core.io.link_silence import silence_timeout_of
from asyncrevoke.client.core.io.outbox import Outbox
from asyncrevoke.client.core.membership.share.error_table import share_group_error
from asyncrevoke.client.core.membership.share.member import ShareGroupMembership
from asyncrevoke.client.core.metadata.brokers import SilentBrokers
from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
from asyncrevoke.client.core.metadata.coordinator import Coordinator
from asyncrevoke.client.core.metadata.missing_topics import OutputTopics
from asyncrevoke.client.core.share.held_records import HeldRecords
from asyncrevoke.client.core.share.session import ShareSession
from asyncrevoke.client.core.share.state_table import RecordState, RecordTransition
from asyncrevoke.client.errors import FatalError, TopicAuthorizationError
from asyncrevoke.client.model import GroupMetadata, Health, TopicPartition
from asyncrevoke.client.printable import named_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.io.deadline import Deadline
    from asyncrevoke.client.core.share.acquire_limits import AcquireLimits
    from asyncrevoke.client.core.share.acquired_records import AcquiredRecord
    from asyncrevoke.client.core.share.acquisition import HeldRecord
    from asyncrevoke.client.model import BlockingRecord
    from asyncrevoke.client.protocol.messages import ErrorCode
    from asyncrevoke.client.protocol.records import RecordDecoder
    from asyncrevoke.client.protocol.share_messages import TopicIdPartition

_CLOSE_TIMER = "share-close"
_RELEASE_TIMER = "share-release"
_LEADERS_TIMER = "share-leaders"
_FIRST_BACKOFF = 0.1
_LONGEST_BACKOFF = 5.0


def _fetched_at(session: ShareSession) -> float:
    return session.fetched_at


class ShareCore:
    """One consumer of a share group, on paper: :meth:`handle` takes events, other methods are calls
    of the user, and :meth:`take_effects` returns what is to be done.

    It acquires what its ``limits`` permit. No record is acknowledged but by :meth:`accept`,
    :meth:`reject`, :meth:`release` or :meth:`wait`.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        bootstrap: Sequence[Node],
        decode: RecordDecoder,
        topics: Iterable[str],
        *,
        member_id: str,
        limits: AcquireLimits,
    ) -> None:
        """``member_id`` has at most 36 characters, and no other consumer has it."""
        self._config = config
        self._decode = decode
        self._topics = frozenset(topics)
        self.limits = limits
        self._exact = config.acquire == "exact"
        self.outbox = outbox = Outbox(silence_timeout_of(config))
        self.output_topics = OutputTopics(outbox, bootstrap[0])
        self.cluster = ClusterMetadata(outbox, config, bootstrap, self.output_topics, self)
        self.coordinator = Coordinator(outbox, config, self.cluster, self)
        self.silent_brokers = SilentBrokers(outbox, self.cluster, self.coordinator)
        self.membership = ShareGroupMembership(outbox, config, self.coordinator, member_id, self)
        self.held = HeldRecords(outbox, self)
        self._sessions: dict[Node, ShareSession] = {}
        # The records of each response and partition.
        self._ready: list[Sequence[AcquiredRecord]] = []
        self._errors: list[Exception] = []
        self.fatal: FatalError | None = None
        # For metadata, while an assigned partition has no known leader.
        self._leader_backoff = Backoff(_FIRST_BACKOFF, _LONGEST_BACKOFF)
        self._leaders_due = False
        # Records to release, by the time when that is due.
        self._releases: list[tuple[float, int, HeldRecord]] = []
        self._order = count()
        self._calls = 0
        # After so many deliveries the broker archives a record; None while that is not known.
        self.delivery_limit: int | None = None
        # Of the whole group, in records; None while that is not known.
        self.group_lag: int | None = None
        # Whether nothing is acquired any more.
        self.stopping = False
        self._assignment_calls: list[int] = []
        self._close_calls: list[int] = []
        self._deadline: Deadline | None = None
        self._waits_for_calls = True
        self._leaving = False
        self._left = False

    # --- events ----------------------------------------------------------------------------------

    def start(self, now: float) -> None:
        """Send the first requests, and join."""
        self.cluster.want(now, self._topics)
        self.cluster.start(now)
        self.membership.join(now, self._topics)

    def handle(self, now: float, event: Event) -> list[Effect]:
        """Handle one event, and return all effects since the last call."""
        # Before the event: a response that comes after its lock has passed counts no more.
        self.held.check_locks(now)
        self.silent_brokers.handle(now, event)
        self.outbox.route(now, event)
        return self.take_effects(now)

    def take_effects(self, now: float) -> list[Effect]:
        """All effects since the last call, and those of what follows."""
        self.held.check_locks(now)
        if self._deadline is not None:
            self._go_on_closing(now, self._deadline)
        self._plan(now)
        return self.outbox.take()

    @property
    def has_effects(self) -> bool:
        """Always: which requests are sent is decided when the effects are taken."""
        return True

    def _plan(self, now: float) -> None:
        may_acquire = not self.stopping and self.membership.may_acquire(now)
        # Who has fetched last comes last: with fewer slots than brokers, each has its turn.
        sessions = sorted(self._sessions.values(), key=_fetched_at)
        idle = sum(1 for session in sessions if not session.reserved and session.fetched)
        reached = self.limits.reached(self.held)
        for session in sessions:
            if not session.fetched and session.is_idle:
                session.close()
                if session.is_closed:
                    del self._sessions[session.node]
                    continue
            session.plan(now, self._room(idle), reached, may_acquire=may_acquire)

    def _room(self, sessions: int) -> int:
        """How many records the next fetch of one of so many sessions may acquire."""
        reserved = sum(session.reserved for session in self._sessions.values())
        return self.limits.room(self.held, reserved, sessions, exact=self._exact)

    # --- metadata and membership -----------------------------------------------------------------

    def topics_changed(self, now: float) -> None:
        self._find_leaders(now)

    def metadata_refreshed(self, now: float) -> None:
        self._find_leaders(now)

    def failed(self, now: float, error: Exception) -> None:
        del now  # what follows from an error needs no time
        self.share_failed(error)

    def partitions_assigned(self, now: float) -> None:
        self._find_leaders(now)
        for call in self._assignment_calls:
            self.outbox.put(CompleteRequest(call, self.membership.first_epoch))
        self._assignment_calls.clear()

    def _find_leaders(self, now: float) -> None:
        """Distribute the assigned partitions to the sessions of their leaders."""
        names = self.cluster.names_by_id()
        fetched: dict[Node, dict[TopicIdPartition, str]] = {}
        unknown = False
        for partition in sorted(self.membership.assigned):
            topic = names.get(partition.topic_id)
            leader = (
                None
                if topic is None
                else self.cluster.leader(TopicPartition(topic, partition.partition))
            )
            if topic is None or leader is None or self.cluster.is_missing(topic):
                unknown = True
                continue
            node = leader[0]
            fetched.setdefault(node, {})[partition] = topic
            for other in self._sessions.values():
                if other.node != node and partition in other.fetched:
                    other.acknowledgements.drop(partition)
                    self.held.lose_partition(partition, other.node, "the leader has moved")
        for node in [node for node in fetched if node not in self._sessions]:
            self._sessions[node] = ShareSession(
                self.outbox,
                self._config,
                node,
                self.membership.member_id,
                self.held,
                self._decode,
                self,
            )
        for node, session in self._sessions.items():
            session.set_partitions(fetched.get(node, {}))
        if not unknown:
            self._leader_backoff.succeeded()
        elif not self._leaders_due:
            self._leaders_due = True
            at = now + self._leader_backoff.failed()
            self.outbox.set_timer(_LEADERS_TIMER, at, self._ask_for_leaders)

    def _ask_for_leaders(self, now: float) -> None:
        self._leaders_due = False
        self.cluster.refresh(now, "a partition of the share group has no known leader")

    def group_left(self) -> None:
        self._left = True
        self._end_close()

    def membership_failed(self, error: FatalError) -> None:
        self.share_failed(error)

    def listener_called(self, _now: float, _instance_ids: Sequence[int]) -> None:
        """Nothing follows: no partition is owned, and the core notifies no listener."""

    def group_metadata(self) -> GroupMetadata:
        """The identity of this member in the group; the generation is its member epoch."""
        member = self.membership
        return GroupMetadata(self._config.group_id or "", member.epoch, member.member_id)

    def wait_for_assignment(self, _now: float) -> int:
        """Completes the call with the group's epoch at the join, when partitions are assigned."""
        self._calls += 1
        if self.membership.assigned:
            self.outbox.put(CompleteRequest(self._calls, self.membership.first_epoch))
        else:
            self._assignment_calls.append(self._calls)
        return self._calls

    def blocking_records(self, _now: float) -> Sequence[BlockingRecord]:
        """None: no release of a partition waits for a record."""
        return ()

    def health(self, now: float) -> Health:
        """A snapshot of the consumer's state."""
        confirmed = self.membership.confirmed_at
        node = self.coordinator.node
        return Health(
            state=self.membership.state.value,
            coordinator=None if node is None else node.address,
            heartbeat_age=None if confirmed is None else now - confirmed,
            idle_seconds=None,
            in_flight=len(self.held),
            assigned=len(self.membership.assigned),
            revoking=0,
            paused_partitions=frozenset(),
            error=self.fatal,
            missing_topics=self.cluster.missing_topics(),
            rejected_topics=self.cluster.rejected_topics(),
            unreachable_brokers=tuple(node.address for node in self.cluster.unreachable_brokers()),
            session_timeout=self.membership.session_timeout,
            throttled_brokers=self.cluster.brokers.throttled(now),
            share=self.held.health(
                now,
                self.delivery_limit,
                tuple(node.address for node, each in self._sessions.items() if each.is_refused),
            )._replace(lag=self.group_lag),
        )

    # --- parts below -----------------------------------------------------------------------------

    def records_acquired(self, now: float, records: Sequence[AcquiredRecord]) -> None:
        if self.stopping:
            for record in records:
                self.release(now, record)
            return
        self._ready.append(records)
        self.outbox.wake()

    def records_lost(self) -> None:
        find = self.held.find
        left = [[each for each in of if find(each) is not None] for of in self._ready]
        self._ready = [of for of in left if of]
        self.outbox.wake()

    def locks_due(self, records: Sequence[HeldRecord]) -> None:
        for record in records:
            session = self._sessions.get(record.acquisition.node)
            if session is not None:
                session.acknowledgements.renew((record,))

    def leader_unknown(self, now: float, reason: str) -> None:
        self.cluster.refresh(now, reason)

    def is_leader(self, node: Node, partition: TopicIdPartition) -> bool:
        topic = self.cluster.names_by_id().get(partition.topic_id)
        if topic is None or self.cluster.is_missing(topic):
            return False
        leader = self.cluster.leader(TopicPartition(topic, partition.partition))
        return leader is not None and leader[0] == node

    def session_ended(self) -> None:
        for session in list(self._sessions.values()):
            if session.is_closed and not session.fetched:
                # Records of a deleted topic may be left, for which no session can be opened.
                session.give_up()
                del self._sessions[session.node]

    def partition_denied(self, topic: str) -> None:
        self.share_failed(
            TopicAuthorizationError(
                [], f"not authorized to read topic {topic!r}: grant DESCRIBE and READ on it"
            ),
        )

    def group_refused(self, error: ErrorCode, detail: str) -> None:
        self.share_failed(share_group_error(self._config.group_id or "", error, detail))

    def share_failed(self, error: Exception) -> None:
        if not isinstance(error, FatalError):
            self._errors.append(error)
        elif self.fatal is None:
            self.fatal = error
            self.outbox.emit(log_events.FATAL_ERROR, error=named_error(error))
        self.outbox.wake()

    # --- records ---------------------------------------------------------------------------------

    def poll(self, now: float) -> list[Sequence[AcquiredRecord]]:
        """The records that were acquired since the last call, of one partition each. Raises an
        error once; a fatal error each time."""
        if self.fatal is not None:
            raise self.fatal
        if self._errors:
            raise self._errors.pop(0)
        self.held.check_locks(now)
        ready, self._ready = self._ready, []
        return ready

    def begin(self, now: float, record: AcquiredRecord) -> bool:
        """A handler is about to be called for this record; False if its lock has passed. It has no
        effects, but another one may be acquired if ``most_unstarted`` limits them."""
        held = self.held.find(record)
        if held is None or held.deadline <= now:
            return False
        return self.held.change(held, RecordTransition.START)

    def accept_all(self, now: float, records: Iterable[AcquiredRecord]) -> None:
        """These records are handled; those whose locks have passed are ignored."""
        self._acknowledge(now, records, RecordTransition.ACCEPT)

    def release_all(self, now: float, records: Iterable[AcquiredRecord]) -> None:
        """These records are to be delivered again at once; those whose locks have passed are
        ignored."""
        self._acknowledge(now, records, RecordTransition.RELEASE)

    def accept(self, now: float, record: AcquiredRecord) -> bool:
        """The record is handled, and its results are acknowledged; False if its lock has passed."""
        return self._acknowledge(now, (record,), RecordTransition.ACCEPT) > 0

    def reject(self, now: float, record: AcquiredRecord) -> bool:
        """The record is not to be delivered again; False if its lock has passed."""
        return self._acknowledge(now, (record,), RecordTransition.REJECT) > 0

    def release(self, now: float, record: AcquiredRecord) -> bool:
        """The record is to be delivered again at once, to any member; False if its lock has
        passed."""
        return self._acknowledge(now, (record,), RecordTransition.RELEASE) > 0

    def wait(
        self, now: float, record: AcquiredRecord, *, release_after: float | None = None
    ) -> bool:
        """The record waits for its next attempt, or is released after so many seconds: it uses no
        slot, and its lock is renewed. False if its lock has passed. While the consumer stops it is
        released at once."""
        if self.stopping:
            return self.release(now, record)
        held = self.held.find(record)
        if held is None or held.deadline <= now:
            return False
        if not self.held.change(held, RecordTransition.WAIT):
            return False
        if release_after is not None:
            heapq.heappush(self._releases, (now + release_after, next(self._order), held))
            self.outbox.set_timer(_RELEASE_TIMER, self._releases[0][0], self._release_due)
        return True

    def wait_all(
        self, now: float, records: Iterable[AcquiredRecord], release_after: float | None
    ) -> None:
        """Like :meth:`wait`; records whose locks have passed are ignored."""
        for record in records:
            self.wait(now, record, release_after=release_after)

    def delivery_count(self, record: AcquiredRecord) -> int | None:
        """How often the record was delivered, this time included, as far as the leader knows; None
        if its lock has passed."""
        held = self.held.find(record)
        return None if held is None else held.delivery_count

    def lock_deadline(self, record: AcquiredRecord) -> float | None:
        """When the lock passes, unless it is renewed; None if it has."""
        held = self.held.find(record)
        return None if held is None else held.deadline

    def take_lost(self) -> list[tuple[int, int]]:
        """The tracker ids and offsets of records whose handlers are to be cancelled."""
        return [(record.acquisition.number, record.offset) for record in self.held.take_lost()]

    def _acknowledge(
        self, now: float, records: Iterable[AcquiredRecord], transition: RecordTransition
    ) -> int:
        return self._end(now, self.held.find_all(records), transition)

    def _end(self, now: float, records: Iterable[HeldRecord], transition: RecordTransition) -> int:
        """How many of these records are acknowledged: their locks have not passed, and the table
        has the transition."""
        ended = self.held.end(now, records, transition)
        for acquisition, of in ended.items():
            session = self._sessions.get(acquisition.node)
            assert session is not None, "a session ends when nothing of it is acquired"
            session.acknowledgements.end(acquisition.partition, of)
        return sum(map(len, ended.values()))

    def _release_due(self, now: float) -> None:
        while self._releases and self._releases[0][0] <= now:
            _, _, held = heapq.heappop(self._releases)
            if held.state is RecordState.WAITING:
                self._end(now, (held,), RecordTransition.RELEASE)
        if self._releases:
            self.outbox.set_timer(_RELEASE_TIMER, self._releases[0][0], self._release_due)

    # --- closing ---------------------------------------------------------------------------------

    def stop(self, now: float) -> None:
        """Acquire nothing more, and release what has not started or waits. What runs goes on, with
        its locks renewed."""
        self.stopping = True
        unstarted = (RecordState.HELD, RecordState.WAITING)
        waiting = [held for held in self.held.all() if held.state in unstarted]
        self._end(now, waiting, RecordTransition.RELEASE)
        self._ready.clear()
        self.outbox.wake()

    def close(self, now: float, deadline: Deadline, *, graceful: bool = True) -> int:
        """Stop, close the sessions, and leave the group. Completes the call by ``deadline.end``.
        ``graceful`` waits for what runs until ``deadline.work``; another call may end that wait."""
        self._calls += 1
        self._close_calls.append(self._calls)
        self._deadline = deadline
        self._waits_for_calls = graceful
        self.stop(now)
        self.outbox.set_timer(_CLOSE_TIMER, deadline.work, self._close_timer)
        return self._calls

    def _close_timer(self, now: float) -> None:
        """What closing waits for has no more time; the next steps follow after the event."""

    def _go_on_closing(self, now: float, deadline: Deadline) -> None:
        if not self._close_calls:
            return
        runs = self.held.count(RecordState.RUNNING) > 0
        if runs and self._waits_for_calls and now < deadline.work:
            return
        self._end(now, self.held.all(), RecordTransition.RELEASE)
        for session in list(self._sessions.values()):
            session.close()
            if now >= deadline.commits and not session.is_closed:
                session.leave()
        if all(session.is_closed for session in self._sessions.values()):
            for session in self._sessions.values():
                session.give_up()
            self._leave(now, deadline)
        else:
            self.outbox.set_timer(_CLOSE_TIMER, deadline.commits, self._close_timer)

    def _leave(self, now: float, deadline: Deadline) -> None:
        if now >= deadline.end:
            self.membership.stop()
            self._end_close()
        elif not self._left and not self._leaving:
            self._leaving = True
            self.outbox.set_timer(_CLOSE_TIMER, deadline.end, self._close_timer)
            self.membership.leave(now)

    def _end_close(self) -> None:
        if self._close_calls:
            for call in self._close_calls:
                self.outbox.put(CompleteRequest(call))
            self._close_calls.clear()
            self.cluster.stop()
