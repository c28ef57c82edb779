"""The simulated coordinator converts groups, and serves classic members in them, as Kafka's."""

from __future__ import annotations

from simulation.brokers.scripted_conversion import (
    ALL,
    ConvertibleGroup,
    E,
    ScriptedClassicMember,
    ScriptedKip848Member,
    classic_group,
    converted_group,
    shared,
)

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.testing.fake_kafka.consumer_group import by_id, by_key, topic_id
from asyncrevoke.testing.fake_kafka.group_state import GroupState


def test_the_first_member_by_epochs_converts_a_classic_group_in_which_all_keep_what_they_have() -> (
    None
):
    group, member, modern = converted_group()
    ((owners, behind),) = group.heard.conversions
    assert owners == dict.fromkeys(ALL, member.client)
    assert behind == ()
    assert modern.epoch > member.generation
    assert modern.assigned == frozenset()  # nothing is free yet


def test_a_classic_member_in_a_converted_group_rejoins_and_releases_in_two_steps() -> None:
    _, member, modern = converted_group()
    generation = member.generation
    assert member.beat() is E.rebalance_in_progress
    assert member.join(ALL) is E.none
    assert member.generation == generation  # it still owns what it has to revoke
    kept = member.sync()
    assert isinstance(kept, frozenset)
    assert len(kept) == 2
    # As long as it lists the others they are its own, however often it joins.
    for _ in range(3):
        assert member.beat() is E.rebalance_in_progress
        assert member.join(ALL) is E.none
        assert member.sync() == kept
        modern.beat()
        assert modern.assigned == frozenset()
    assert member.commit(3, 5) is E.none
    assert member.join(kept) is E.none
    assert member.generation > generation
    assert member.sync() == kept
    assert member.beat() is E.none
    assert modern.beat() is E.none
    assert modern.assigned == ALL - kept


def test_an_eager_member_that_joins_with_nothing_takes_part_at_once() -> None:
    _, member, modern = converted_group()
    assert member.join() is E.none
    assert member.generation == modern.epoch
    assert modern.beat() is E.none
    kept = member.sync()
    assert isinstance(kept, frozenset)
    assert len(kept) == len(modern.assigned) == 2


def test_a_classic_member_that_does_not_rejoin_is_evicted_after_its_rebalance_timeout() -> None:
    group, member, modern = converted_group()
    assert member.beat() is E.rebalance_in_progress
    for _ in range(9):
        group.wait(1.0)
        member.beat()
        modern.beat()
    assert group.heard.removed == [(member.client, "it did not rejoin in time")]
    assert modern.assigned == ALL


def test_a_classic_member_that_joins_again_is_served_without_a_leader() -> None:
    group, member, modern = shared()
    other = ScriptedClassicMember(group)
    assert other.join() is E.none
    assert not other.leads
    assert other.members == []
    assert other.sync() == frozenset()  # nothing is free
    assert other.beat() is E.none  # and it waits for others
    assert member.beat() is E.rebalance_in_progress
    assert modern.beat() is E.none


def test_a_classic_member_without_a_protocol_of_the_others_is_rejected() -> None:
    group, _, _ = shared()
    other = ScriptedClassicMember(group)
    other.protocol = "range"
    assert other.join() is E.inconsistent_group_protocol


def test_a_classic_member_commits_with_its_epoch_for_a_generation() -> None:
    _, member, _ = shared()
    member.generation -= 1
    assert member.commit(0, 1) is E.illegal_generation
    member.generation += 1
    assert member.commit(0, 1) is E.none


def test_the_group_is_classic_again_when_the_last_member_by_epochs_has_left() -> None:
    group, member, modern = shared()
    assert modern.leave() is E.none
    assert group.coordinator.state is GroupState.PREPARING
    assert group.heard.conversions[-1][1] == ()
    assert member.beat() is E.rebalance_in_progress
    assert member.join(frozenset(list(ALL)[:2])) is E.none
    assert member.leads
    assert member.sync({member.member_id: ALL}) == ALL
    assert member.commit(0, 3) is E.none
    assert modern.beat() is E.group_id_not_found


