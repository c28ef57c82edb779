"""The simulated coordinator responds as Kafka's does."""

import pytest
from simulation.cluster.network import RequestFate
from simulation.cluster.scripted_client import ORDERS, ScriptedClient, ScriptedCluster

from asyncrevoke.client.core.io.effects import Channel, Failed, FailureKind, Replied
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupResponse,
)
from asyncrevoke.testing.fake_kafka.group_state import GroupState


def two_stable_members() -> tuple[ScriptedCluster, ScriptedClient, ScriptedClient]:
    cluster = ScriptedCluster()
    first, second = cluster.client(), cluster.client()
    first.become_sole_member()
    second.get_id()
    joining = second.send(second.join_request(), Channel.JOIN)
    cluster.wait(0.1)
    first.joined(first.ask(first.join_request(), JoinGroupResponse, Channel.JOIN))
    response = second.response(joining)
    assert isinstance(response, Replied)
    assert isinstance(response.message, JoinGroupResponse)
    second.joined(response.message)
    syncing = second.send(second.sync_request(), Channel.JOIN)
    first.ask(
        first.sync_request({first.member_id: b"1", second.member_id: b"2"}), SyncGroupResponse
    )
    cluster.wait(0.1)
    synced = second.response(syncing)
    assert isinstance(synced, Replied)
    assert synced.message == SyncGroupResponse(error=ErrorCode.none, assignment=b"2")
    assert cluster.group.state is GroupState.STABLE
    return cluster, first, second


def group_in(state: GroupState) -> tuple[ScriptedCluster, ScriptedClient]:
    """A group in this state, and a client that is a member of its running generation, if any is."""
    cluster = ScriptedCluster()
    client = cluster.client()
    if state is GroupState.EMPTY:
        client.member_id, client.generation = "nobody", 0
        return cluster, client
    if state is GroupState.STABLE:
        client.become_sole_member()
    elif state is GroupState.COMPLETING:
        client.get_id()
        client.joined(client.ask(client.join_request(), JoinGroupResponse, Channel.JOIN))
    else:
        client.become_sole_member()
        other = cluster.client()
        other.get_id()
        other.send(other.join_request(), Channel.JOIN)
        cluster.wait(0.1)
    assert cluster.group.state is state
    return cluster, client


E = ErrorCode
COMMITS = [
    # state, valid, stale generation, unknown member, simple consumer
    (GroupState.EMPTY, E.unknown_member_id, E.unknown_member_id, E.unknown_member_id, E.none),
    (GroupState.PREPARING, E.none, E.illegal_generation, E.unknown_member_id, E.unknown_member_id),
    (
        GroupState.COMPLETING,
        E.rebalance_in_progress,
        E.illegal_generation,
        E.unknown_member_id,
        E.unknown_member_id,
    ),
    (GroupState.STABLE, E.none, E.illegal_generation, E.unknown_member_id, E.unknown_member_id),
]


@pytest.mark.parametrize(("state", "valid", "stale", "unknown", "simple"), COMMITS)
def test_the_response_to_a_commit_depends_on_the_state_of_the_group(
    state: GroupState, valid: E, stale: E, unknown: E, simple: E
) -> None:
    for generation, member_id, expected in [
        (None, None, valid),
        (77, None, stale),
        (None, "stranger", unknown),
        (-1, "", simple),
    ]:
        cluster, client = group_in(state)
        assert client.commit(5, generation, member_id) is expected
        assert (ORDERS in cluster.group.offsets) is (expected is E.none)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (GroupState.EMPTY, E.unknown_member_id),
        (GroupState.PREPARING, E.rebalance_in_progress),
        (GroupState.COMPLETING, E.none),
        (GroupState.STABLE, E.none),
    ],
)
def test_the_response_to_a_heartbeat_depends_on_the_state_of_the_group(
    state: GroupState, expected: E
) -> None:
    _, client = group_in(state)
    assert client.ask(client.heartbeat(), HeartbeatResponse).error is expected


