"""The search for the group coordinator: at once when it moved, without haste when it is gone."""

from __future__ import annotations

import pytest
from unit.core.scripted_environment import NODES, ScriptedRequests, topic

from asyncrevoke.client.core.io.effects import Failed, FailureKind, Send
from asyncrevoke.client.errors import AuthenticationError, GroupAuthorizationError
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)


def named(number: int) -> FindCoordinatorResponse:
    node = NODES[number]
    return FindCoordinatorResponse(
        error=ErrorCode.none,
        node_id=node.node_id,
        host=node.host,
        port=node.port,
    )


def rejected(error: ErrorCode) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(error=error)


def world_with_a_search() -> ScriptedRequests:
    world = ScriptedRequests()
    world.know(topic("orders", {0: 1}))
    world.coordinator.call_when_known("test", lambda _now: None, world.now)
    return world


def searches(world: ScriptedRequests) -> list[Send]:
    return world.sends(FindCoordinatorRequest)


def found(world: ScriptedRequests, number: int) -> None:
    (search,) = searches(world)
    world.reply(search, named(number))
    assert world.coordinator.node == NODES[number]


def test_who_waits_is_called_when_it_is_found_and_at_once_when_it_is_known() -> None:
    world = ScriptedRequests()
    world.know(topic("orders", {0: 1}))
    called: list[str] = []
    world.coordinator.call_when_known("a", lambda _now: called.append("a"), world.now)
    world.coordinator.call_when_known("b", lambda _now: called.append("b"), world.now)
    assert called == []
    found(world, 2)
    assert called == ["a", "b"]
    world.coordinator.call_when_known("c", lambda _now: called.append("c"), world.now)
    assert called == ["a", "b", "c"]


def test_one_that_served_for_a_while_is_looked_for_at_once_when_it_fails() -> None:
    world = world_with_a_search()
    found(world, 1)
    world.advance(5)
    world.coordinator.mark_unknown(world.now, "it moved", NODES[1])
    found(world, 2)
    assert len(world.named("coordinator unknown")) == 1


def test_one_that_is_named_again_although_it_is_gone_is_asked_for_without_haste() -> None:
    world = world_with_a_search()
    found(world, 1)
    world.advance(5)
    begun, times = world.now, 0
    while world.now - begun < 9:
        world.coordinator.mark_unknown(world.now, "no connection", NODES[1])
        world.coordinator.call_when_known("test", lambda _now: None, world.now)
        while not searches(world):
            world.advance(0.05)
        found(world, 1)
        times += 1
    assert 8 <= times <= 16
    assert len(world.named("coordinator unknown")) == 1
    (warning,) = world.named("waiting for the group coordinator")
    assert warning.level == "warning"
    assert warning.fields["last_response"] == "no connection"


def test_it_is_found_soon_after_the_others_have_noticed() -> None:
    world = world_with_a_search()
    found(world, 1)
    for _ in range(20):
        world.coordinator.mark_unknown(world.now, "no connection", NODES[1])
        while not searches(world):
            world.advance(0.05)
        found(world, 1)
    world.coordinator.mark_unknown(world.now, "no connection", NODES[1])
    lost = world.now
    while not searches(world):
        world.advance(0.05)
    found(world, 3)
    assert world.now - lost <= 1.05


def test_a_search_that_fails_goes_to_another_broker_and_does_not_wait_for_long() -> None:
    world = world_with_a_search()
    (search,) = searches(world)
    world.fail(search, FailureKind.TIMEOUT)
    world.advance(0.2)
    (again,) = searches(world)
    assert again.node != search.node


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (rejected(ErrorCode.group_authorization_failed), GroupAuthorizationError),
        (Failed(0, FailureKind.AUTHENTICATION, "rejected"), AuthenticationError),
    ],
)
def test_what_no_retry_can_mend_is_an_error(
    response: FindCoordinatorResponse | Failed, error: type[Exception]
) -> None:
    world = world_with_a_search()
    (search,) = searches(world)
    if isinstance(response, Failed):
        world.fail(search, response.kind, response.detail)
    else:
        world.reply(search, response)
    assert [type(each) for each in world.errors] == [error]
    world.advance(60)
    assert searches(world) == []
