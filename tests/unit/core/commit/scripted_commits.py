"""A committer with a membership and a coordinator that the test controls."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from unit.core.ignored_reactions import IgnoredPartitions

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.commit.committed_maps import CommittedMaps
from asyncrevoke.client.core.commit.committer import Committer
from asyncrevoke.client.core.commit.user_commits import RequestedOffsets
from asyncrevoke.client.core.io.effects import (
    CompleteRequest,
    Event,
    Node,
    Replied,
    Send,
    TimerFired,
)
from asyncrevoke.client.core.io.outbox import Outbox
from asyncrevoke.client.core.partition.assignment import Assignment
from asyncrevoke.client.model import GroupMetadata, TopicPartition
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    FetchedOffset,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.core.metadata.coordinator import Coordinator
    from asyncrevoke.client.core.partition.instance import PartitionInstance
    from asyncrevoke.client.errors import PartitionsError


A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


class KnownCoordinator:
    def __init__(self) -> None:
        self.node: Node | None = Node(1, "broker", 9092)
        self.searches: list[str] = []

    def call_when_known(self, _key: str, then: Callable[[float], None], now: float) -> None:
        then(now)

    def mark_unknown(self, _now: float, why: str, _asked: Node | None) -> None:
        self.searches.append(why)

    def no_response(self, now: float, why: str, asked: Node | None) -> None:
        self.mark_unknown(now, why, asked)


class CommittingMember:
    def __init__(self) -> None:
        self.member_identity = GroupMetadata("billing", 3, "member-1", None)
        self.may_commit = True
        self.has_epochs = False
        self.is_current = True
        self.heard: list[ErrorCode] = []
        self.renewals: list[GroupMetadata] = []
        self.rebalances = 0

    def is_current_membership(self, sent: GroupMetadata, _sent_at: float) -> bool:
        return self.is_current and sent == self.member_identity

    def renewed_identity(self, _now: float, rejected: GroupMetadata) -> GroupMetadata | None:
        self.renewals.append(rejected)
        return self.member_identity if self.may_commit else None

    def rejected(self, now: float, error: ErrorCode) -> None:
        self.heard.append(error)

    def rebalance_seen(self, now: float) -> None:
        self.rebalances += 1


class WithoutTopicIds:
    """A cluster that has told no topic ids."""

    def topic_ids(self, _partitions: object) -> None:
        return None


class CommittingGroup(IgnoredPartitions):
    """Commits of a member that holds two partitions at position 0."""

    def __init__(self, **options: object) -> None:
        self.outbox = Outbox()
        self.assignment = Assignment(self.outbox, self)
        self.coordinator = KnownCoordinator()
        self.member = CommittingMember()
        config = ConsumerConfig.from_options(group_id="billing", **options)
        self.commits = Committer(
            self.outbox,
            config,
            cast("ClusterMetadata", WithoutTopicIds()),
            cast("Coordinator", self.coordinator),
            self.assignment,
            CommittedMaps(self.outbox, config),
            RequestedOffsets(self.outbox),
            self,
        )
        self.errors: list[Exception] = []
        self.acknowledged: list[PartitionInstance] = []
        self.a, self.b = self.assignment.add([A, B])
        for instance in (self.a, self.b):
            self.assignment.set_position(instance, 0)
            instance.committed_offset = 0
        self.outbox.take()

    @property
    def membership(self) -> CommittingMember:
        return self.member

    def instance_ended(self, instance: PartitionInstance) -> None:
        self.commits.forget(instance)

    def commit_acknowledged(self, now: float, instances: Sequence[PartitionInstance]) -> None:
        self.acknowledged.extend(instances)

    def commit_rejected(
        self, now: float, instance: PartitionInstance, error: PartitionsError
    ) -> None:
        pass

    def commit_topic_unknown(self, now: float) -> None:
        pass

    def failed(self, now: float, error: Exception) -> None:
        self.errors.append(error)

    def done(self, instance: PartitionInstance, count: int) -> None:
        assert instance.tracker is not None
        instance.tracker.deliver_untracked(count, instance.tracker.position + count, 7)
        instance.tracker.complete_pending()

    def sent(self) -> list[Send]:
        return [effect for effect in self.outbox.take() if isinstance(effect, Send)]

    def commit(self) -> tuple[Send, dict[TopicPartition, int]]:
        """The one OffsetCommit that leaves now, and its offsets."""
        (send,) = self.sent()
        assert isinstance(send.message, OffsetCommitRequest)
        return send, {entry.partition: entry.offset for entry in send.message.entries}

    def respond(self, send: Send, **errors: ErrorCode) -> None:
        assert isinstance(send.message, OffsetCommitRequest)
        partitions = [entry.partition for entry in send.message.entries]
        codes = {A: errors.get("a", ErrorCode.none), B: errors.get("b", ErrorCode.none)}
        response = OffsetCommitResponse(errors=tuple((tp, codes[tp]) for tp in partitions))
        self.event(Replied(send.request_id, response))

    def holds(self, offset: int) -> None:
        """The broker is asked what it holds of A, and responds."""
        (asked,) = self.sent()
        assert isinstance(asked.message, OffsetFetchRequest)
        held = FetchedOffset(partition=A, error=ErrorCode.none, offset=offset)
        response = OffsetFetchResponse(error=ErrorCode.none, offsets=(held,))
        self.event(Replied(asked.request_id, response))

    def event(self, event: Event) -> None:
        self.outbox.route(1.0, event)

    def retry(self) -> None:
        self.event(TimerFired("commit-retry"))

    def completed(self) -> list[CompleteRequest]:
        return [effect for effect in self.outbox.take() if isinstance(effect, CompleteRequest)]
