"""A whole core whose brokers are a test: the cluster answers by itself, the group by the test.

Metadata, FindCoordinator, OffsetFetch, ListOffsets and Fetch are answered at once, unless their
kind is in ``silent``. JoinGroup, SyncGroup, Heartbeat, LeaveGroup and OffsetCommit stay open until
the test answers them. Nothing happens by itself: the clock moves by :meth:`ScriptedGroup.advance`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeVar

from asyncrevoke.config import ConsumerConfig
from asyncrevoke.core.consumer_core import ConsumerCore
from asyncrevoke.core.effects import (
    CancelTimer,
    Channel,
    Complete,
    Effect,
    Emit,
    Event,
    Failed,
    FailureKind,
    Node,
    Notify,
    NotifyKind,
    Replied,
    Send,
    SetTimer,
    TimerFired,
)
from asyncrevoke.core.membership.phase import Phase
from asyncrevoke.model import PollResult, Record, TopicPartition
from asyncrevoke.protocol.messages import (
    BrokerMetadata,
    ErrorCode,
    FetchedOffset,
    FetchedPartition,
    FetchRequest,
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupMember,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    PartitionMetadata,
    Request,
    Response,
    SyncGroupRequest,
    SyncGroupResponse,
    TopicMetadata,
)
from asyncrevoke.protocol.subscription import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from asyncrevoke.testing.simulation.log import PartitionLog, decode_simulated

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from asyncrevoke.config import ConsumerOptions

RequestT = TypeVar("RequestT", bound=Request)

BROKERS = tuple(BrokerMetadata(node_id=number, host=f"b{number}", port=9092) for number in (1, 2))
MEMBER = "member-1"


def tp(number: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, number)


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


class ScriptedGroup:
    """One core in a group of the test's. ``eager`` takes the assignor range."""

    def __init__(
        self,
        *topics: str,
        partitions: dict[str, int] | None = None,
        eager: bool = False,
        pattern: str | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self.now = 1000.0
        if eager:
            options.setdefault("assignors", ("range",))
        self.eager = eager
        options.setdefault("group_id", "billing")
        self.config = ConsumerConfig(**options)
        self.partitions = {"orders": 4} if partitions is None else partitions
        self.topic_ids = {name: name.encode().ljust(16)[:16] for name in self.partitions}
        self.coordinator = 1
        # What OffsetFetch answers; 0 for what is not in it.
        self.committed: dict[TopicPartition, int] = {}
        self.silent: set[type[Request]] = set()
        # Heartbeats are answered with it, unless it is None.
        self.pulse: ErrorCode | None = None
        self.generation = 0
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.sent: list[Send] = []
        self._sent_at: dict[int, float] = {}
        self.open: dict[int, Send] = {}
        self._parked: dict[int, float] = {}
        self._answers: deque[Event] = deque()
        self.timers: dict[str, float] = {}
        self.notices: list[Notify] = []
        self.events: list[Emit] = []
        self.completed: dict[int, Complete] = {}
        self.core = ConsumerCore(self.config, [Node(-1, "boot", 9092)], decode_simulated)
        if topics or pattern is None:
            self.core.subscribe(self.now, topics or ("orders",))
        else:
            self.core.subscribe(self.now, pattern=pattern)

    # --- the world -------------------------------------------------------------------------------

    def start(self) -> None:
        self.core.start(self.now)
        self.settle()

    def settle(self) -> None:
        """Carry out what the core asked for, and what it asks for then."""
        self._carry_out(self.core.take_effects())
        while self._answers:
            self._handle(self._answers.popleft())
            self._carry_out(self.core.take_effects())

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send():
                    self.sent.append(effect)
                    self._sent_at[effect.request_id] = self.now
                    self.open[effect.request_id] = effect
                    self._answer_by_itself(effect)
                case SetTimer(key, at, _):
                    self.timers[key] = max(at, self.now)
                case CancelTimer(key):
                    self.timers.pop(key, None)
                case Notify():
                    self.notices.append(effect)
                case Emit():
                    self.events.append(effect)
                case Complete(ticket):
                    assert ticket not in self.completed, "a ticket is answered once"
                    self.completed[ticket] = effect
                case _:
                    pass

    def _answer_by_itself(self, send: Send) -> None:
        if type(send.message) in self.silent:
            return
        answer: Response | None = None
        match send.message:
            case MetadataRequest(topics=topics):
                answer = self._metadata(topics)
            case FindCoordinatorRequest():
                number = self.coordinator
                answer = FindCoordinatorResponse(
                    error=ErrorCode.none, node_id=number, host=f"b{number}", port=9092
                )
            case OffsetFetchRequest(partitions=partitions):
                answer = OffsetFetchResponse(
                    error=ErrorCode.none,
                    offsets=tuple(
                        FetchedOffset(
                            partition=partition,
                            error=ErrorCode.none,
                            offset=self.committed.get(partition, 0),
                        )
                        for partition in partitions
                    ),
                )
            case ListOffsetsRequest(queries=queries):
                answer = ListOffsetsResponse(
                    offsets=tuple(
                        ListedOffset(
                            partition=query.partition,
                            error=ErrorCode.none,
                            offset=0 if query.timestamp == -2 else self._log(query.partition).end,
                        )
                        for query in queries
                    )
                )
            case FetchRequest():
                answer = self._fetched(send.message)
                if answer is None:
                    self._parked[send.request_id] = self.now + send.message.max_wait
            case HeartbeatRequest():
                if self.pulse is not None:
                    answer = HeartbeatResponse(error=self.pulse)
            case _:
                pass
        if answer is not None:
            self._answers.append(Replied(send.request_id, answer))

    def _metadata(self, topics: tuple[str, ...] | None) -> MetadataResponse:
        names = sorted(self.partitions) if topics is None else topics
        return MetadataResponse(
            brokers=BROKERS,
            topics=tuple(
                TopicMetadata(
                    error=ErrorCode.none,
                    name=name,
                    topic_id=self.topic_ids[name],
                    partitions=tuple(
                        PartitionMetadata(
                            error=ErrorCode.none, partition=number, leader_id=1, leader_epoch=0
                        )
                        for number in range(self.partitions[name])
                    ),
                )
                if name in self.partitions
                else TopicMetadata(error=ErrorCode.unknown_topic_or_partition, name=name)
                for name in names
            ),
        )

    def _log(self, partition: TopicPartition) -> PartitionLog:
        return self.logs.setdefault(partition, PartitionLog(1))

    def _fetched(self, request: FetchRequest, *, expired: bool = False) -> FetchResponse | None:
        found = tuple(
            FetchedPartition(
                partition=wanted.partition,
                error=ErrorCode.none,
                high_watermark=log.end,
                last_stable_offset=log.end,
                log_start_offset=0,
                records=log.read(wanted.offset, wanted.max_bytes),
            )
            for wanted in request.partitions
            for log in [self._log(wanted.partition)]
        )
        if expired or any(partition.records for partition in found):
            return FetchResponse(error=ErrorCode.none, partitions=found)
        return None

    def _handle(self, event: Event) -> None:
        if isinstance(event, (Replied, Failed)):
            del self.open[event.request_id]
            self._parked.pop(event.request_id, None)
        self._carry_out(self.core.handle(self.now, event))

    def advance(self, seconds: float) -> None:
        """Move the clock; timers fire, and fetches that wait come back empty, on the way."""
        self.settle()
        until = self.now + seconds
        while True:
            due = [(at, 0, key) for key, at in self.timers.items()]
            due += [(at, request, "") for request, at in self._parked.items()]
            at, request, key = min(due, default=(until + 1, 0, ""))
            if at > until:
                break
            self.now = max(self.now, at)
            if request:
                message = self.open[request].message
                assert isinstance(message, FetchRequest)
                answer = self._fetched(message, expired=True)
                assert answer is not None
                self._handle(Replied(request, answer))
            else:
                del self.timers[key]
                self._handle(TimerFired(key))
            self.settle()
        self.now = until

    def produce(self, number: int, count: int = 1, topic: str = "orders") -> None:
        """Append records, and answer the fetches that wait for them."""
        self._log(tp(number, topic)).append(count)
        for request_id in list(self._parked):
            message = self.open[request_id].message
            assert isinstance(message, FetchRequest)
            answer = self._fetched(message)
            if answer is not None:
                self._handle(Replied(request_id, answer))
        self.settle()

    # --- open requests ---------------------------------------------------------------------------

    def sends(self, kind: type[RequestT]) -> list[Send]:
        """The open requests of this kind, oldest first."""
        self.settle()
        return [send for send in self.open.values() if isinstance(send.message, kind)]

    def only(self, kind: type[RequestT]) -> tuple[Send, RequestT]:
        """The one open request of this kind."""
        sends = self.sends(kind)
        assert len(sends) == 1, (kind.__name__, sends, self.phase())
        message = sends[0].message
        assert isinstance(message, kind)
        return sends[0], message

    def count(self, kind: type[Request]) -> int:
        """How many requests of this kind were ever sent."""
        self.settle()
        return sum(isinstance(send.message, kind) for send in self.sent)

    def sent_at(self, kind: type[Request]) -> float:
        """When the last request of this kind was sent."""
        return max(
            self._sent_at[send.request_id] for send in self.sent if isinstance(send.message, kind)
        )

    def reply(self, send: Send, message: Response) -> None:
        self._handle(Replied(send.request_id, message))
        self.settle()

    def fail(self, send: Send, kind: FailureKind = FailureKind.DISCONNECTED) -> None:
        self._handle(Failed(send.request_id, kind, "gone"))
        self.settle()

    # --- the group -------------------------------------------------------------------------------

    def joining(self) -> JoinGroupRequest:
        """The JoinGroup that is open."""
        return self.only(JoinGroupRequest)[1]

    def give_id(self) -> None:
        send, request = self.only(JoinGroupRequest)
        assert request.member_id == ""
        self.reply(send, JoinGroupResponse(error=ErrorCode.member_id_required, member_id=MEMBER))

    def answer_join(
        self,
        error: ErrorCode = ErrorCode.none,
        *,
        others: tuple[JoinGroupMember, ...] = (),
        leads: bool = False,
        skip_assignment: bool = False,
        same_generation: bool = False,
        protocol: str | None = None,
    ) -> JoinGroupRequest:
        """Answer the open JoinGroup; the generation is the next one."""
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
            metadata=request.protocols[0][1],
        )
        self.reply(
            send,
            JoinGroupResponse(
                error=error,
                generation=self.generation,
                protocol_name=protocol or request.protocols[0][0],
                leader=member_id if leads else "another",
                member_id=member_id,
                members=(us, *others) if leads else (),
                skip_assignment=skip_assignment,
            ),
        )
        return request

    def answer_sync(
        self, *partitions: TopicPartition, error: ErrorCode = ErrorCode.none
    ) -> SyncGroupRequest:
        """Answer the open SyncGroup with this assignment, or this error."""
        send, request = self.only(SyncGroupRequest)
        assignment = encode_assignment(partitions) if error is ErrorCode.none else b""
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
        self.answer_join()
        self.answer_sync(*map(tp, numbers))

    def become_member(self, *numbers: int) -> None:
        """Start, join, and get these partitions of orders."""
        self.start()
        self.give_id()
        self.rejoin(*numbers)
        assert self.phase() is Phase.STABLE

    def beat(self) -> Send:
        """The heartbeat that is open, or the next one."""
        pulse, self.pulse = self.pulse, None
        if not self.sends(HeartbeatRequest):
            self.advance(self.timers["heartbeat"] - self.now)
        self.pulse = pulse
        return self.only(HeartbeatRequest)[0]

    def answer_beat(self, error: ErrorCode = ErrorCode.none, *, send: Send | None = None) -> None:
        """Answer a heartbeat, by default the next one."""
        self.reply(send or self.beat(), HeartbeatResponse(error=error))

    def rebalance(self) -> None:
        """The next heartbeat hears that the group rebalances."""
        self.answer_beat(ErrorCode.rebalance_in_progress)

    def committing(self) -> dict[TopicPartition, int]:
        """The offsets of the OffsetCommit that is open."""
        _, request = self.only(OffsetCommitRequest)
        return {entry.partition: entry.offset for entry in request.entries}

    def answer_commit(
        self, error: ErrorCode = ErrorCode.none, *, send: Send | None = None
    ) -> dict[TopicPartition, int]:
        """Answer an OffsetCommit, by default the open one; all its partitions alike."""
        send = send or self.only(OffsetCommitRequest)[0]
        assert isinstance(send.message, OffsetCommitRequest)
        offsets = {entry.partition: entry.offset for entry in send.message.entries}
        if error is ErrorCode.none:
            self.committed.update(offsets)
        self.reply(
            send, OffsetCommitResponse(errors=tuple((partition, error) for partition in offsets))
        )
        return offsets

    def leaving(self) -> LeaveGroupRequest:
        """The LeaveGroup that is open; it travels where nothing is parked."""
        send, request = self.only(LeaveGroupRequest)
        assert send.channel is Channel.HEARTBEAT
        return request

    def answer_leave(self, error: ErrorCode = ErrorCode.none) -> None:
        self.reply(self.only(LeaveGroupRequest)[0], LeaveGroupResponse(error=error))

    # --- the user --------------------------------------------------------------------------------

    def poll(self, *, expired: bool = False) -> PollResult | None:
        result = self.core.poll(self.now, expired=expired)
        self.settle()
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
        self.core.subscribe(self.now, topics)
        self.settle()

    def unsubscribe(self) -> int:
        ticket = self.core.unsubscribe(self.now)
        self.settle()
        return ticket

    def close(self, *, graceful: bool = True) -> int:
        ticket = self.core.close(self.now, graceful=graceful)
        self.settle()
        return ticket

    def complete(self, record: Record) -> bool:
        done = self.core.complete(self.now, record)
        self.settle()
        return done

    # --- facts -----------------------------------------------------------------------------------

    def phase(self) -> Phase:
        return Phase(self.core.health(self.now).state)

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        return self.core.assignment()

    def instance(self, number: int, topic: str = "orders") -> int | None:
        """Which assignment of a partition is ours: another number for each."""
        found = self.core._assignment.get(tp(number, topic))
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
