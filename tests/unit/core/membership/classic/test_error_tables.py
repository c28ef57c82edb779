"""Errors in responses to JoinGroup, SyncGroup and Heartbeat that no table lists, or only half."""

from __future__ import annotations

import pytest

from asyncrevoke.client.core.membership.classic.error_table import (
    CLASSIC_HEARTBEAT_ERRORS,
    JOIN_ERRORS,
    SYNC_ERRORS,
    ClassicHeartbeatAction,
    JoinErrorAction,
    SyncErrorAction,
    join_action,
)
from asyncrevoke.client.protocol.messages import ErrorCode

UNLISTED = [code for code in ErrorCode if code not in JOIN_ERRORS and code is not ErrorCode.none]


@pytest.mark.parametrize("error", UNLISTED, ids=lambda code: code.name)
def test_an_error_of_join_group_that_is_not_listed_is_retried_if_kafka_retries_it(
    error: ErrorCode,
) -> None:
    expected = JoinErrorAction.RETRY if error.retriable else JoinErrorAction.FAIL
    assert join_action(error, is_id_unwritten=False) is expected


def test_the_instance_id_is_fenced_unless_the_member_id_was_never_written() -> None:
    fenced = ErrorCode.fenced_instance_id
    assert join_action(fenced, is_id_unwritten=False) is JoinErrorAction.FENCED
    assert join_action(fenced, is_id_unwritten=True) is JoinErrorAction.REJOIN


@pytest.mark.parametrize("error", list(JOIN_ERRORS), ids=lambda code: code.name)
def test_an_unwritten_member_id_changes_no_other_error(error: ErrorCode) -> None:
    if error is not ErrorCode.fenced_instance_id:
        assert join_action(error, is_id_unwritten=True) is JOIN_ERRORS[error]


def test_every_action_is_taken_for_some_error() -> None:
    assert {join_action(code, is_id_unwritten=False) for code in ErrorCode} == set(JoinErrorAction)
    assert {*SYNC_ERRORS.values(), SyncErrorAction.RETRY} == set(SyncErrorAction)
    listed = {*CLASSIC_HEARTBEAT_ERRORS.values(), ClassicHeartbeatAction.IGNORE}
    assert listed == set(ClassicHeartbeatAction)