def test_a_member_that_had_not_reached_the_epoch_is_no_valid_one_after_the_way_back() -> None:
    group, member, modern = converted_group()
    member.join(ALL)
    member.sync()
    assert modern.leave() is E.none
    assert group.heard.conversions[-1][1] == (member.client,)
    assert member.beat() is E.illegal_generation
    assert member.commit(3, 5) is E.illegal_generation


def test_a_waiting_join_gets_rebalance_in_progress_when_the_group_is_converted() -> None:
    group, member = classic_group()
    other = ScriptedClassicMember(group)
    assert other.join() is None
    modern = ScriptedKip848Member(group)
    assert modern.beat() is E.none
    assert other.joined() is E.rebalance_in_progress
    # To the coordinator it is a member that has nothing.
    assert other.join() is E.none
    assert member.beat() is E.rebalance_in_progress


def test_what_a_member_drains_is_free_to_a_coordinator_that_converts() -> None:
    group, member = classic_group()
    other = ScriptedClassicMember(group)
    other.join()
    member.join(ALL)
    group.wait()
    assert member.joined() is E.none
    half = frozenset(sorted(ALL)[:2])
    # The leader has withheld the other half, which it still works on.
    assert member.sync({member.member_id: half}) == half
    modern = ScriptedKip848Member(group)
    assert modern.beat() is E.none
    assert set(group.heard.conversions[0][0]) == half
    assert modern.assigned
    assert modern.assigned <= ALL - half
    assert member.commit(3, 5) is E.none  # nobody checks whose it is


def test_an_empty_group_becomes_what_joins_it_and_keeps_its_offsets() -> None:
    group, member = classic_group()
    assert member.commit(1, 7) is E.none
    assert member.leave() is E.none
    group.wait()
    modern = ScriptedKip848Member(group)
    assert modern.beat() is E.none
    assert modern.assigned == ALL
    assert group.coordinator.offsets[TopicPartition("orders", 1)].offset == 7
    assert modern.leave() is E.none
    again = ScriptedClassicMember(group)
    again.join()
    group.wait()
    assert again.joined() is E.none
    assert again.leads
    assert group.heard.conversions == []


def test_a_static_member_comes_back_by_the_other_protocol_and_fences_its_former_self() -> None:
    group, _, _ = shared()
    first = ScriptedClassicMember(group, "static")
    assert first.join() is E.none
    second = ScriptedKip848Member(group, "static")
    assert second.beat() is E.none
    assert first.beat() is E.fenced_instance_id
    third = ScriptedClassicMember(group, "static")
    assert third.join() is E.none
    assert second.beat() is E.fenced_instance_id


def test_the_last_member_by_epochs_comes_back_as_a_classic_one_and_nothing_moves() -> None:
    group, member = classic_group()
    modern = ScriptedKip848Member(group, "static")
    assert modern.beat() is E.none
    member.join(ALL)
    kept = member.sync()
    assert isinstance(kept, frozenset)
    member.join(kept)
    assert member.sync() == kept
    assert modern.beat() is E.none
    again = ScriptedClassicMember(group, "static")
    assert again.join() is E.none
    assert group.coordinator.state is GroupState.STABLE
    assert again.sync() == modern.assigned == ALL - kept
    assert member.beat() is E.none
    assert not again.leads
    assert modern.beat() is E.group_id_not_found
    assert group.heard.conversions[-1] == (
        dict.fromkeys(kept, member.client) | dict.fromkeys(ALL - kept, again.client),
        (),
    )


def test_it_is_given_the_whole_target_and_who_still_drains_is_no_valid_member() -> None:
    group, member = classic_group()
    modern = ScriptedKip848Member(group, "static")
    assert modern.beat() is E.none
    member.join(ALL)
    kept = member.sync()
    assert isinstance(kept, frozenset)
    again = ScriptedClassicMember(group, "static")
    assert again.join() is E.none
    assert again.sync() == ALL - kept
    assert group.heard.conversions[-1][1] == (member.client,)
    assert member.beat() is E.illegal_generation


def test_the_group_rebalances_if_the_last_member_by_epochs_comes_back_to_a_stale_target() -> None:
    group, member = classic_group(assignment_interval=5.0)
    modern = ScriptedKip848Member(group, "static")
    assert modern.beat() is E.none
    other = ScriptedClassicMember(group)
    assert other.join() is E.none
    again = ScriptedClassicMember(group, "static")
    assert again.join() is E.none
    assert again.generation == 0
    assert group.coordinator.state is GroupState.PREPARING
    assert again.sync() is E.illegal_generation
    assert member.beat() in (E.rebalance_in_progress, E.illegal_generation)


