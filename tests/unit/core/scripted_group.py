"""A whole core in a group whose coordinator is a test: see :class:`ScriptedBrokers` for the rest.

JoinGroup, SyncGroup, Heartbeat, LeaveGroup and OffsetCommit stay open until the test responds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.core.io.effects import (
    Channel,
    Emit,
    NotifyKind,
    Send,
)
from asyncrevoke.client.core.membership.classic.state_table import ClassicState
from asyncrevoke.client.core.membership.classic.user_data import (
    AssignmentUserData,
    checksum,
    encode_assignment_user_data,
)
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupMember,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from asyncrevoke.client.protocol.subscription import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from asyncrevoke.client.config import ConsumerOptions
    from asyncrevoke.client.model import PollResult, Record, TopicPartition

from unit.core.scripted_brokers import ScriptedBrokers, tp

MEMBER = "member-1"


def orders(*numbers: int) -> frozenset[TopicPartition]:
    return frozenset(map(tp, numbers))


def subscription_of(request: JoinGroupRequest) -> Subscription:
    """What the first protocol of a JoinGroup says."""
    return decode_subscription(request.protocols[0][1])


def owned(request: JoinGroupRequest) -> frozenset[TopicPartition]:
    return frozenset(subscription_of(request).owned)


def foreign(
    member_id: str, *topics: str, owned: frozenset[TopicPartition] = frozenset()
) -> JoinGroupMember:
    """Another member as its leader sees it."""
    subscription = Subscription(topics=topics or ("orders",), owned=tuple(sorted(owned)))
    return JoinGroupMember(
        member_id=member_id, group_instance_id=None, metadata=encode_subscription(subscription)
    )


class ScriptedGroup(ScriptedBrokers):
    """One core in a group of the test's."""

    generation = 0
    # Whether a leader of ours says so in each assignment.
    maps_are_read = False

    # --- the group -------------------------------------------------------------------------------

    def joining(self) -> JoinGroupRequest:
        """The JoinGroup that is open."""
        return self.only(JoinGroupRequest)[1]

    def give_id(self) -> None:
        send, request = self.only(JoinGroupRequest)
        assert request.member_id == ""
        self.reply(send, JoinGroupResponse(error=ErrorCode.member_id_required, member_id=MEMBER))

    def respond_to_join(
        self,
        error: ErrorCode = ErrorCode.none,
        *,
        others: tuple[JoinGroupMember, ...] = (),
        leads: bool = False,
        skip_assignment: bool = False,
        same_generation: bool = False,
        protocol: str | None = None,
        leader: str = "another",
    ) -> JoinGroupRequest:
        """Respond to the open JoinGroup; the generation is the next one."""
        send, request = self.only(JoinGroupRequest)
        if error is not ErrorCode.none:
            self.reply(send, JoinGroupResponse(error=error))
            return request
        if not same_generation:
            self.generation += 1
        member_id = request.member_id or MEMBER
        us = JoinGroupMember(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            metadata=dict(request.protocols).get(protocol or "", request.protocols[0][1]),
        )
        self.reply(
            send,
            JoinGroupResponse(
                error=error,
                generation=self.generation,
                protocol_name=protocol or request.protocols[0][0],
                leader=member_id if leads else leader,
                member_id=member_id,
                members=(us, *others) if leads else (),
                skip_assignment=skip_assignment,
            ),
        )
        return request

    def respond_to_sync(
        self,
        *partitions: TopicPartition,
        error: ErrorCode = ErrorCode.none,
        led_by_us: bool = False,
        withheld: bool = False,
    ) -> SyncGroupRequest:
        """Respond to the open SyncGroup with this assignment, or this error. ``led_by_us``: a
        leader of ours has made it, of the partitions that there are; ``withheld``: and it withholds
        partitions."""
        send, request = self.only(SyncGroupRequest)
        note = b""
        if led_by_us or withheld or self.maps_are_read:
            known = {name: tuple(range(count)) for name, count in self.partitions.items()}
            note = encode_assignment_user_data(
                AssignmentUserData(withheld, checksum(known), self.maps_are_read)
            )
        assignment = encode_assignment(partitions, note) if error is ErrorCode.none else b""
        self.reply(send, SyncGroupResponse(error=error, assignment=assignment))
        return request

    def planned(self) -> dict[str, frozenset[TopicPartition]]:
        """What we have assigned to each member in the open SyncGroup."""
        _, request = self.only(SyncGroupRequest)
        return {
            member: frozenset(decode_assignment(data)[0]) for member, data in request.assignments
        }

    def rejoin(self, *numbers: int) -> None:
        """The open JoinGroup and its sync succeed; we get these partitions of orders."""
        self.respond_to_join()
        self.respond_to_sync(*map(tp, numbers))

    def become_member(self, *numbers: int) -> None:
        """Start, join, and get these partitions of orders."""
        self.start()
        self.give_id()
        self.rejoin(*numbers)
        assert self.phase() is ClassicState.STABLE

    def beat(self) -> Send:
        """The heartbeat that is open, or the next one."""
        pulse, self.pulse = self.pulse, None
        if not self.sends(HeartbeatRequest):
            self.advance(self.timers["heartbeat"] - self.now)
        self.pulse = pulse
        return self.only(HeartbeatRequest)[0]

    def respond_to_beat(
        self, error: ErrorCode = ErrorCode.none, *, send: Send | None = None
    ) -> None:
        """Respond to a heartbeat, by default the next one."""
        self.reply(send or self.beat(), HeartbeatResponse(error=error))

    def rebalance(self) -> None:
        """The next heartbeat hears that the group rebalances."""
        self.respond_to_beat(ErrorCode.rebalance_in_progress)

    def committing(self) -> dict[TopicPartition, int]:
        """The offsets of the OffsetCommit that is open."""
        _, request = self.only(OffsetCommitRequest)
        return {entry.partition: entry.offset for entry in request.entries}

    def respond_to_commit(
        self, error: ErrorCode = ErrorCode.none, *, send: Send | None = None
    ) -> dict[TopicPartition, int]:
        """Respond to an OffsetCommit, by default the open one; all its partitions alike."""
        send = send or self.only(OffsetCommitRequest)[0]
        assert isinstance(send.message, OffsetCommitRequest)
        offsets = {entry.partition: entry.offset for entry in send.message.entries}
        if error is ErrorCode.none:
            self.committed.update(offsets)
            self.metadata.update((each.partition, each.metadata) for each in send.message.entries)
        self.reply(
            send, OffsetCommitResponse(errors=tuple((partition, error) for partition in offsets))
        )
        return offsets

    def leaving(self) -> LeaveGroupRequest:
        """The LeaveGroup that is open; it travels where nothing is parked."""
        send, request = self.only(LeaveGroupRequest)
        assert send.channel is Channel.HEARTBEAT
        return request

    def respond_to_leave(self, error: ErrorCode = ErrorCode.none) -> None:
        self.reply(self.only(LeaveGroupRequest)[0], LeaveGroupResponse(error=error))

    # --- the user --------------------------------------------------------------------------------

    def poll(self, *, expired: bool = False, until_moved: bool = False) -> PollResult | None:
        result = self.core.poll(self.now, expired=expired, until_moved=until_moved)
        self.run_until_idle()
        return result

    def step(self) -> PollResult:
        """A step that returns at once, with whatever there is."""
        result = self.poll(expired=True)
        assert result is not None
        return result

    def receive(self, *numbers: int, topic: str = "orders") -> list[Record]:
        """One record of each of these partitions is produced, and steps return them."""
        wanted = {tp(number, topic) for number in numbers}
        for number in numbers:
            self.produce(number, topic=topic)
        records: list[Record] = []
        deadline = self.now + 1.0
        while wanted - {record.topic_partition for record in records}:
            assert self.now < deadline, "a fetch that waits for others takes half a second"
            records.extend(self.step().records)
            self.advance(0.01)
        assert {record.topic_partition for record in records} == wanted
        return records

    def subscribe(self, *topics: str) -> None:
        self.core.subscription_state.subscribe(self.now, topics)
        self.run_until_idle()

    def unsubscribe(self) -> int:
        call_id = self.core.unsubscribe(self.now)
        self.run_until_idle()
        return call_id

    def close(self, *, graceful: bool = True) -> int:
        call_id = self.core.close(self.now, graceful=graceful)
        self.run_until_idle()
        return call_id

    def complete(self, record: Record) -> bool:
        done = self.core.returned_records.complete(self.now, record)
        self.run_until_idle()
        return done

    # --- facts -----------------------------------------------------------------------------------

    def phase(self) -> ClassicState:
        return ClassicState(self.core.health(self.now).state)

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        return self.core.assignment.partitions()

    def instance(self, number: int, topic: str = "orders") -> int | None:
        """Which assignment of a partition is ours: another number for each."""
        found = self.core.assignment.get(tp(number, topic))
        return None if found is None else found.instance_id

    def heard(self, kind: NotifyKind) -> list[frozenset[TopicPartition]]:
        """What the listener was told of this kind."""
        return [notice.partitions for notice in self.notices if notice.kind is kind]

    def named(self, event: str) -> list[Emit]:
        """The log lines of this name."""
        return [emit for emit in self.events if emit.event == event]


