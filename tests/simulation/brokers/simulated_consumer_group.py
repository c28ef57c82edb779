"""A KIP-848 group that assigns all partitions, is loaded again, and reports its events.

The coordinator writes to the log before it responds, so that a coordinator that loads the group
knows all changes. A topic that was deleted and created again has another key.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulation.brokers.coordinator_events import CoordinatorEvents

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import ErrorCode, OffsetCommitRequest
from asyncrevoke.testing.fake_kafka.consumer_group import (
    BrokerMemberState,
    ConsumerGroup,
    ConsumerGroupMember,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.client.model import GroupMetadata
    from asyncrevoke.testing.fake_kafka.clock import Alarm, Clock
    from asyncrevoke.testing.fake_kafka.group_state import Protocols


@dataclass
class ConvertibleMember(ConsumerGroupMember):
    """With ``protocols``, it uses the classic protocol, and has a ``session_timeout``."""

    protocols: Protocols = ()
    session_timeout: float | None = None
    must_join: Alarm | None = None
    must_sync: Alarm | None = None

    @property
    def is_classic(self) -> bool:
        """Whether it uses the classic protocol."""
        return bool(self.protocols)

    def cancel(self) -> None:
        """Cancel its timers."""
        super().cancel()
        for alarm in (self.must_join, self.must_sync):
            if alarm is not None:
                alarm.cancel()
        self.must_join = self.must_sync = None


@dataclass(frozen=True)
class ConsumerGroupOptions:
    """``partitions(topic)`` is the number of a topic's partitions, ``key(topic)`` its key.

    There are ``assignment_interval`` seconds between two target assignments. ``lenient``: as Kafka
    4.3, accept commits with older epochs for partitions that the member has owned since then
    (KIP-1251).
    """

    partitions: Callable[[str], int]
    session_timeout: float
    assignment_interval: float = 0.0
    lenient: bool = False
    key: Callable[[str], str] = str


class SimulatedConsumerGroup(ConsumerGroup[ConvertibleMember]):
    """A group whose members subscribe to names of topics."""

    protocol = "consumer"
    leader: str | None = None

    def __init__(self, clock: Clock, options: ConsumerGroupOptions) -> None:
        super().__init__(clock, options.session_timeout)
        self.options = options
        self.events = CoordinatorEvents()
        self.rebalances = 0
        self._assigned_at = float("-inf")
        # The key and the number of partitions of each topic.
        self._assigned_by: dict[str, tuple[str, int]] = {}
        # The member epoch at which each partition was assigned or had to be revoked.
        self._since: dict[TopicPartition, int] = {}

    def _make_member(
        self, member_id: str, client: int, instance_id: str | None
    ) -> ConvertibleMember:
        return ConvertibleMember(member_id, client, instance_id)

    # --- the target ------------------------------------------------------------------------------

    def _subscribe(self, member: ConvertibleMember, topics: tuple[str, ...], regex: str) -> None:
        before = self.generation
        super()._subscribe(member, topics, regex)
        if self.generation == before and self._topics_have_changed():
            self._bump()

    def _topics_have_changed(self) -> bool:
        return any(self._look_up(topic) != known for topic, known in self._assigned_by.items())

    def _look_up(self, topic: str) -> tuple[str, int]:
        return self.options.key(topic), self.options.partitions(topic)

    def _is_assignment_due(self) -> bool:
        earliest = self._assigned_at + self.options.assignment_interval
        return super()._is_assignment_due() and self.clock.now >= earliest

    def _assign_anew(self) -> None:
        self._assigned_at = self.clock.now
        super()._assign_anew()
        self.rebalances += 1

    def _plan(self) -> dict[str, frozenset[TopicPartition]]:
        """A target assignment that moves few partitions."""
        members = list(self.members.values())
        topics = sorted({topic for member in members for topic in member.topics})
        self._assigned_by = {topic: self._look_up(topic) for topic in topics}
        had = {tp: id_ for id_, theirs in self._target.items() for tp in theirs}
        plan: dict[str, set[TopicPartition]] = {member_id: set() for member_id in self.members}
        for topic, (key, count) in self._assigned_by.items():
            readers = [m.member_id for m in members if topic in m.topics]
            # Each reader's number of partitions at its last comparison; it only grows.
            loads = [(len(plan[reader]), place) for place, reader in enumerate(readers)]
            heapq.heapify(loads)
            of_topic = dict.fromkeys(readers, 0)
            most = -(-count // len(readers))
            for number in range(count):
                partition = TopicPartition(key, number)
                chosen = had.get(partition, "")
                if of_topic.get(chosen, most) >= most:
                    while (load := len(plan[readers[loads[0][1]]])) > loads[0][0]:
                        heapq.heapreplace(loads, (load, loads[0][1]))
                    chosen = readers[loads[0][1]]
                of_topic[chosen] += 1
                plan[chosen].add(partition)
        return {member_id: frozenset(given) for member_id, given in plan.items()}

    def _step(
        self, member: ConvertibleMember, epoch: int, owned: frozenset[TopicPartition] | None
    ) -> None:
        kept = member.assigned & self._target.get(member.member_id, frozenset())
        # Since 4.3, the member epoch does not advance while partitions must be revoked.
        super()._step(member, member.epoch if self.options.lenient else epoch, owned)
        if member.state is not BrokerMemberState.UNREVOKED:
            self._since |= dict.fromkeys(member.assigned - kept, member.epoch)

    # --- offsets ---------------------------------------------------------------------------------

    def accepts(self, client: int, identity: GroupMetadata) -> bool:
        """Whether a commit of this client with this member id and epoch would be accepted."""
        member = self.members.get(identity.member_id)
        return (
            member is not None and member.client == client and identity.generation == member.epoch
        )

    def _check_commit(self, request: OffsetCommitRequest) -> ErrorCode:
        error = super()._check_commit(request)
        if error is ErrorCode.stale_member_epoch and self._accepts_older_epoch(request):
            return ErrorCode.none
        return error

    def _accepts_older_epoch(self, request: OffsetCommitRequest) -> bool:
        member = self.members[request.member_id]
        if not self.options.lenient or request.generation >= member.epoch:
            return False
        theirs = member.assigned | member.pending
        partitions = [
            TopicPartition(self.options.key(topic), number)
            for topic, number in (entry.partition for entry in request.entries)
        ]
        return all(tp in theirs and self._since[tp] <= request.generation for tp in partitions)

    # --- events ----------------------------------------------------------------------------------

    def replace(self, member: ConvertibleMember, client: int, member_id: str) -> ConvertibleMember:
        """A static member has returned, and gets the assignment that it had before."""
        old = member.client
        super().replace(member, client, member_id)
        self.events.member_replaced(old, client)
        return member

    def _update_owners(self, member: ConvertibleMember, before: frozenset[TopicPartition]) -> None:
        super()._update_owners(member, before)
        self.events.owned(self._owners)

    def _remove_silent(self, member: ConvertibleMember) -> None:
        self.evict(member, "its session expired")

    def _remove_unrevoked(self, member: ConvertibleMember) -> None:
        self.evict(member, "it did not release its partitions in time")

    def evict(self, member: ConvertibleMember, reason: str) -> None:
        """Remove a member whose timer has expired, and report the reason."""
        if self._expire(member):
            self.events.member_removed(member.client, member.member_id, reason)

    # --- loading and unloading -------------------------------------------------------------------

    def unload(self) -> None:
        """The broker is no longer the coordinator. It delays no requests."""
        for member in self.members.values():
            member.cancel()

    def crash(self) -> None:
        """The broker ends."""
        self.unload()

    def load(self) -> None:
        """Restore the group from the log. Sessions and revocations get their full time again."""
        self.events.loaded()
        for member in self.members.values():
            self.arm_session(member)
            if member.state is BrokerMemberState.UNREVOKED:
                self._arm_rebalance(member)
