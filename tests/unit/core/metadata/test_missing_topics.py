"""One log line names all missing topics, and is repeated less and less often."""

from __future__ import annotations

from unit.core.scripted_environment import BOOTSTRAP, ScriptedRequests

from asyncrevoke.client.core.metadata.missing_topics import MissingTopics


def test_one_line_names_all_and_is_repeated_with_backoff() -> None:
    missing = MissingTopics(ScriptedRequests().outbox.emit, BOOTSTRAP[0])
    lines = [
        line
        for second in range(1000)
        if (line := missing.line_due(second, ["refunds", "orders"])) is not None
    ]
    assert [line["seconds"] for line in lines] == [0, 10, 30, 70, 150, 310, 610, 910]
    assert lines[0]["topics"] == ["orders", "refunds"]
    assert lines[0]["create"] == (
        "asyncrevoke topics create orders refunds --bootstrap-servers "
        f"{BOOTSTRAP[0].host}:{BOOTSTRAP[0].port}"
    )


def test_a_further_topic_is_named_at_once_and_one_that_was_created_is_not_named_again() -> None:
    world = ScriptedRequests()
    missing = MissingTopics(world.outbox.emit, BOOTSTRAP[0])

    def named(now: float, *topics: str) -> object:
        line = missing.line_due(now, topics)
        return None if line is None else line["topics"]

    assert named(0, "orders") == ["orders"]
    assert named(1, "orders", "refunds") == ["orders", "refunds"]
    missing.found(2, "orders")
    assert named(2, "refunds") is None
    assert named(11, "refunds") == ["refunds"]
    (available,) = world.named("topic available")
    assert (available.fields["topic"], available.fields["seconds"]) == ("orders", 2)
    assert named(12) is None
    missing.found(12, "refunds")
    assert len(world.named("topic available")) == 1, "nobody waits for it any more"
    assert named(13, "refunds") == ["refunds"]


def test_a_line_names_ten_of_many_topics() -> None:
    missing = MissingTopics(ScriptedRequests().outbox.emit, BOOTSTRAP[0])
    line = missing.line_due(0, [f"orders-{number:03}" for number in range(500)])
    assert line is not None
    assert line["count"] == 500
    assert len(str(line)) < 1000