def test_a_member_without_an_id_is_given_one_and_has_to_join_again() -> None:
    cluster = ScriptedCluster()
    client = cluster.client()
    response = client.ask(client.join_request(), JoinGroupResponse)
    assert response.error is E.member_id_required
    assert response.member_id
    assert not cluster.group.members


def test_a_join_of_an_unknown_id_is_rejected() -> None:
    client = ScriptedCluster().client()
    client.member_id = "nobody"
    assert client.ask(client.join_request(), JoinGroupResponse).error is E.unknown_member_id


def test_a_member_without_a_common_protocol_is_rejected() -> None:
    cluster, first = group_in(GroupState.STABLE)
    second = cluster.client()
    response = second.ask(second.join_request(protocols=(("other", b""),)), JoinGroupResponse)
    assert response.error is E.inconsistent_group_protocol
    assert first.ask(first.heartbeat(), HeartbeatResponse).error is E.none


def test_the_protocol_that_most_members_prefer_among_the_common_ones_is_chosen() -> None:
    cluster = ScriptedCluster(initial_delay=1.0)
    joins: list[tuple[ScriptedClient, int]] = []
    for names in (("a", "b"), ("b", "a"), ("c", "b", "a")):
        client = cluster.client()
        protocols = tuple((name, b"") for name in names)
        client.get_id(protocols=protocols)
        request = client.join_request(protocols=protocols)
        joins.append((client, client.send(request, Channel.JOIN)))
    cluster.wait(5)
    for client, joining in joins:
        response = client.response(joining)
        assert isinstance(response, Replied)
        assert isinstance(response.message, JoinGroupResponse)
        assert response.message.protocol_name == "b"


def test_only_the_leader_gets_the_members() -> None:
    cluster = ScriptedCluster(initial_delay=1.0)
    first, second = cluster.client(), cluster.client()
    requests: list[tuple[ScriptedClient, int]] = []
    for client in (first, second):
        client.get_id()
        requests.append((client, client.send(client.join_request(), Channel.JOIN)))
    cluster.wait(5)
    responses: list[JoinGroupResponse] = []
    for client, request in requests:
        event = client.response(request)
        assert isinstance(event, Replied)
        assert isinstance(event.message, JoinGroupResponse)
        responses.append(event.message)
    assert [response.leader for response in responses] == [first.member_id] * 2
    assert [member.member_id for member in responses[0].members] == [
        first.member_id,
        second.member_id,
    ]
    assert responses[1].members == ()


def test_a_follower_that_joins_a_stable_group_unchanged_gets_the_running_generation() -> None:
    cluster, _, second = two_stable_members()
    generation = cluster.group.generation
    response = second.ask(second.join_request(), JoinGroupResponse, Channel.JOIN)
    assert (response.error, response.generation) == (E.none, generation)
    assert cluster.group.state is GroupState.STABLE


def test_a_leader_that_joins_a_stable_group_unchanged_starts_a_rebalance() -> None:
    cluster, first, _ = two_stable_members()
    first.send(first.join_request(), Channel.JOIN)
    cluster.wait(0.1)
    assert cluster.group.state is GroupState.PREPARING


def test_a_member_that_joins_unchanged_while_the_rebalance_completes_gets_that_generation() -> None:
    cluster, client = group_in(GroupState.COMPLETING)
    response = client.ask(client.join_request(), JoinGroupResponse, Channel.JOIN)
    assert response.generation == client.generation == cluster.group.generation
    assert cluster.group.state is GroupState.COMPLETING


def test_a_dynamic_member_that_does_not_rejoin_is_removed_when_the_rebalance_timer_ends() -> None:
    cluster, first = group_in(GroupState.PREPARING)
    for _ in range(12):
        first.ask(first.heartbeat(), HeartbeatResponse)
        cluster.wait(1.0)
    assert first.member_id not in cluster.group.members
    assert first.ask(first.heartbeat(), HeartbeatResponse).error is E.unknown_member_id


