from itertools import pairwise

import pytest
from unit.core.scripted_environment import (
    BOOTSTRAP,
    BROKERS,
    NODES,
    ScriptedRequests,
    metadata,
    topic,
    tp,
)

from asyncrevoke.client.core.io.effects import FailureKind, Node
from asyncrevoke.client.errors import (
    AuthenticationError,
    TopicAuthorizationError,
    UnsupportedVersionError,
)
from asyncrevoke.client.protocol.messages import (
    BrokerMetadata,
    ErrorCode,
    MetadataRequest,
    MetadataResponse,
)

ID_1, ID_2 = b"1" * 16, b"2" * 16


def unknown(name: str = "orders") -> MetadataResponse:
    return metadata(topic(name, {}, error=ErrorCode.unknown_topic_or_partition))


class Watched(ScriptedRequests):
    """Counts what the cluster reports."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = 0
        self.refreshes = 0

    def topics_changed(self, now: float) -> None:
        self.changes += 1

    def metadata_refreshed(self, now: float) -> None:
        self.refreshes += 1


def test_it_begins_with_the_first_bootstrap_address() -> None:
    world = ScriptedRequests()
    world.cluster.start(world.now)
    send, request = world.only(MetadataRequest)
    assert (send.node, request.topics) == (BOOTSTRAP[0], ())


def test_a_change_of_the_wanted_topics_is_asked_for_at_once() -> None:
    world = Watched()
    world.know(topic("orders", {1: 2, 0: 1}, epoch=4))
    assert world.cluster.partitions("orders") == (0, 1)
    assert world.cluster.leader(tp(1)) == (NODES[2], 4)
    assert world.cluster.topics() == {"orders"}
    assert (world.changes, world.refreshes) == (1, 2)
    world.cluster.want(world.now, frozenset({"orders", "clicks"}))
    assert world.only(MetadataRequest)[1].topics == ("clicks", "orders")


def test_topics_wanted_while_a_request_is_under_way_are_asked_for_after_it() -> None:
    world = ScriptedRequests()
    world.cluster.start(world.now)
    world.cluster.want(world.now, frozenset({"orders"}))
    world.respond_to_metadata()
    assert world.only(MetadataRequest)[1].topics == ("orders",)


def test_a_pattern_asks_for_all_topics_and_internal_ones_are_not_listed() -> None:
    world = ScriptedRequests()
    world.cluster.start(world.now)
    world.respond_to_metadata()
    world.cluster.want(world.now, None)
    internal = topic("__offsets", {0: 1}, is_internal=True)
    request = world.respond_to_metadata(topic("a", {0: 1}), internal)
    assert request.topics is None
    assert world.cluster.topics() == {"a"}
    assert world.cluster.partitions("__offsets") == (0,)


def test_refreshes_are_coalesced_and_spaced() -> None:
    world = ScriptedRequests()
    world.know(topic("orders", {0: 1}))
    for _ in range(3):
        world.cluster.refresh(world.now, "leader moved")
    assert world.sends(MetadataRequest) == []
    world.advance(0.2)
    world.only(MetadataRequest)
    world.cluster.refresh(world.now, "leader moved")
    world.only(MetadataRequest)


def test_metadata_is_refreshed_when_it_is_old() -> None:
    world = ScriptedRequests()
    world.know(topic("orders", {0: 1}))
    world.advance(world.config.metadata_max_age - 1)
    assert world.sends(MetadataRequest) == []
    world.advance(2)
    world.only(MetadataRequest)


def test_unreachable_brokers_are_tried_in_turn_ever_more_slowly_and_with_a_line() -> None:
    world = ScriptedRequests()
    world.cluster.start(world.now)
    tried: list[tuple[float, Node]] = []
    start = world.now
    while world.now - start < 60:
        for send in world.sends(MetadataRequest):
            tried.append((world.now - start, send.node))
            world.fail(send, FailureKind.UNREACHABLE, "connection refused")
        world.advance(0.05)
    gaps = [later[0] - earlier[0] for earlier, later in pairwise(tried)]
    assert {node for _, node in tried} == set(BOOTSTRAP)
    assert gaps[0] < 0.2
    assert max(gaps) == pytest.approx(2, abs=0.2)
    lines = world.named("waiting for a broker that responds")
    assert lines[0].fields["reason"] == "connection refused"
    assert lines[0].fields["tried"] == "boot1:9092"
    assert lines[0].fields["check"] == "that a broker listens there, and security_protocol"
    assert 5 <= len(lines) <= 7


def test_when_a_broker_responds_again_it_is_said_once() -> None:
    world = ScriptedRequests()
    world.cluster.start(world.now)
    world.fail(world.only(MetadataRequest)[0])
    world.advance(0.2)
    world.respond_to_metadata()
    assert len(world.named("broker reachable")) == 1
    world.advance(600)
    world.fail(world.only(MetadataRequest)[0])
    assert "check" not in world.named("waiting for a broker that responds")[-1].fields


def test_a_response_without_brokers_counts_as_none() -> None:
    world = Watched()
    world.cluster.start(world.now)
    world.reply(world.only(MetadataRequest)[0], MetadataResponse(brokers=(), topics=()))
    assert world.refreshes == 0
    world.advance(0.2)
    world.only(MetadataRequest)


def test_any_node_rotates_and_leaves_out_those_that_failed() -> None:
    world = ScriptedRequests()
    world.know()
    nodes = [world.cluster.brokers.any_node() for _ in range(6)]
    assert set(nodes) == set(NODES.values())
    world.cluster.brokers.note_failure(NODES[2])
    assert NODES[2] not in {world.cluster.brokers.any_node() for _ in range(6)}
    world.cluster.brokers.note_success(NODES[2])
    assert NODES[2] in {world.cluster.brokers.any_node() for _ in range(6)}


def test_when_all_known_brokers_have_failed_the_bootstrap_addresses_come_back() -> None:
    world = ScriptedRequests()
    world.know()
    for node in NODES.values():
        world.cluster.brokers.note_failure(node)
    assert {world.cluster.brokers.any_node() for _ in range(4)} == set(BOOTSTRAP)
    for node in BOOTSTRAP:
        world.cluster.brokers.note_failure(node)
    assert {world.cluster.brokers.any_node() for _ in range(6)} == set(NODES.values())
    for node in NODES.values():
        world.cluster.brokers.note_failure(node)
    assert {world.cluster.brokers.any_node() for _ in range(4)} == set(BOOTSTRAP)


def test_a_broker_that_moved_to_another_address_has_not_failed() -> None:
    world = ScriptedRequests()
    world.know()
    world.cluster.brokers.note_failure(NODES[1])
    world.cluster.refresh(world.now, "test")
    world.advance(0.2)
    moved = BrokerMetadata(node_id=1, host="elsewhere", port=9092)
    world.reply(
        world.only(MetadataRequest)[0], MetadataResponse(brokers=(moved, *BROKERS[1:]), topics=())
    )
    assert Node(1, "elsewhere", 9092) in {world.cluster.brokers.any_node() for _ in range(3)}


def test_an_older_leader_epoch_does_not_replace_a_newer_one() -> None:
    world = ScriptedRequests()
    world.know(topic("orders", {0: 1}, epoch=5))
    for epoch, leader, expected in ((4, 2, (1, 5)), (6, 3, (3, 6)), (5, 1, (3, 6))):
        world.cluster.refresh(world.now, "test")
        world.advance(0.2)
        world.respond_to_metadata(topic("orders", {0: leader}, epoch=epoch))
        assert world.cluster.leader(tp(0)) == (NODES[expected[0]], expected[1])


def test_a_partition_without_leader_has_none() -> None:
    world = ScriptedRequests()
    world.know(topic("orders", {0: -1, 1: 9}))
    assert world.cluster.leader(tp(0)) is None
    assert world.cluster.leader(tp(1)) is None
    assert world.cluster.leader(tp(7)) is None


def test_added_partitions_are_a_change() -> None:
    world = Watched()
    world.know(topic("orders", {0: 1}))
    world.cluster.refresh(world.now, "test")
    world.advance(0.2)
    world.respond_to_metadata(topic("orders", {0: 1, 1: 2}))
    assert (world.changes, world.cluster.partitions("orders")) == (2, (0, 1))


def test_an_unknown_topic_is_waited_for_with_a_line_and_found_soon_after_its_creation() -> None:
    world = Watched()
    world.cluster.start(world.now)
    world.respond_to_metadata()
    world.cluster.want(world.now, frozenset({"orders"}))
    for _ in range(8):
        world.reply(world.only(MetadataRequest)[0], unknown())
        world.advance(2.1)
    assert world.changes == 0
    lines = world.named("waiting for topics that do not exist")
    assert [line.fields["topics"] for line in lines] == [["orders"], ["orders"]]
    world.respond_to_metadata(topic("orders", {0: 1}))
    assert (world.changes, world.cluster.partitions("orders")) == (1, (0,))


def test_a_known_topic_is_gone_only_after_a_second_denial() -> None:
    world = Watched()
    world.know(topic("orders", {0: 1}))
    world.cluster.refresh(world.now, "test")
    world.advance(0.2)
    world.reply(world.only(MetadataRequest)[0], unknown())
    assert (world.changes, world.cluster.partitions("orders")) == (1, (0,))
    for _ in range(5):
        world.advance(0.5)
        for send in world.sends(MetadataRequest):
            world.reply(send, unknown())
    assert (world.changes, world.cluster.partitions("orders")) == (2, None)


def test_one_denial_by_a_broker_that_has_just_started_does_not_count() -> None:
    world = Watched()
    world.know(topic("orders", {0: 1}))
    for _ in range(3):
        world.cluster.refresh(world.now, "test")
        world.advance(3)
        world.reply(world.only(MetadataRequest)[0], unknown())
        world.advance(3)
        world.respond_to_metadata(topic("orders", {0: 1}))
        world.advance(3)
    assert (world.changes, world.cluster.partitions("orders")) == (1, (0,))


def test_failures_do_not_make_a_topic_vanish() -> None:
    world = Watched()
    world.know(topic("orders", {0: 1}))
    world.cluster.refresh(world.now, "test")
    for _ in range(10):
        world.advance(11)
        world.fail(world.only(MetadataRequest)[0])
    assert world.cluster.partitions("orders") == (0,)


def test_a_topic_with_another_id_is_another_topic() -> None:
    world = Watched()
    world.know(topic("orders", {0: 1}, epoch=7, topic_id=ID_1))
    world.cluster.refresh(world.now, "test")
    world.advance(0.2)
    world.respond_to_metadata(topic("orders", {0: 2}, epoch=0, topic_id=ID_2))
    assert world.changes == 2
    assert world.cluster.topic_id("orders") == ID_2
    assert world.cluster.leader(tp(0)) == (NODES[2], 0)


def test_a_broker_that_still_knows_the_former_topic_does_not_bring_it_back() -> None:
    world = Watched()
    world.know(topic("orders", {0: 1}, topic_id=ID_1))
    for topic_id in (ID_2, ID_1):
        world.cluster.refresh(world.now, "test")
        world.advance(0.2)
        world.respond_to_metadata(topic("orders", {0: 1}, topic_id=topic_id))
    assert (world.changes, world.cluster.topic_id("orders")) == (2, ID_2)


def test_partitions_that_a_lagging_broker_leaves_out_stay() -> None:
    world = Watched()
    world.know(topic("orders", {0: 1, 1: 1}))
    world.cluster.refresh(world.now, "test")
    world.advance(0.2)
    world.respond_to_metadata(topic("orders", {0: 1}))
    assert (world.changes, world.cluster.partitions("orders")) == (1, (0, 1))


def test_rejected_access_is_reported_once_until_it_recovers() -> None:
    world = ScriptedRequests()
    rejected = metadata(topic("orders", {}, error=ErrorCode.topic_authorization_failed))
    world.cluster.start(world.now)
    world.respond_to_metadata()
    world.cluster.want(world.now, frozenset({"orders"}))
    for _ in range(3):
        world.reply(world.only(MetadataRequest)[0], rejected)
        world.advance(11)
    assert len(world.errors) == 1
    assert isinstance(world.errors[0], TopicAuthorizationError)
    assert "'orders'" in str(world.errors[0])
    world.respond_to_metadata(topic("orders", {0: 1}))
    world.cluster.refresh(world.now, "test")
    world.advance(0.2)
    world.reply(world.only(MetadataRequest)[0], rejected)
    assert len(world.errors) == 2


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (FailureKind.AUTHENTICATION, AuthenticationError),
        (FailureKind.UNSUPPORTED, UnsupportedVersionError),
    ],
)
def test_what_cannot_pass_is_fatal_and_not_tried_again(
    kind: FailureKind, error: type[Exception]
) -> None:
    world = ScriptedRequests()
    world.cluster.start(world.now)
    world.fail(world.only(MetadataRequest)[0], kind, "no")
    world.advance(1000)
    assert [type(reported) for reported in world.errors] == [error]
    assert world.sends(MetadataRequest) == []


def test_a_topic_that_does_not_exist_is_listed_as_missing_until_it_is_created() -> None:
    world = ScriptedRequests()
    world.cluster.start(world.now)
    world.respond_to_metadata()
    world.cluster.want(world.now, frozenset({"orders", "clicks"}), frozenset({"clicks"}))
    assert world.cluster.missing_topics() == frozenset()
    world.respond_to_metadata(topic("orders", {}, error=ErrorCode.unknown_topic_or_partition))
    # Topics of other members are not this consumer's.
    assert world.cluster.missing_topics() == {"orders"}
    world.advance(5)
    world.respond_to_metadata(topic("orders", {0: 1}))
    assert world.cluster.missing_topics() == frozenset()


def test_missing_topics_of_other_members_are_logged_once_and_then_less_and_less_often() -> None:
    world = ScriptedRequests()
    world.know(topic("orders", {0: 1}))

    def subscribed_by_others(seconds: int, **errors: ErrorCode) -> None:
        described = [topic(name, {}, error=error) for name, error in errors.items()]
        world.cluster.want(world.now, frozenset({"orders", *errors}), frozenset(errors))
        for _ in range(seconds):
            world.sync()
            if world.sends(MetadataRequest):
                world.respond_to_metadata(topic("orders", {0: 1}), *described)
            world.advance(1)

    clicks = ErrorCode.unknown_topic_or_partition
    subscribed_by_others(200, clicks=clicks)
    subscribed_by_others(15, clicks=clicks, views=ErrorCode.topic_authorization_failed)
    lines = world.named(
        "other members subscribe to topics that do not exist or that this member may not see; "
        "these are not assigned"
    )
    assert [line.fields["seconds"] for line in lines] == [
        pytest.approx(expected, abs=5) for expected in (0, 10, 30, 70, 150, 200, 210)
    ]
    topics = [line.fields["topics"] for line in lines]
    assert topics == [["clicks"]] * 5 + [["clicks", "views"]] * 2
    assert [line.fields["count"] for line in lines] == [1, 1, 1, 1, 1, 2, 2]
    # To create the topics is no fix for those that this member may not see.
    assert not any("create" in line.fields for line in lines)


def test_a_topic_that_is_rejected_is_listed_until_access_is_granted() -> None:
    world = ScriptedRequests()
    world.know(topic("orders", {0: 1}))
    world.cluster.refresh(world.now + 1, "test")
    world.respond_to_metadata(topic("orders", {}, error=ErrorCode.topic_authorization_failed))
    assert world.cluster.rejected_topics() == {"orders"}
    assert world.cluster.missing_topics() == frozenset()
    world.advance(20)
    world.respond_to_metadata(topic("orders", {0: 1}))
    assert world.cluster.rejected_topics() == frozenset()


def test_a_silent_broker_is_unreachable_if_it_leads_a_partition() -> None:
    world = ScriptedRequests()
    world.know(topic("orders", {0: 1}))
    world.cluster.brokers.note_failure(NODES[2])
    assert world.cluster.unreachable_brokers() == ()
    world.cluster.brokers.note_failure(NODES[1])
    assert world.cluster.unreachable_brokers() == (NODES[1],)
    world.cluster.brokers.note_success(NODES[1])
    assert world.cluster.unreachable_brokers() == ()


def test_all_brokers_are_unreachable_while_no_metadata_request_gets_a_response() -> None:
    world = ScriptedRequests()
    world.cluster.start(world.now)
    assert world.cluster.unreachable_brokers() == ()
    world.fail(world.only(MetadataRequest)[0], FailureKind.UNREACHABLE)
    assert set(world.cluster.unreachable_brokers()) <= set(BOOTSTRAP)
    assert world.cluster.unreachable_brokers()


def test_a_missing_topic_that_records_are_sent_to_is_reported_with_the_command_to_create_it() -> (
    None
):
    world = ScriptedRequests()
    world.output_topics.set_topics(["letters"])
    world.cluster.start(world.now)
    assert world.respond_to_metadata().topics == ("letters",)
    world.cluster.want(world.now, frozenset({"orders"}))
    missing = topic("letters", {}, error=ErrorCode.unknown_topic_or_partition)
    assert world.respond_to_metadata(topic("orders", {0: 1}), missing).topics == (
        "letters",
        "orders",
    )
    assert world.cluster.missing_topics() == {"letters"}
    assert world.cluster.topics() == {"orders"}
    (line,) = world.named("records cannot be sent to topics that do not exist")
    address = f"{BOOTSTRAP[0].host}:{BOOTSTRAP[0].port}"
    assert line.fields["create"] == (
        f"asyncrevoke topics create letters --bootstrap-servers {address}"
    )
    world.advance(16)
    world.respond_to_metadata(topic("orders", {0: 1}), topic("letters", {0: 1}))
    assert world.cluster.missing_topics() == frozenset()
    assert world.cluster.topics() == {"orders"}
    assert [line.fields["topic"] for line in world.named("topic available")] == ["letters"]


def test_a_rejected_topic_that_records_are_sent_to_does_not_end_the_consumer() -> None:
    world = ScriptedRequests()
    world.output_topics.set_topics(["letters"])
    world.know(topic("orders", {0: 1}))
    world.cluster.refresh(world.now + 1, "test")
    world.respond_to_metadata(
        topic("orders", {0: 1}), topic("letters", {}, error=ErrorCode.topic_authorization_failed)
    )
    assert world.cluster.missing_topics() == {"letters"}
    assert world.cluster.rejected_topics() == frozenset()


def test_with_a_pattern_topics_that_records_are_sent_to_are_checked_too() -> None:
    world = ScriptedRequests()
    world.output_topics.set_topics(["letters", "retries"])
    world.cluster.start(world.now)
    world.respond_to_metadata()
    world.cluster.want(world.now, None)
    assert (
        world.respond_to_metadata(topic("orders", {0: 1}), topic("letters", {0: 1})).topics is None
    )
    assert world.cluster.missing_topics() == {"retries"}
