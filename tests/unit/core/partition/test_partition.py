"""The life of a partition instance, held against its table."""

from __future__ import annotations

import pytest

from asyncrevoke.client.core.partition.instance import (
    PERMISSIONS,
    TRANSITIONS,
    InstanceState,
    InstanceTransition,
    PartitionInstance,
)
from asyncrevoke.client.model import TopicPartition

PARTITION = TopicPartition("orders", 0)


def instance_in(state: InstanceState) -> PartitionInstance:
    instance = PartitionInstance(PARTITION, 1)
    instance.state = state
    return instance


@pytest.mark.parametrize("step", InstanceTransition)
@pytest.mark.parametrize("state", [InstanceState.RELEASED, InstanceState.LOST])
def test_nothing_happens_after_the_end(state: InstanceState, step: InstanceTransition) -> None:
    with pytest.raises(KeyError):
        instance_in(state).transition(step)


@pytest.mark.parametrize("state", [state for state in InstanceState if PERMISSIONS[state].owned])
def test_every_owned_instance_can_be_lost(state: InstanceState) -> None:
    instance = instance_in(state)
    instance.transition(InstanceTransition.LOSE)
    assert instance.state is InstanceState.LOST


@pytest.mark.parametrize("state", InstanceState)
def test_only_an_active_instance_fetches_and_delivers(state: InstanceState) -> None:
    assert PERMISSIONS[state].fetch == PERMISSIONS[state].deliver == (state is InstanceState.ACTIVE)


@pytest.mark.parametrize("state", InstanceState)
def test_what_has_ended_neither_commits_nor_is_owned(state: InstanceState) -> None:
    if instance_in(state).terminal:
        assert not PERMISSIONS[state].commit
        assert not PERMISSIONS[state].owned


def test_a_revoke_completes_only_after_it_was_announced() -> None:
    """KIP-983: no step leads from being requested to being flushed or released."""
    from_requested = {
        step for state, step in TRANSITIONS if state is InstanceState.REVOKE_REQUESTED
    }
    assert from_requested == {
        InstanceTransition.ANNOUNCE,
        InstanceTransition.WITHDRAW,
        InstanceTransition.LOSE,
    }


def test_a_revoke_that_was_never_shown_is_released_at_once() -> None:
    instance = instance_in(InstanceState.INIT)
    instance.transition(InstanceTransition.REVOKE)
    assert instance.state is InstanceState.RELEASED


def test_every_state_but_the_first_is_reached() -> None:
    assert set(TRANSITIONS.values()) == set(InstanceState) - {InstanceState.INIT}