def test_the_rebalance_timer_is_the_longest_of_the_members() -> None:
    cluster, first = group_in(GroupState.STABLE)
    cluster.group.members[first.member_id].rebalance_timeout = 20.0
    second = cluster.client()
    second.get_id()
    second.send(second.join_request(), Channel.JOIN)
    for _ in range(15):
        first.ask(first.heartbeat(), HeartbeatResponse)
        cluster.wait(1.0)
    assert cluster.group.state is GroupState.PREPARING
    assert first.member_id in cluster.group.members


def test_a_static_member_that_does_not_rejoin_stays() -> None:
    cluster = ScriptedCluster()
    static = cluster.client()
    request = static.join_request(group_instance_id="one", session_timeout=60.0)
    response = static.ask(request, JoinGroupResponse, Channel.JOIN)
    static.member_id, static.generation = response.member_id, response.generation
    other = cluster.client()
    other.get_id()
    other.send(other.join_request(), Channel.JOIN)
    cluster.wait(11)
    assert static.member_id in cluster.group.members
    assert cluster.group.generation == static.generation + 1


def test_an_old_incarnation_of_a_static_member_is_fenced() -> None:
    cluster = ScriptedCluster()
    old, new = cluster.client(), cluster.client()
    for client in (old, new):
        request = client.join_request(group_instance_id="one")
        response = client.ask(request, JoinGroupResponse, Channel.JOIN)
        client.member_id, client.generation = response.member_id, response.generation
    request = old.join_request(group_instance_id="one")
    assert old.ask(request, JoinGroupResponse).error is E.fenced_instance_id


def test_a_session_that_is_not_renewed_ends_the_membership() -> None:
    cluster, first, second = two_stable_members()
    for _ in range(7):
        first.ask(first.heartbeat(), HeartbeatResponse)
        cluster.wait(1.0)
    assert list(cluster.group.members) == [first.member_id]
    assert second.ask(second.heartbeat(), HeartbeatResponse).error is E.unknown_member_id


@pytest.mark.parametrize("state", [GroupState.PREPARING, GroupState.STABLE])
def test_a_commit_renews_the_session(state: GroupState) -> None:
    cluster, client = group_in(state)
    for offset in range(8):
        assert client.commit(offset) is E.none
        cluster.wait(1.0)
    assert client.member_id in cluster.group.members


def test_a_pending_join_does_not_expire() -> None:
    cluster, first, second = two_stable_members()
    second.send(second.join_request(protocols=(("range", b"new"),)), Channel.JOIN)
    for _ in range(9):
        first.ask(first.heartbeat(), HeartbeatResponse)
        cluster.wait(1.0)
    assert second.member_id in cluster.group.members


def test_who_sends_no_sync_in_time_is_removed() -> None:
    cluster, first, second = two_stable_members()
    joining = second.send(second.join_request(protocols=(("range", b"new"),)), Channel.JOIN)
    cluster.wait(0.1)
    first.joined(first.ask(first.join_request(), JoinGroupResponse, Channel.JOIN))
    assert second.response(joining)
    first.ask(first.sync_request({first.member_id: b"1"}), SyncGroupResponse)
    second.generation = first.generation
    for _ in range(11):
        for client in (first, second):
            client.ask(client.heartbeat(), HeartbeatResponse)
        cluster.wait(1.0)
    assert list(cluster.group.members) == [first.member_id]


def test_a_sync_of_the_wrong_generation_is_rejected() -> None:
    _, client = group_in(GroupState.STABLE)
    client.generation += 1
    assert client.ask(client.sync_request(), SyncGroupResponse).error is E.illegal_generation


