"""The leader of a classic group: assigns, and watches the partitions that it has assigned."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from msgspec import structs

from asyncrevoke.client import log_events
from asyncrevoke.client.core.membership.classic.led_generation import (
    AssignmentPlan,
    LedGeneration,
    Owners,
    ReadGeneration,
    ReportedSubscription,
    plan_assignment,
    read_generation,
    size_of,
)
from asyncrevoke.client.core.membership.classic.user_data import AssignmentUserData, checksum
from asyncrevoke.client.errors import FatalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.client.core.assignors.assignor import Assignor
    from asyncrevoke.client.core.assignors.racks import PartitionRacks
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.membership.classic.join_and_sync import JoinAndSync
    from asyncrevoke.client.core.membership.classic.member import ClassicMembership
    from asyncrevoke.client.core.membership.reactions import MembershipReactions
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.protocol.messages import JoinGroupMember, JoinGroupResponse

_T = TypeVar("_T")

_UUID_LENGTH = 36
# Former generations that members may still report, because later ones were not completed.
_REMEMBERED = 3
# Faults of an assignor in one log line.
_MOST_LOGGED = 10


def leading_again(reply: JoinGroupResponse, us: JoinGroupMember) -> JoinGroupResponse | None:
    """The response that a static leader gets since KIP-814 when it returns, made from that of an
    older broker; None if another member leads.

    An older broker names the leader by its former id, which is its instance id and a UUID, so that
    it assigns nothing. But it must still watch the metadata.
    """
    stem, uuid = reply.leader[:-_UUID_LENGTH], reply.leader[-_UUID_LENGTH:]
    if us.group_instance_id is None or stem != f"{us.group_instance_id}-" or uuid.count("-") != 4:
        return None
    return structs.replace(reply, members=(us,), skip_assignment=True)


class GroupLeader:
    """The leader's role of one member in the generations that it leads."""

    def __init__(
        self,
        outbox: Outbox,
        cluster: ClusterMetadata,
        requests: JoinAndSync,
        member: ClassicMembership,
        reactions: MembershipReactions,
    ) -> None:
        self._outbox = outbox
        self._cluster = cluster
        self._requests = requests
        self._member = member
        self._reactions = reactions
        self._generation: LedGeneration | None = None
        # The generation that this member leads, and its last assignments, without another
        # leader in between.
        self._led_number = -1
        self._assigned: dict[int, Owners] = {}
        # The computation that the assignment waits for.
        self._computing: int | None = None
        self._waiting = False
        # The partitions of the present assignment, while they are watched.
        self._led: dict[str, tuple[int, ...] | None] = {}
        self._led_racks: PartitionRacks = {}
        # In a group without a leader: the topics of this member.
        self._own: frozenset[str] = frozenset()

    def lead(self, now: float, assignor: Assignor, reply: JoinGroupResponse) -> None:
        """Assign this generation as soon as the partitions of its topics are known."""
        assigned = self._assigned
        self.resign()
        self._assigned = assigned
        self._led_number = reply.generation
        work = partial(read_generation, assignor, reply, dict(assigned))
        self._compute(now, size_of(reply), work, self._read)

    def _read(self, now: float, read: ReadGeneration | Exception) -> None:
        """The subscriptions of the members are read."""
        if isinstance(read, Exception):
            self._member.fail(now, FatalError(f"subscriptions could not be read: {read!r}"))
            return
        for member_id, reported in read.faulty:
            self._log_ignored(member_id, reported)
        generation = self._generation = read.generation
        self._member.other_clients_found(generation.other_clients)
        self._reactions.group_topics_known(now, generation.topics)
        if self._knows(generation.topics):
            self._assign(now, generation)
        else:
            self._waiting = True
            self._cluster.refresh(now, "topics of the group are unknown")

    def _log_ignored(self, member_id: str, reported: ReportedSubscription) -> None:
        if reported.unreadable is not None:
            self._outbox.emit(
                log_events.SUBSCRIPTION_NOT_DECODED, member=member_id, problem=reported.unreadable
            )
        else:
            self._outbox.emit(
                log_events.SUBSCRIPTION_PARTLY_INVALID, member=member_id, problems=reported.ignored
            )

    def _compute(
        self,
        now: float,
        size: int,
        work: Callable[[], _T],
        on_computed: Callable[[float, _T | Exception], None],
    ) -> None:
        """Call ``on_computed(now, result)``, unless another generation has begun before."""

        def computed(later: float, result: _T | Exception) -> None:
            self._computing = None
            on_computed(later, result)

        self._computing = self._outbox.compute(now, size, work, computed)

    @property
    def is_computing(self) -> bool:
        """Whether the assignment of this generation is being computed."""
        return self._computing is not None

    def resign(self) -> None:
        """This member does not lead now: drop what is being computed."""
        if self._computing is not None:
            self._outbox.forget_computation(self._computing)
            self._computing = None
        self._assigned = {}
        self._generation = None
        self._waiting = False
        self._led = {}
        self._own = frozenset()

    def watch_topics(self, topics: frozenset[str]) -> None:
        """Watch these topics in a group whose coordinator assigns, without a leader. If the last
        KIP-848 member is replaced by a static member, the group becomes a classic one without a
        rebalance, and no leader watches the topics."""
        self.resign()
        self._own = topics
        if self._cluster.last_response_names(topics):
            self._led = self._known(topics)

    def metadata_refreshed(self, now: float) -> None:
        """Metadata came that an assignment may have waited for."""
        generation = self._generation
        if generation is None or not self._waiting:
            return
        if self._knows(generation.topics) or not self._cluster.asking:
            self._assign(now, generation)

    def has_changed(self) -> bool:
        """Whether topics, partitions or the racks of replicas have changed since the assignment;
        True once."""
        generation = self._generation
        if generation is None:
            return self._own_have_changed()
        if not self._led:
            return False
        if self._led == self._known(generation.topics) and self._led_racks == self._racks_for(
            generation
        ):
            return False
        self._led = {}
        return True

    def _own_have_changed(self) -> bool:
        if not self._own or not self._cluster.last_response_names(self._own):
            return False
        before, self._led = self._led, self._known(self._own)
        # A topic that was deleted does not count: its owners notice it.
        return bool(before) and any(
            numbers is not None and numbers != before[topic] for topic, numbers in self._led.items()
        )

    def has_missed(self, user_data: AssignmentUserData | None) -> bool:
        """Whether the group keeps an assignment of other partitions than there are: while a static
        leader was away, no member watched them."""
        generation = self._generation
        if generation is None or not generation.skips_assignment:
            return False
        return user_data is None or user_data.partitions != checksum(self._known(generation.topics))

    def _knows(self, topics: frozenset[str]) -> bool:
        return all(self._cluster.partitions(topic) is not None for topic in topics)

    def _known(self, topics: frozenset[str]) -> dict[str, tuple[int, ...] | None]:
        return {topic: self._cluster.partitions(topic) for topic in sorted(topics)}

    def _racks_for(self, generation: LedGeneration) -> PartitionRacks:
        """Empty if no member of the group has a rack."""
        return self._cluster.racks(generation.topics) if generation.has_racks else {}

    def _assign(self, now: float, generation: LedGeneration) -> None:
        self._waiting = False
        self._led = self._known(generation.topics)
        self._led_racks = self._racks_for(generation)
        if generation.skips_assignment:
            self._requests.sync(now, generation.assignor.name, ())
            return
        led, racks = self._led, self._led_racks
        work = partial(plan_assignment, generation, led, racks)
        self._compute(
            now, generation.size(led), work, partial(self._planned, generation.assignor.name)
        )

    def _planned(self, assignor: str, now: float, plan: AssignmentPlan | Exception) -> None:
        """The assignment is computed; the assignor may be the user's own."""
        if isinstance(plan, Exception):
            self._member.fail(now, FatalError(f"assignor {assignor!r} failed: {plan!r}"))
            return
        if plan.violations:
            self._outbox.emit(
                log_events.ASSIGNOR_GAVE_OWNED_PARTITIONS,
                assignor=assignor,
                violations=[
                    f"{partition} to {member_id}: it {reason}"
                    for partition, member_id, reason in plan.violations[:_MOST_LOGGED]
                ],
                count=len(plan.violations),
            )
        self._assigned = dict(list(self._assigned.items())[-_REMEMBERED:])
        self._assigned[self._led_number] = plan.owners
        self._requests.sync(now, assignor, plan.assignments)
