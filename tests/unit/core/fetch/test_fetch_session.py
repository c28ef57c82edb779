"""In a fetch session a broker is told only of changes (KIP-227)."""

from __future__ import annotations

from unittest.mock import MagicMock, create_autospec

import pytest
from unit.core.fetch.scripted_fetches import FetchWorld, asked, data
from unit.core.scripted_environment import NODES, topic, tp

from asyncrevoke.client.core.commit.committer import Committer
from asyncrevoke.client.core.fetch.fetcher import Fetcher
from asyncrevoke.client.core.io.effects import Channel, FailureKind, Send
from asyncrevoke.client.core.membership.subscription_state import SubscriptionState
from asyncrevoke.client.core.partition.assignment import Assignment
from asyncrevoke.client.core.partition.revocation import Revocation
from asyncrevoke.client.core.poll.leave import Leaving
from asyncrevoke.client.core.poll.poll import Poller
from asyncrevoke.client.core.poll.reactions import PollReactions
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    FetchedPartition,
    FetchRequest,
    FetchResponse,
)

MANY = 40


class SessionWorld(FetchWorld):
    """All partitions are led by broker 1, which keeps session 7."""

    def __init__(self, partitions: int = MANY) -> None:
        super().__init__(1)
        self.cluster.refresh(self.now, "a test")
        self.advance(0.2)
        self.respond_to_metadata(topic("orders", dict.fromkeys(range(partitions), 1), epoch=2))
        self.advance(1.0)
        self.assign(*range(partitions))

    def poll_of(self) -> tuple[Send, FetchRequest]:
        (send,) = [s for s in self.sends(FetchRequest) if s.channel is Channel.FETCH]
        assert isinstance(send.message, FetchRequest)
        return send, send.message

    def told(
        self,
        *partitions: FetchedPartition,
        session_id: int = 7,
        error: ErrorCode = ErrorCode.none,
        after: float | None = None,
    ) -> None:
        send, message = self.poll_of()
        self.advance(message.max_wait if after is None else after)
        response = FetchResponse(error=error, session_id=session_id, partitions=partitions)
        self.reply(send, response)
        self.plan()

    def told_of_all(self, session_id: int = 7) -> None:
        """The response to a fetch that names everything."""
        _, message = self.poll_of()
        self.told(*(data(n, "") for n in asked(message)), session_id=session_id)


def epochs(message: FetchRequest) -> tuple[int, int]:
    return message.session_id, message.session_epoch


def test_a_fetch_session_begins_with_all_partitions_and_continues_without_any() -> None:
    world = SessionWorld()
    _, first = world.poll_of()
    assert epochs(first) == (0, 0)
    assert len(first.partitions) == MANY
    world.told_of_all()
    for epoch in (1, 2, 3):
        _, message = world.poll_of()
        assert epochs(message) == (7, epoch)
        assert (message.partitions, message.forgotten) == ((), ())
        world.told()
    assert world.named("waiting to fetch") == []


def test_what_a_waiting_poll_collects_is_all_that_the_next_fetch_of_few_names() -> None:
    world = SessionWorld(3)
    world.is_poll_waiting = True
    world.told_of_all()
    world.told(data(1, "0+5"))
    world.fetching.polled()
    world.collect()
    _, message = world.poll_of()
    assert epochs(message) == (7, 2)
    assert (asked(message), message.forgotten) == ({1: 5}, ())


def test_what_moves_to_the_fetch_for_busy_partitions_is_forgotten_until_it_is_quiet() -> None:
    world = SessionWorld()
    world.told_of_all()
    world.told(data(3, "0+5"))
    _, message = world.poll_of()
    assert (asked(message), message.forgotten) == ({}, (tp(3),))
    assert world.collect() == {3: [0, 1, 2, 3, 4]}
    busy = world.fetch_of(1, 3)
    assert busy.channel is Channel.FETCH_BUSY
    assert isinstance(busy.message, FetchRequest)
    assert epochs(busy.message) == (0, -1)
    world.advance(message.max_wait - 0.01)
    world.respond(1, data(3, ""))
    world.told(after=0.01)
    _, message = world.poll_of()
    assert (asked(message), message.forgotten) == ({3: 5}, ())


def test_removed_partitions_and_new_positions_are_sent_in_the_session() -> None:
    world = SessionWorld()
    world.told_of_all()
    world.fetching.remove(world.instances[1])
    world.place(world.instances[2], 50)
    world.told()
    _, message = world.poll_of()
    assert (asked(message), message.forgotten) == ({2: 50}, (tp(1),))