def test_a_sync_that_waits_for_the_leader_gets_rebalance_in_progress() -> None:
    cluster, first, second = two_stable_members()
    joining = first.send(first.join_request(), Channel.JOIN)
    cluster.wait(0.1)
    second.joined(second.ask(second.join_request(), JoinGroupResponse, Channel.JOIN))
    cluster.wait(0.1)
    assert first.response(joining)
    syncing = second.send(second.sync_request(), Channel.JOIN)
    cluster.wait(0.1)
    assert second.response(syncing) is None
    first.send(first.join_request(protocols=(("range", b"new"),)), Channel.JOIN)
    cluster.wait(0.1)
    assert second.response(syncing) == Replied(
        syncing, SyncGroupResponse(error=E.rebalance_in_progress)
    )


def test_a_pending_member_holds_up_the_join_phase_until_it_leaves() -> None:
    cluster, first = group_in(GroupState.STABLE)
    pending = cluster.client()
    pending.get_id()
    rejoin = first.send(first.join_request(), Channel.JOIN)
    cluster.wait(1.0)
    assert first.response(rejoin) is None
    leave = LeaveGroupRequest(group_id="group", member_id=pending.member_id, group_instance_id=None)
    assert pending.ask(leave, LeaveGroupResponse).error is E.none
    cluster.wait(0.1)
    assert first.response(rejoin)


def test_a_pending_member_that_leaves_a_stable_group_starts_a_rebalance() -> None:
    cluster, _ = group_in(GroupState.STABLE)
    pending = cluster.client()
    pending.get_id()
    leave = LeaveGroupRequest(group_id="group", member_id=pending.member_id, group_instance_id=None)
    pending.ask(leave, LeaveGroupResponse)
    assert cluster.group.state is GroupState.PREPARING


def test_the_last_member_to_leave_leaves_an_empty_group() -> None:
    cluster, client = group_in(GroupState.STABLE)
    leave = LeaveGroupRequest(group_id="group", member_id=client.member_id, group_instance_id=None)
    client.ask(leave, LeaveGroupResponse)
    assert cluster.group.state is GroupState.EMPTY
    assert cluster.group.generation == client.generation + 1


def test_commits_behind_a_pending_join_wait_and_are_then_stale() -> None:
    cluster, first = group_in(GroupState.PREPARING)
    second = cluster.client()
    second.get_id()  # holds the join phase up
    first.send(first.join_request(), Channel.JOIN)
    behind = first.send(first.commit_request(3), Channel.JOIN)
    cluster.wait(1.0)
    assert first.response(behind) is None
    assert first.commit(2) is E.none
    leave = LeaveGroupRequest(group_id="group", member_id=second.member_id, group_instance_id=None)
    second.ask(leave, LeaveGroupResponse)
    cluster.wait(0.1)
    response = first.response(behind)
    assert isinstance(response, Replied)
    assert response.message == OffsetCommitResponse(errors=((ORDERS, E.illegal_generation),))


def test_only_the_partition_with_too_much_metadata_fails() -> None:
    cluster, client = group_in(GroupState.STABLE)
    request = client.commit_request(3)
    entry = request.entries[0]
    long = type(entry)(partition=ORDERS._replace(partition=1), offset=1, metadata="x" * 4097)
    response = client.ask(
        type(request)(
            group_id="group",
            generation=client.generation,
            member_id=client.member_id,
            group_instance_id=None,
            entries=(entry, long),
        ),
        OffsetCommitResponse,
    )
    assert response.errors == (
        (ORDERS, E.none),
        (long.partition, E.offset_metadata_too_large),
    )
    assert list(cluster.group.offsets) == [ORDERS]


def test_committed_offsets_are_read_and_missing_ones_are_minus_one() -> None:
    _, client = group_in(GroupState.STABLE)
    client.commit(7)
    other = ORDERS._replace(partition=1)
    response = client.ask(
        OffsetFetchRequest(group_id="group", partitions=(ORDERS, other)), OffsetFetchResponse
    )
    assert [fetched.offset for fetched in response.offsets] == [7, -1]


