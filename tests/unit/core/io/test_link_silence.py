"""How long a connection may be silent, by the round trips that were observed on it."""

from __future__ import annotations

import pytest

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.io.link_silence import (
    ConnectTimes,
    RoundTripTime,
    may_hold,
    silence_timeout_of,
)
from asyncrevoke.client.protocol.messages import (
    FetchRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
)

HEARTBEAT = HeartbeatRequest(group_id="g", generation=1, member_id="m", group_instance_id=None)
FETCH = FetchRequest(
    partitions=(),
    max_wait=0.5,
    min_bytes=1,
    max_bytes=1024,
    read_committed=False,
    rack="",
    session_id=0,
    session_epoch=-1,
    forgotten=(),
    topic_ids=None,
)
JOIN = JoinGroupRequest(
    group_id="g",
    session_timeout=10.0,
    rebalance_timeout=60.0,
    member_id="",
    group_instance_id=None,
    protocols=(),
    reason="",
)
COMMIT = OffsetCommitRequest(
    group_id="g", generation=1, member_id="m", group_instance_id=None, entries=()
)


def test_silence_is_limited_to_a_third_of_the_session_and_the_request_timeout() -> None:
    assert silence_timeout_of(ConsumerConfig(session_timeout=9.0)) == 3.0
    assert silence_timeout_of(ConsumerConfig()) == 15.0
    assert silence_timeout_of(ConsumerConfig(request_timeout=5.0)) == 5.0


def test_what_brokers_hold_before_they_respond_is_no_silence() -> None:
    assert may_hold(HEARTBEAT) == 0
    assert may_hold(FETCH) == 0.5
    assert may_hold(JOIN) == float("inf")
    assert may_hold(COMMIT) == 5.0


def test_a_link_with_long_round_trips_has_time_for_two_of_them() -> None:
    link = RoundTripTime(4.0)
    assert link.silence_timeout(3.0) == 8.0
    assert link.silence_timeout(15.0) == 15.0


def test_one_late_response_changes_little_and_many_do() -> None:
    link = RoundTripTime()
    link.response_took(4.0)
    assert link.silence_timeout(3.0) == 3.0
    for _ in range(10):
        link.response_took(4.0)
    assert link.silence_timeout(3.0) == pytest.approx(8.0, rel=0.1)
    for _ in range(10):
        link.response_took(0.01)
    assert link.silence_timeout(3.0) == 3.0


def test_each_attempt_to_connect_that_was_too_slow_gives_the_next_twice_the_time() -> None:
    openings = ConnectTimes()
    limits: list[float] = []
    for _ in range(5):
        limits.append(openings.limit(3.0, 40.0))
        openings.timed_out()
    assert limits == [3.0, 6.0, 12.0, 24.0, 40.0]
    openings.opened(8.0)
    assert openings.limit(3.0, 40.0) == 16.0
    openings.opened(0.1)
    assert openings.limit(3.0, 40.0) == 3.0