def test_a_new_leader_epoch_is_sent_in_the_session() -> None:
    world = SessionWorld()
    world.told_of_all()
    world.cluster.refresh(world.now, "a test")
    world.advance(0.2)
    world.respond_to_metadata(topic("orders", dict.fromkeys(range(MANY), 1), epoch=3))
    world.told()
    _, message = world.poll_of()
    assert {p.leader_epoch for p in message.partitions} == {3}
    assert len(message.partitions) == MANY


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    ],
)
def test_a_fetch_session_unknown_to_the_broker_is_begun_again_at_once(error: ErrorCode) -> None:
    world = SessionWorld()
    world.told_of_all()
    world.told(error=error, session_id=0)
    _, message = world.poll_of()
    assert epochs(message) == (0, 0)
    assert len(message.partitions) == MANY
    assert world.named("waiting for a broker to fetch from") == []


def test_a_broker_that_rejects_a_session_at_its_beginning_is_not_asked_in_a_hot_loop() -> None:
    world = SessionWorld()
    world.told(error=ErrorCode.fetch_session_id_not_found, session_id=0)
    assert world.fetches() == {}
    world.advance(0.5)
    world.plan()
    assert len(world.poll_of()[1].partitions) == MANY


@pytest.mark.parametrize("kind", [FailureKind.TIMEOUT, FailureKind.DISCONNECTED])
def test_after_a_failure_the_old_session_is_ended_with_a_new_beginning(kind: FailureKind) -> None:
    world = SessionWorld()
    world.told_of_all()
    world.fail(world.poll_of()[0], kind)
    world.advance(0.5)
    world.plan()
    _, message = world.poll_of()
    assert epochs(message) == (7, 0)
    assert len(message.partitions) == MANY
    world.told_of_all(session_id=8)
    assert epochs(world.poll_of()[1]) == (8, 1)


def test_a_broker_without_a_fetch_session_gets_a_full_fetch_each_time() -> None:
    world = SessionWorld()
    for _ in range(3):
        _, message = world.poll_of()
        assert epochs(message) == (0, 0)
        assert len(message.partitions) == MANY
        world.told_of_all(session_id=0)


def test_an_error_of_one_partition_in_a_session_concerns_it_alone() -> None:
    world = SessionWorld()
    world.told_of_all()
    world.told(FetchedPartition(partition=tp(4), error=ErrorCode.not_leader_or_follower))
    _, message = world.poll_of()
    assert message.forgotten == (tp(4),)
    world.respond_to_metadata(
        topic("orders", {n: 2 if n == 4 else 1 for n in range(MANY)}, epoch=3)
    )
    world.plan()
    (moved,) = [s for s in world.sends(FetchRequest) if s.node == NODES[2]]
    assert isinstance(moved.message, FetchRequest)
    assert asked(moved.message) == {4: 0}


def test_a_session_that_is_open_at_the_end_is_ended_over_the_other_connection() -> None:
    world = SessionWorld()
    world.told_of_all()
    assert world.fetching.end_sessions()
    (send,) = [s for s in world.sends(FetchRequest) if s.channel is Channel.FETCH_BUSY]
    assert isinstance(send.message, FetchRequest)
    assert epochs(send.message) == (7, -1)
    assert (send.message.partitions, send.message.max_wait) == ((), 0)
    assert world.times_sessions_ended == 0
    world.reply(send, FetchResponse(error=ErrorCode.none))
    assert world.times_sessions_ended == 1
    assert not world.fetching.end_sessions(), "once"


def test_a_broker_that_does_not_respond_to_the_end_of_a_session_is_not_waited_for_long() -> None:
    world = SessionWorld()
    world.told_of_all()
    world.fetching.end_sessions()
    (send,) = [s for s in world.sends(FetchRequest) if s.channel is Channel.FETCH_BUSY]
    assert send.timeout == 1.0
    world.fail(send, FailureKind.TIMEOUT)
    assert world.times_sessions_ended == 1


def test_without_a_session_there_is_nothing_to_end() -> None:
    world = SessionWorld()
    world.told_of_all(session_id=0)
    assert not world.fetching.end_sessions()
    assert [s for s in world.sends(FetchRequest) if s.channel is Channel.FETCH_BUSY] == []


def test_closing_waits_for_the_end_of_sessions_and_for_nothing_after_it() -> None:
    world = SessionWorld()
    closed: list[bool] = []
    reactions = create_autospec(PollReactions, instance=True)
    reactions.closing_ended.side_effect = lambda: closed.append(True)
    leaving = Leaving(
        world.outbox,
        world.config,
        create_autospec(Assignment, instance=True),
        create_autospec(Revocation, instance=True),
        create_autospec(Fetcher, instance=True, **{"end_sessions.return_value": True}),
        create_autospec(SubscriptionState, instance=True, started=True, membership=MagicMock()),
        create_autospec(Poller, instance=True, fatal=None),
        create_autospec(Committer, instance=True),
        reactions,
    )
    leaving.close(world.now, 1, graceful=True, deadline=None)
    leaving.left()
    assert closed == []
    leaving.sessions_ended()
    assert closed == [True]
    leaving.sessions_ended()
    assert closed == [True]
