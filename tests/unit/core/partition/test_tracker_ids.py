"""By its tracker id a record finds its partition, or is known as one of a past assignment."""

from collections.abc import Sized

import pytest
from unit.core.ignored_reactions import IgnoredPartitions
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import ScriptedGroup

from asyncrevoke.client.core.io.outbox import Outbox
from asyncrevoke.client.core.partition.assignment import Assignment
from asyncrevoke.client.core.partition.instance import InstanceTransition
from asyncrevoke.client.protocol.messages import ErrorCode


def assign_and_lose(assignment: Assignment) -> int:
    """Assign a partition, seek in it, lose it: the id of its last tracker."""
    (instance,) = assignment.add([tp(0)])
    assignment.set_position(instance, 0)
    assignment.set_position(instance, 5)
    assert instance.tracker is not None
    tracker_id = instance.tracker.tracker_id
    assert assignment.instance_of(tracker_id) is instance
    assignment.end(instance, InstanceTransition.LOSE)
    assignment.take_lost()
    return tracker_id


def entries(assignment: Assignment) -> int:
    return sum(len(value) for value in vars(assignment).values() if isinstance(value, Sized))


def test_past_assignments_leave_nothing_behind_and_their_trackers_are_known_as_ours() -> None:
    assignment = Assignment(Outbox(), IgnoredPartitions())
    first = assign_and_lose(assignment)
    before = entries(assignment)
    last = [assign_and_lose(assignment) for _ in range(500)][-1]
    assert entries(assignment) == before
    assert assignment.instance_of(first) is None
    assert assignment.instance_of(last) is None


@pytest.mark.parametrize("later", [False, True])
def test_a_tracker_of_another_consumer_is_not_ours(later: bool) -> None:
    older, newer = (
        Assignment(Outbox(), IgnoredPartitions()),
        Assignment(Outbox(), IgnoredPartitions()),
    )
    ids = [assign_and_lose(each) for each in (older, newer)]
    asked, other = (newer, ids[0]) if later else (older, ids[1])
    for tracker_id in (other, max(ids) + 1, 0, -1):
        with pytest.raises(ValueError, match="was not returned by this consumer"):
            asked.instance_of(tracker_id)


def test_a_record_of_a_past_assignment_is_rejected_without_an_error() -> None:
    group = ScriptedGroup(commit_mode="ack")
    group.become_member(0, 1)
    group.pulse = ErrorCode.none
    (record,) = group.receive(0)
    group.respond_to_beat(ErrorCode.unknown_member_id)
    assert group.core.returned_records.complete(group.now, record) is False
    assert group.core.returned_records.submit(record) is False
    assert group.core.owns(record) is False
    other = ScriptedGroup(commit_mode="ack")
    with pytest.raises(ValueError, match="was not returned by this consumer"):
        other.core.returned_records.complete(other.now, record)
