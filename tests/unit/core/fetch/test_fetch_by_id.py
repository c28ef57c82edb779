"""Records are fetched by the ids of topics (KIP-516): a topic that was deleted and created again
is never read at the positions of the former one."""

from __future__ import annotations

import pytest
from unit.core.fetch.scripted_fetches import FetchWorld, data, rejected
from unit.core.scripted_environment import topic, tp

from asyncrevoke.client.core.fetch.broker_fetches import FetchSession
from asyncrevoke.client.core.io.effects import Channel
from asyncrevoke.client.core.partition.instance import InstanceTransition, PartitionInstance
from asyncrevoke.client.protocol.codec import api_key, choose_version, has_topic_ids
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
)

FORMER = b"orders, former--"
NEW = b"orders, new-----"
BILLS = b"bills-----------"


class IdWorld(FetchWorld):
    """All partitions are led by broker 1."""

    def __init__(self, topic_id: bytes = FORMER) -> None:
        super().__init__(0)
        self.learn(topic_id)

    def learn(self, topic_id: bytes) -> None:
        """The metadata tell of "orders" with this id."""
        self.cluster.refresh(self.now, "a test")
        self.advance(0.2)
        self.respond_to_metadata(
            topic("orders", dict.fromkeys(range(4), 1), epoch=2, topic_id=topic_id)
        )

    def poll_of(self, channel: Channel = Channel.FETCH) -> FetchRequest:
        return self.fetches(channel)[1]

    def told(self, *partitions: FetchedPartition, session_id: int = 7) -> None:
        (send,) = [s for s in self.sends(FetchRequest) if s.channel is Channel.FETCH]
        self.advance(self.poll_of().max_wait)
        self.reply(
            send,
            FetchResponse(error=ErrorCode.none, session_id=session_id, partitions=partitions),
        )
        self.plan()


def test_the_end_of_a_session_is_sent_in_the_version_of_its_fetches() -> None:
    world = IdWorld()
    world.assign(0)
    world.told(data(0, ""))
    assert world.fetching.end_sessions()
    end = world.poll_of(Channel.FETCH_BUSY)
    assert (end.session_id, end.session_epoch, end.partitions) == (7, -1, ())
    versions = {api_key(FetchRequest): (4, 17)}
    assert choose_version(FetchRequest, versions, by_id=has_topic_ids(end)) == 16


def test_a_fetch_has_the_ids_of_its_topics() -> None:
    world = IdWorld()
    world.assign(0, 1)
    assert world.poll_of().topic_ids == {"orders": FORMER}
    world.respond(1, data(0, "0+5"), data(1, ""))
    world.collect()
    assert world.poll_of(Channel.FETCH_BUSY).topic_ids == {"orders": FORMER}


def test_without_ids_a_fetch_goes_by_names_until_a_broker_reports_them() -> None:
    world = IdWorld(bytes(16))
    world.assign(0)
    assert world.poll_of().topic_ids is None
    world.learn(FORMER)
    world.told(data(0, ""))
    message = world.poll_of()
    assert message.topic_ids == {"orders": FORMER}
    # A session that went by names is ended with a new beginning.
    assert (message.session_id, message.session_epoch) == (7, 0)
    assert [p.partition for p in message.partitions] == [tp(0)]


def test_one_topic_without_an_id_lets_all_of_them_go_by_names() -> None:
    world = IdWorld()
    world.cluster.want(world.now, frozenset(("orders", "bills")))
    world.respond_to_metadata(
        topic("orders", {0: 1}, epoch=2, topic_id=FORMER), topic("bills", {0: 1}, epoch=2)
    )
    world.assign(0)
    world.told(data(0, ""))
    assert world.poll_of().topic_ids == {"orders": FORMER}
    bills = PartitionInstance(tp(0, "bills"), 9)
    bills.transition(InstanceTransition.POSITIONED)
    world.place(bills, 0)
    world.told()
    assert world.poll_of().topic_ids is None