def wait_until(group: ScriptedGroup, condition: Callable[[], object], within: float) -> float:
    """Move the clock in small steps until ``condition()``; returns the seconds that it took."""
    begun = group.now
    while not condition():
        assert group.now < begun + within, f"not within {within} s"
        group.advance(0.01)
    return group.now - begun


# --- members in the middle of something ---------------------------------------------------------


def working(
    *numbers: int, eager: bool = False, **options: Unpack[ConsumerOptions]
) -> tuple[ScriptedGroup, Record]:
    """A member with these partitions whose user works on a record of the last one."""
    options.setdefault("commit_mode", "ack")
    group = ScriptedGroup(eager=eager, **options)
    group.become_member(*numbers)
    (record,) = group.receive(numbers[-1])
    return group, record


def draining_with_a_parked_join() -> tuple[ScriptedGroup, Record]:
    """0 is kept, 1 is to go and drains, and a JoinGroup that lists both is parked."""
    group, record = working(0, 1)
    group.rebalance()
    group.rejoin(0)
    assert group.step().to_be_revoked == orders(1)
    group.rebalance()
    assert owned(group.joining()) == orders(0, 1)
    return group, record


def release(group: ScriptedGroup, record: Record) -> None:
    group.complete(record)
    group.step()
    group.respond_to_commit()
    assert record.topic_partition not in group.assigned


def with_work(eager: bool, **options: Unpack[ConsumerOptions]) -> tuple[ScriptedGroup, Record]:
    """A member of 0 and 1 that has done, and not yet committed, a record of 0."""
    options.setdefault("commit_mode", "ack")
    options.setdefault("commit_interval", 60.0)
    group = ScriptedGroup(eager=eager, **options)
    group.become_member(0, 1)
    (record,) = group.receive(0)
    group.complete(record)
    return group, record


def with_a_task(eager: bool, **options: Unpack[ConsumerOptions]) -> tuple[ScriptedGroup, Record]:
    """A member of 0 whose only record is held by a task."""
    group = ScriptedGroup(eager=eager, **options)
    group.core.returned_records.track(one_by_one=True, next_poll_completes=True)
    group.become_member(0)
    (record,) = group.receive(0)
    assert group.core.returned_records.submit(record)
    group.step()
    return group, record
