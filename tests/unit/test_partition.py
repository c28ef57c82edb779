"""The life of a partition instance, held against its table."""

from __future__ import annotations

import pytest

from asyncrevoke.core.partition.instance import CAN, TRANSITIONS, PartitionInstance, State, Step
from asyncrevoke.model import TopicPartition

PARTITION = TopicPartition("orders", 0)


def instance_in(state: State) -> PartitionInstance:
    instance = PartitionInstance(PARTITION, 1)
    instance.state = state
    return instance


@pytest.mark.parametrize("step", Step)
@pytest.mark.parametrize("state", [State.RELEASED, State.LOST])
def test_nothing_happens_after_the_end(state: State, step: Step) -> None:
    with pytest.raises(KeyError):
        instance_in(state).step(step)


@pytest.mark.parametrize("state", [state for state in State if CAN[state].owned])
def test_every_owned_instance_can_be_lost(state: State) -> None:
    instance = instance_in(state)
    instance.step(Step.LOSE)
    assert instance.state is State.LOST


@pytest.mark.parametrize("state", State)
def test_only_an_active_instance_fetches_and_delivers(state: State) -> None:
    assert CAN[state].fetch == CAN[state].deliver == (state is State.ACTIVE)


@pytest.mark.parametrize("state", State)
def test_what_has_ended_neither_commits_nor_is_owned(state: State) -> None:
    if instance_in(state).terminal:
        assert not CAN[state].commit
        assert not CAN[state].owned


def test_a_revoke_completes_only_after_it_was_announced() -> None:
    """KIP-983: no step leads from being requested to being flushed or released."""
    from_requested = {step for state, step in TRANSITIONS if state is State.RV_REQUESTED}
    assert from_requested == {Step.ANNOUNCE, Step.WITHDRAW, Step.LOSE}


def test_a_revoke_that_was_never_shown_is_released_at_once() -> None:
    instance = instance_in(State.INIT)
    instance.step(Step.REVOKE)
    assert instance.state is State.RELEASED


def test_every_state_but_the_first_is_reached() -> None:
    assert set(TRANSITIONS.values()) == set(State) - {State.INIT}