def test_what_is_of_a_former_topic_is_never_asked_of_the_new_one() -> None:
    world = IdWorld()
    world.assign(0, position=50)
    world.learn(NEW)
    world.told(data(0, ""))
    assert world.poll_of().topic_ids == {"orders": FORMER}
    world.told(rejected(0, ErrorCode.unknown_topic_id))
    world.advance(1.0)
    world.plan()
    assert world.poll_of().topic_ids == {"orders": FORMER}


def test_partitions_of_a_former_and_of_a_new_topic_do_not_share_a_fetch() -> None:
    world = IdWorld()
    world.assign(0, 2)
    world.assign(3)
    world.learn(NEW)
    world.assign(1)
    asked: dict[int, bytes] = {}

    def look() -> None:
        for send in world.sends(FetchRequest):
            assert isinstance(send.message, FetchRequest)
            ids = send.message.topic_ids
            assert ids is not None
            for number in (p.partition.partition for p in send.message.partitions):
                assert asked.setdefault(number, ids["orders"]) == ids["orders"]

    look()
    assert asked == dict.fromkeys((0, 2, 3), FORMER)
    world.told(data(0, ""), data(2, ""))
    look()
    assert asked == dict.fromkeys((0, 2, 3), FORMER) | {1: NEW}


def test_a_session_does_not_move_a_name_from_one_id_to_another() -> None:
    session = FetchSession()
    wanted = {tp(0): FetchPartition(partition=tp(0), offset=5, max_bytes=100)}
    session.next_fetch(wanted, {"orders": FORMER})
    session.response_received(7)
    assert session.next_fetch(wanted, {"orders": FORMER}) == (7, 1, (), (), {"orders": FORMER})
    session.response_received(7)
    anew = (7, 0, tuple(wanted.values()), ())
    assert session.next_fetch(wanted, {"orders": NEW}) == (*anew, {"orders": NEW})
    session.response_received(7)
    assert session.next_fetch(wanted, None) == (*anew, None)
    session.response_received(7)
    assert session.next_fetch(wanted, {"orders": NEW}) == (*anew, {"orders": NEW})


def test_the_id_of_a_removed_topic_is_in_the_fetch_request() -> None:
    world = IdWorld()
    world.cluster.want(world.now, frozenset(("orders", "bills")))
    world.respond_to_metadata(
        topic("orders", {0: 1}, epoch=2, topic_id=FORMER),
        topic("bills", {0: 1}, epoch=2, topic_id=BILLS),
    )
    world.assign(0)
    bills = PartitionInstance(tp(0, "bills"), 9)
    bills.transition(InstanceTransition.POSITIONED)
    world.place(bills, 0)
    world.told(data(0, ""))
    world.told()
    assert world.poll_of().topic_ids == {"orders": FORMER, "bills": BILLS}
    world.fetching.remove(bills)
    world.told()
    message = world.poll_of()
    assert message.forgotten == (tp(0, "bills"),)
    assert message.topic_ids == {"orders": FORMER, "bills": BILLS}
    world.told()
    assert world.poll_of().topic_ids == {"orders": FORMER}


@pytest.mark.parametrize("error", [ErrorCode.unknown_topic_id, ErrorCode.inconsistent_topic_id])
def test_an_id_that_a_broker_does_not_know_has_the_metadata_asked_at_once(
    error: ErrorCode,
) -> None:
    world = IdWorld()
    world.assign(0, 1)
    assert world.sends(MetadataRequest) == []
    world.told(rejected(0, error), data(1, "0+5"))
    assert len(world.sends(MetadataRequest)) == 1
    # The other partition is not held up, nor is this one for long.
    assert world.collect() == {1: [0, 1, 2, 3, 4]}
    world.advance(0.15)
    world.plan()
    asked = {p.partition.partition for s in world.sends(FetchRequest) for p in s.message.partitions}  # type: ignore[attr-defined]
    assert asked == {0, 1}
    assert world.errors == []
