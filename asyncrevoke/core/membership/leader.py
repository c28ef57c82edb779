"""What the leader of a classic group does: assign, and watch what it assigned by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from asyncrevoke.core.assignors.assignor import Assignor, RebalanceProtocol, assign
from asyncrevoke.core.assignors.member import Member
from asyncrevoke.core.assignors.ownership import repair, withheld
from asyncrevoke.core.membership.assignment_note import AssignmentNote, checksum, encode_note
from asyncrevoke.core.membership.reported_subscription import read_subscription
from asyncrevoke.core.membership.subscription_note import reads_maps
from asyncrevoke.errors import FatalError
from asyncrevoke.protocol.subscription import encode_assignment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.core.assignors.racks import PartitionRacks
    from asyncrevoke.core.cluster import Cluster
    from asyncrevoke.core.outbox import Outbox
    from asyncrevoke.protocol.messages import JoinGroupMember, JoinGroupResponse
    from asyncrevoke.protocol.subscription import Subscription

Assignments = tuple[tuple[str, bytes], ...]

_UUID_LENGTH = 36


def leading_again(reply: JoinGroupResponse, us: JoinGroupMember) -> JoinGroupResponse | None:
    """What a static leader that has come back is told since KIP-814, made of what brokers before
    it say; None if it is another member that leads.

    They name the leader by the id that it had, which is made of its instance id and a UUID, so that
    it assigns nothing. But the metadata are still its to watch.
    """
    stem, uuid = reply.leader[:-_UUID_LENGTH], reply.leader[-_UUID_LENGTH:]
    if us.group_instance_id is None or stem != f"{us.group_instance_id}-" or uuid.count("-") != 4:
        return None
    return structs.replace(reply, members=(us,), skip_assignment=True)


class _Turn:
    """One generation that we lead."""

    def __init__(
        self, assignor: Assignor, members: list[Member], *, skips_assignment: bool
    ) -> None:
        self.assignor = assignor
        self.members = members
        self.skips_assignment = skips_assignment
        self.all_read_maps = all(reads_maps(each.subscription.user_data) for each in members)
        # Eager members use what they were told in the generation before. Another client can take
        # a static member's place within a generation, and nobody is told of that.
        stays_true = RebalanceProtocol.COOPERATIVE in assignor.protocols or all(
            each.group_instance_id is None for each in members
        )
        self.maps_are_read = self.all_read_maps and stays_true
        self.has_racks = any(member.subscription.rack for member in members)
        self.topics = frozenset(topic for member in members for topic in member.subscription.topics)


class Leader:
    """The leader's role of one member, in the generations in which it has it.

    ``on_topics(now, topics)`` asks for the metadata of the whole group's topics, and
    ``on_assigned(now, assignments)`` hands over what SyncGroup is to carry: nothing, if the group
    keeps the assignment that it has (KIP-814).
    """

    def __init__(self, outbox: Outbox, cluster: Cluster) -> None:
        self._outbox = outbox
        self._cluster = cluster
        self.on_topics: Callable[[float, frozenset[str]], None] = lambda _now, _topics: None
        self.on_assigned: Callable[[float, Assignments], None] = lambda _now, _assignments: None
        self.on_failed: Callable[[float, FatalError], None] = lambda _now, _error: None
        self._turn: _Turn | None = None
        self._waiting = False
        # What the present assignment of the group was made by, as far as we watch it.
        self._led: dict[str, tuple[int, ...] | None] = {}
        self._led_racks: PartitionRacks = {}
        # Where nobody leads: the topics of this member alone.
        self._own: frozenset[str] = frozenset()

    def lead(self, now: float, assignor: Assignor, reply: JoinGroupResponse) -> None:
        """This generation is ours to assign, as soon as the partitions of its topics are known."""
        members = [
            Member(member.member_id, member.group_instance_id, self._read(member, reply.generation))
            for member in {member.member_id: member for member in reply.members}.values()
        ]
        self.resign()
        turn = self._turn = _Turn(assignor, members, skips_assignment=reply.skip_assignment)
        self.on_topics(now, turn.topics)
        if self._knows(turn.topics):
            self._assign(now, turn)
        else:
            self._waiting = True
            self._cluster.refresh(now, "topics of the group are unknown")

    @property
    def leads(self) -> bool:
        """Whether the assignment of this generation was ours to make, and is made."""
        return self._turn is not None and not self._waiting

    def resign(self) -> None:
        """Another member leads, or nobody knows yet."""
        self._turn = None
        self._waiting = False
        self._led = {}
        self._own = frozenset()

    def look_after(self, topics: frozenset[str]) -> None:
        """Nobody leads: the coordinator assigns, and watches the topics. But a static member that
        replaces the last one by KIP-848 makes the group a classic one without a rebalance; then
        there is a leader that knows nothing of it, and whoever sees a change has to tell."""
        self.resign()
        self._own = topics
        if self._cluster.has_heard_of(topics):
            self._led = self._known(topics)

    def metadata_refreshed(self, now: float) -> None:
        """The answer is there that an assignment may have waited for."""
        turn = self._turn
        if turn is None or not self._waiting:
            return
        if self._knows(turn.topics) or not self._cluster.asking:
            self._assign(now, turn)

    def has_changed(self) -> bool:
        """Whether the group has to be assigned anew, because topics, partitions or the racks of
        their replicas are others now. Says so once."""
        turn = self._turn
        if turn is None:
            return self._own_have_changed()
        if not self._led:
            return False
        if self._led == self._known(turn.topics) and self._led_racks == self._racks_for(turn):
            return False
        self._led = {}
        return True

    def _own_have_changed(self) -> bool:
        if not self._own or not self._cluster.has_heard_of(self._own):
            return False
        before, self._led = self._led, self._known(self._own)
        # One that is no more is missed by who had something of it.
        return bool(before) and any(
            numbers is not None and numbers != before[topic] for topic, numbers in self._led.items()
        )

    def has_missed(self, note: AssignmentNote | None) -> bool:
        """Whether the assignment that the group keeps was made by other partitions than there are:
        while a static leader was away nobody watched them."""
        turn = self._turn
        if turn is None or not turn.skips_assignment:
            return False
        return note is None or note.partitions != checksum(self._known(turn.topics))

    def _knows(self, topics: frozenset[str]) -> bool:
        return all(self._cluster.partitions(topic) is not None for topic in topics)

    def _known(self, topics: frozenset[str]) -> dict[str, tuple[int, ...] | None]:
        return {topic: self._cluster.partitions(topic) for topic in sorted(topics)}

    def _racks_for(self, turn: _Turn) -> PartitionRacks:
        """Empty if nobody in the group tells where it runs."""
        return self._cluster.racks(turn.topics) if turn.has_racks else {}

    def _assign(self, now: float, turn: _Turn) -> None:
        self._waiting = False
        self._led = self._known(turn.topics)
        self._led_racks = self._racks_for(turn)
        if turn.skips_assignment:
            self.on_assigned(now, ())
            return
        try:
            assignments = self._plan(turn)
        except Exception as error:  # noqa: BLE001 - an assignor may be the user's own code
            self.on_failed(now, FatalError(f"assignor {turn.assignor.name!r} failed: {error!r}"))
            return
        self.on_assigned(now, assignments)

    def _plan(self, turn: _Turn) -> Assignments:
        """Each member's encoded assignment; a topic that does not exist has no partitions."""
        partitions: dict[str, Sequence[int]] = {
            topic: numbers for topic, numbers in self._led.items() if numbers
        }
        plan = assign(turn.assignor, partitions, turn.members, self._led_racks)
        waits = False
        if RebalanceProtocol.COOPERATIVE in turn.assignor.protocols:
            plan, violations = repair(plan, turn.members)
            waits = bool(withheld(partitions, turn.members, plan))
            for violation in violations:
                self._outbox.emit(
                    "error",
                    "the assignor gave away a partition that another member still owns",
                    assignor=turn.assignor.name,
                    violation=str(violation),
                )
        note = b""
        if turn.all_read_maps or RebalanceProtocol.COOPERATIVE in turn.assignor.protocols:
            # In eager groups only to members of ours: some of the other clients with an eager
            # assignor refuse an assignment with more in it.
            note = encode_note(AssignmentNote(waits, checksum(self._led), turn.maps_are_read))
        return tuple(
            (member.member_id, encode_assignment(plan.get(member.member_id, ()), note))
            for member in turn.members
        )

    def _read(self, member: JoinGroupMember, generation: int) -> Subscription:
        reported = read_subscription(member.metadata, generation)
        if reported.unreadable is not None:
            self._outbox.emit(
                "error",
                "a member's subscription cannot be read; it is assigned nothing",
                member=member.member_id,
                problem=reported.unreadable,
            )
        elif reported.ignored:
            self._outbox.emit(
                "warning",
                "part of a member's subscription is not valid and was ignored",
                member=member.member_id,
                problems=reported.ignored,
            )
        return reported.subscription