def test_partitions_left_unowned_by_a_static_conversion_wait_for_a_rebalance() -> None:
    group = ConvertibleGroup()
    member, static = ScriptedClassicMember(group), ScriptedClassicMember(group, "static")
    member.join()
    static.join()
    group.wait()
    assert member.joined() is static.joined() is E.none
    half, rest = frozenset(sorted(ALL)[:2]), frozenset(sorted(ALL)[2:3])
    shares = {member.member_id: half, static.member_id: rest}
    leader, other = (member, static) if member.leads else (static, member)
    assert leader.sync(shares) == shares[leader.member_id]
    assert other.sync() == shares[other.member_id]
    modern = ScriptedKip848Member(group, "static")
    assert modern.beat() is E.none
    assert modern.assigned == rest
    assert member.beat() is E.none  # as if it were the newest assignment
    assert group.coordinator.unread == ALL - half - rest
    assert ScriptedKip848Member(group).beat() is E.none
    assert member.beat() is E.rebalance_in_progress
    assert not group.coordinator.unread


def waiting_for_free_partitions() -> tuple[
    ConvertibleGroup, ScriptedClassicMember, frozenset[TopicPartition]
]:
    """A static KIP-848 member has released all but what it keeps, and a classic member has not
    joined again for that."""
    group = ConvertibleGroup()
    modern, waiting = ScriptedKip848Member(group, "static"), ScriptedClassicMember(group)
    assert modern.beat() is E.none
    assert waiting.join() is E.none
    assert waiting.sync() == frozenset()
    assert modern.beat() is E.none
    kept = modern.assigned
    assert modern.beat(kept) is E.none
    return group, waiting, kept


def test_a_pending_response_is_lost_however_often_static_members_convert() -> None:
    group, waiting, kept = waiting_for_free_partitions()
    again = ScriptedClassicMember(group, "static")
    assert again.join() is E.none
    assert again.sync() == kept
    for join in (
        ScriptedKip848Member(group, "static").beat,
        ScriptedClassicMember(group, "static").join,
        ScriptedKip848Member(group, "static").beat,
    ):
        assert waiting.beat() is E.none
        assert group.coordinator.unread == ALL - kept
        assert join() is E.none
    assert group.coordinator.unread == ALL - kept
    assert waiting.join() is E.none
    assert waiting.sync() == ALL - kept
    assert not group.coordinator.unread


def test_a_join_processed_after_its_member_has_synced_is_not_reported_to_it() -> None:
    group, waiting, kept = waiting_for_free_partitions()
    assert waiting.join() is E.none  # of a closed connection
    again = ScriptedClassicMember(group, "static")
    assert again.join() is E.none
    assert again.sync() == kept
    for _ in range(5):
        group.wait(2.0)  # for longer than its rebalance timeout
        assert waiting.beat() is again.beat() is E.none
        assert group.coordinator.unread == ALL - kept
    assert waiting.sync() == ALL - kept
    assert not group.coordinator.unread


def test_the_rebalance_of_a_group_made_classic_is_forgotten_with_its_coordinator() -> None:
    group, member, modern = shared()
    had = modern.assigned
    assert modern.leave() is E.none
    assert member.beat() is E.rebalance_in_progress
    group.coordinator.unload()
    group.coordinator.load()
    assert group.coordinator.state is GroupState.STABLE
    assert member.beat() is E.none
    assert group.coordinator.unread == had
    other = ScriptedClassicMember(group)
    assert other.join() is None
    assert member.join(ALL - had) is E.none
    group.wait()
    assert not group.coordinator.unread


def test_a_moved_coordinator_knows_a_converted_group() -> None:
    group, member, modern = shared()
    group.coordinator.unload()
    group.coordinator.load()
    assert member.beat() is E.none
    assert modern.beat() is E.none
    group.wait(6.5)
    assert {client for client, _ in group.heard.removed} == {member.client, modern.client}


def test_a_topic_created_again_is_another_one() -> None:
    assert topic_id("orders+1") != topic_id("orders")
    assert by_key(by_id(ALL)) == ALL