def test_a_moved_coordinator_knows_the_members_and_the_offsets() -> None:
    cluster = ScriptedCluster(brokers=2)
    client = cluster.client()
    client.become_sole_member()
    client.commit(7)
    old = cluster.brokers.coordinator
    cluster.brokers.move_coordinator(load_time=1.0)
    stale = client.send(client.commit_request(8), broker=old)
    cluster.wait(0.1)
    response = client.response(stale)
    assert isinstance(response, Replied)
    assert response.message == OffsetCommitResponse(errors=((ORDERS, E.not_coordinator),))
    assert client.commit(8) is E.coordinator_load_in_progress
    # It responds to a heartbeat without a check.
    assert client.ask(client.heartbeat(), HeartbeatResponse).error is E.none
    cluster.wait(1.0)
    assert client.commit(8) is E.none
    found = client.ask(FindCoordinatorRequest(group_id="group"), FindCoordinatorResponse)
    assert found.node_id == cluster.brokers.coordinator != old


def test_a_moved_coordinator_forgets_a_generation_that_was_never_stable() -> None:
    cluster, client = group_in(GroupState.COMPLETING)
    cluster.brokers.move_coordinator(load_time=0.5)
    cluster.wait(1.0)
    assert client.ask(client.sync_request(), SyncGroupResponse).error is E.unknown_member_id


def test_a_waiting_join_gets_not_coordinator_when_the_coordinator_moves() -> None:
    cluster, first = group_in(GroupState.PREPARING)
    pending = cluster.client()
    pending.get_id()
    parked = first.send(first.join_request(), Channel.JOIN)
    cluster.wait(0.1)
    cluster.brokers.move_coordinator(load_time=0.5)
    cluster.wait(0.1)
    response = first.response(parked)
    assert isinstance(response, Replied)
    assert isinstance(response.message, JoinGroupResponse)
    assert response.message.error is E.not_coordinator


@pytest.mark.parametrize(
    ("fate", "processed"),
    [
        (RequestFate.LOST_BEFORE, [False]),
        (RequestFate.LOST_AFTER, [True]),
        (RequestFate.LATE, [True]),
    ],
)
def test_a_lost_request_fails_once_and_may_have_been_processed(
    fate: RequestFate, processed: list[bool]
) -> None:
    cluster, client = group_in(GroupState.STABLE)
    cluster.network.fate = lambda _client, _message: fate
    request = client.send(client.commit_request(9), Channel.COMMIT)
    cluster.wait(2.0)
    response = client.response(request)
    assert isinstance(response, Failed)
    assert response.kind is FailureKind.DISCONNECTED
    assert (ORDERS in cluster.group.offsets) in processed


def test_a_late_commit_is_processed_after_a_newer_one_of_a_new_connection() -> None:
    cluster, client = group_in(GroupState.STABLE)
    fates = [RequestFate.LATE]
    cluster.network.fate = lambda _client, _message: fates.pop() if fates else None
    client.send(client.commit_request(5), Channel.COMMIT)
    cluster.wait(0.005)
    assert client.commit(6) is E.none
    cluster.wait(2.0)
    assert cluster.group.offsets[ORDERS].offset == 5


def test_a_request_without_a_response_fails_in_time_and_drops_its_connection() -> None:
    cluster, client = group_in(GroupState.STABLE)
    cluster.brokers.stall(0, 100.0)
    first = client.send(client.commit_request(1), Channel.COMMIT, timeout=3.0)
    second = client.send(client.commit_request(2), Channel.COMMIT, timeout=30.0)
    cluster.wait(4.0)
    responses = [client.response(first), client.response(second)]
    assert [response.kind for response in responses if isinstance(response, Failed)] == [
        FailureKind.TIMEOUT,
        FailureKind.DISCONNECTED,
    ]


def test_a_killed_broker_is_unreachable() -> None:
    cluster, client = group_in(GroupState.STABLE)
    cluster.network.disconnect_broker(0)
    cluster.brokers.stop(0)
    request = client.send(client.heartbeat())
    cluster.wait(1.0)
    response = client.response(request)
    assert isinstance(response, Failed)
    assert response.kind is FailureKind.UNREACHABLE
