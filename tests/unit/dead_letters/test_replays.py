"""Dead letters are listed, and replayed to the topics of their records."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

import pytest
from msgspec import structs

from asyncrevoke import CallNext, Consumer, HandlerContext
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.model import Record, TopicPartition
from asyncrevoke.dead_letters.dead_letter_filter import DeadLetterFilter
from asyncrevoke.dead_letters.dead_letter_topic import TimestampLimits
from asyncrevoke.dead_letters.errors import DeadLettersError
from asyncrevoke.dead_letters.listing import MAX_ROWS, Counting
from asyncrevoke.dead_letters.replay import Replay, ReplayOptions
from asyncrevoke.dead_letters.stored_dead_letter import (
    NoDeadLetter,
    StoredDeadLetter,
    read_dead_letter,
    why_not_replayed,
)
from asyncrevoke.handlers.dead_letters.dead_letter import DeadLetter
from asyncrevoke.testing import TestConsumer
from asyncrevoke.testing import cluster as topic_cluster

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from pathlib import Path

    from asyncrevoke.dead_letters.dead_letter_topic import DeadLetterTopic

DAY = 86_400_000
NOW = 1_800_000_000_000
# Those of Apache Kafka 4.
DEFAULTS = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": "3600000",
    "retention.ms": str(7 * DAY),
}


def stored(record: Record, error: Exception | None = None) -> Record:
    """The record that a dead letter is in its topic."""
    letter = DeadLetter(record, error or ValueError("boom"), 2)
    return Record("dlq", 0, 5, 5_000, 0, letter.key, letter.value, tuple(letter.headers))


def failing(calls: list[tuple[int, bytes]]) -> Consumer:
    """A consumer whose handler fails for negative values while ``calls`` has fewer than four."""
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders", dead_letter="orders.dlq")
    async def bill(value: int, record: Record) -> None:
        calls.append((value, dict(record.headers).get("asyncrevoke-replays") or b""))
        if value < 0 and len(calls) < 5:
            raise ValueError("negative")

    return consumer


class ThreeDeadLetters:
    """A topic that ends at offset 12, with dead letters at 0, 5 and 9; all else is compacted."""

    topic = "orders.dlq"

    async def ends(self) -> dict[TopicPartition, range]:
        return {TopicPartition("dlq", 0): range(12)}

    async def read(
        self, _ranges: object
    ) -> AsyncGenerator[Sequence[StoredDeadLetter | NoDeadLetter]]:
        letter = stored(Record("orders", 0, 7, 1_000, 0, None, b"-1"))
        yield [read_dead_letter(structs.replace(letter, offset=offset)) for offset in (0, 5, 9)]


async def test_a_replay_counts_the_offsets_that_it_has_read_while_it_sends() -> None:
    progress: list[tuple[int, int, int]] = []
    replay = Replay(
        cast("DeadLetterTopic", ThreeDeadLetters()),
        ReplayOptions(dry_run=True, rate=1, to="orders"),
        lambda now: progress.append((now.sent, now.read, now.total)),
    )
    await replay.run()
    assert progress == [(1, 1, 12), (2, 6, 12), (3, 10, 12), (3, 10, 12), (3, 12, 12)]


# -- what a dead letter says ----------------------------------------------------------------------


def test_a_dead_letter_is_replayed_with_the_headers_that_its_record_had() -> None:
    record = Record("orders", 3, 42, 1234, 0, b"k", b"v", (("trace", b"1"), ("trace", None)))
    letter = read_dead_letter(stored(record))
    assert isinstance(letter, StoredDeadLetter)
    assert letter[1:] == ("orders", 3, 42, 1234, "ValueError", "boom", 2, 0, -1)
    assert letter.replay_headers() == [
        ("trace", b"1"),
        ("trace", None),
        ("asyncrevoke-replays", b"1"),
    ]


def test_the_dead_letter_of_a_dead_letter_keeps_the_headers_of_the_first() -> None:
    first = stored(Record("orders", 3, 42, 1234, 0, b"k", b"v", ()))
    letter = read_dead_letter(stored(first, KeyError("x")))
    assert isinstance(letter, StoredDeadLetter)
    assert (letter.origin_topic, letter.error_type) == ("dlq", "KeyError")
    assert letter.replay_headers() == [*first.headers, ("asyncrevoke-replays", b"1")]


@pytest.mark.parametrize(
    ("header", "value", "why"),
    [
        ("asyncrevoke-origin-topic", None, "no headers of a dead letter"),
        ("asyncrevoke-origin-topic", b"../etc\x1b[2J", "not a valid topic name"),
        ("asyncrevoke-origin-topic", b"\xff", "not a valid topic name"),
        ("asyncrevoke-origin-partition", b"-1", "no valid partition"),
        ("asyncrevoke-origin-offset", b"9" * 400, "no valid partition"),
    ],
)
def test_a_record_with_other_headers_is_named_and_is_no_dead_letter(
    header: str, value: bytes | None, why: str
) -> None:
    record = stored(Record("orders", 3, 42, 1234, 0, b"k", b"v", ()))
    others = [each for each in record.headers if each[0] != header]
    changed = Record("dlq", 0, 5, 1, 0, None, None, (*others, (header, value)))
    found = read_dead_letter(changed)
    assert isinstance(found, NoDeadLetter)
    assert why in found.why


@pytest.mark.parametrize(
    ("to", "replays", "why"),
    [
        ("dlq", b"0", "dead letter topic itself"),
        ("__consumer_offsets", b"0", "internal topic"),
        ("orders", b"3", "replayed 3 times"),
        ("orders", b"many", "times and failed again"),
    ],
)
def test_what_would_fail_for_ever_is_not_replayed(to: str, replays: bytes, why: str) -> None:
    record = Record("orders", 3, 42, 1, 0, b"k", b"v", (("asyncrevoke-replays", replays),))
    letter = read_dead_letter(stored(record))
    assert isinstance(letter, StoredDeadLetter)
    assert why in (why_not_replayed(letter, to, (to,), 3) or "")
    fresh = letter._replace(replays=0)
    assert why_not_replayed(fresh, "orders", ("orders",), 3) is None


def test_a_filter_takes_what_agrees_with_each_of_its_fields() -> None:
    letter = read_dead_letter(stored(Record("orders", 3, 42, 1000, 0, None, b"v", ())))
    assert isinstance(letter, StoredDeadLetter)
    letter = letter._replace(error_type="app.errors.Rejected")
    second = datetime.fromtimestamp(1, UTC)
    taken = [
        DeadLetterFilter(),
        DeadLetterFilter(origin_topics=frozenset(["orders"]), errors=frozenset(["Rejected"])),
        DeadLetterFilter(errors=frozenset(["app.errors.Rejected"]), since=second),
        DeadLetterFilter(origin_partitions=frozenset([3])),
    ]
    rejected = [
        DeadLetterFilter(origin_topics=frozenset(["clicks"])),
        DeadLetterFilter(errors=frozenset(["errors.Rejected"])),
        DeadLetterFilter(until=second),
        DeadLetterFilter(origin_partitions=frozenset([0]), errors=frozenset(["Rejected"])),
    ]
    assert all(each.takes(letter) for each in taken)
    assert not any(each.takes(letter) for each in rejected)
    with pytest.raises(ConfigError, match="no time zone"):
        DeadLetterFilter(since=datetime(2026, 1, 1))  # noqa: DTZ001 - what is rejected


# -- replays --------------------------------------------------------------------------------------


async def test_a_replayed_dead_letter_is_handled_again_and_counts_its_replays() -> None:
    calls: list[tuple[int, bytes]] = []
    async with TestConsumer(failing(calls), partitions=1) as t:
        for value in (1, -1, -2):
            await t.publish("orders", value, key="k", headers={"trace": "7"})
        assert len(t.dead_letters("orders.dlq")) == 2
        chosen = DeadLetterFilter(errors=frozenset(["ValueError"]))
        result = await t.replay_dead_letters("orders.dlq", ReplayOptions(chosen=chosen, limit=1))
        assert (result.sent, result.by_topic) == (1, {"orders": 1})
        assert calls[3:] == [(-1, b"1")], "it fails a second time"
        result = await t.replay_dead_letters("orders.dlq", ReplayOptions(max_attempts=1))
        assert (result.selected, result.sent, result.not_sent) == (3, 2, 1)
        assert "replayed 1 times" in result.named[0].why
        assert sorted(calls[4:]) == [(-2, b"1"), (-1, b"1")]
        again, first = t.records("orders")[-1], t.records("orders")[1]
        assert (again.key, again.headers) == (
            b"k",
            (
                ("trace", b"7"),
                ("asyncrevoke-replays", b"1"),
                ("asyncrevoke-replayed-timestamp", b"%d" % first.timestamp),
            ),
        )


async def test_a_dry_run_sends_nothing_and_the_dead_letter_topic_is_no_target() -> None:
    calls: list[tuple[int, bytes]] = []
    async with TestConsumer(failing(calls), partitions=1) as t:
        await t.publish("orders", -1)
        result = await t.replay_dead_letters("orders.dlq", ReplayOptions(dry_run=True))
        assert (result.sent, result.by_topic) == (1, {"orders": 1})
        assert len(t.records("orders")) == 1
        with pytest.raises(ConfigError, match="dead letter topic itself"):
            await t.replay_dead_letters("orders.dlq", ReplayOptions(to="orders.dlq"))


async def test_a_record_of_another_program_is_named_and_the_others_are_replayed() -> None:
    calls: list[tuple[int, bytes]] = []
    async with TestConsumer(failing(calls), partitions=1) as t:
        await t.publish("orders.dlq", "by hand")
        await t.publish("orders", -1)
        result = await t.replay_dead_letters("orders.dlq", ReplayOptions(to="repaired"))
        assert (result.sent, result.by_topic) == (1, {"repaired": 1})
        assert [(each.offset, each.why) for each in result.named] == [
            (0, "it has no headers of a dead letter")
        ]


async def test_a_rate_limits_how_many_are_sent_in_a_second() -> None:
    calls: list[tuple[int, bytes]] = []
    async with TestConsumer(failing(calls), partitions=1) as t:
        for value in (-1, -2, -3):
            await t.publish("orders", value)
        before = t.time
        result = await t.replay_dead_letters("orders.dlq", ReplayOptions(rate=0.5))
        assert result.sent == 3
        assert t.time - before >= 4


async def test_a_dead_letter_does_not_choose_which_topic_a_replay_writes_to() -> None:
    calls: list[tuple[int, bytes]] = []
    headers = {
        "asyncrevoke-origin-topic": "payments",
        "asyncrevoke-origin-partition": "0",
        "asyncrevoke-origin-offset": "7",
    }
    async with TestConsumer(failing(calls), partitions=1) as t:
        await t.publish("orders.dlq", 1_000_000, headers=headers)
        await t.publish("orders", -1)
        result = await t.replay_dead_letters("orders.dlq")
        assert (result.sent, result.by_topic) == (1, {"orders": 1})
        (rejected,) = result.named
        assert rejected.offset == 0
        assert "its origin payments is not the topic that orders.dlq is named after" in rejected.why
        assert not t.records("payments")
        chosen = DeadLetterFilter(origin_topics=frozenset(["payments"]))
        result = await t.replay_dead_letters("orders.dlq", ReplayOptions(chosen=chosen))
        assert (result.sent, result.by_topic) == (1, {"payments": 1})
        result = await t.replay_dead_letters("orders.dlq", ReplayOptions(to="repaired"))
        assert result.by_topic == {"repaired": 3}  # the one of orders has failed again


@pytest.mark.parametrize(
    ("dead_letter_topic", "origin", "replayed"),
    [
        ("orders.dlq", "orders", True),
        ("orders-eu-dead-letters", "orders-eu", True),
        ("orders_DLT", "orders", True),
        ("orders.refunds.dlq", "orders.refunds", True),
        ("orders.refunds.dlq", "orders", False),
        ("orders-eu.dlq", "orders", False),
        ("orders_2.dlq", "orders", False),
        ("prod.web.clicks.dlq", "prod", False),
        ("prod.web.clicks.dlq", "prod.web", False),
        ("prod.web.clicks.dlq", "prod.web.clicks", True),
        ("orders-eu-dead-letters", "orders-eu-dead", False),
        ("orders-eu-dead-letters", "orders", False),
        ("orders_DEAD_LETTER", "orders", True),
        ("dead-letters", "dead", False),
        ("orders.dlq", "order", False),
        ("orders.dlq", "orders.", False),
        ("orders.dlq", "dlq", False),
        ("orders.dlq", "orders.dlq", False),
        ("ordersdlq", "orders", False),
        ("dlq", "orders", False),
    ],
)
def test_the_topic_of_a_replay_is_the_one_that_the_dead_letter_topic_is_named_after(
    dead_letter_topic: str, origin: str, replayed: bool
) -> None:
    letter = read_dead_letter(stored(Record(origin, 0, 1, 1234, 0, b"k", b"v")))
    assert isinstance(letter, StoredDeadLetter)
    letter = letter._replace(record=structs.replace(letter.record, topic=dead_letter_topic))
    assert (why_not_replayed(letter, origin, (), 3) is None) is replayed


# -- timestamps -----------------------------------------------------------------------------------


async def failed_ten_days_ago(t: TestConsumer) -> int:
    """Publish a record of ten days ago, which fails. Returns its timestamp."""
    await t.publish("orders", 1)
    old = t.records("orders")[0].timestamp - 10 * DAY
    await t.publish("orders", -1, timestamp=old)
    return old


async def test_dead_letters_and_replays_have_the_time_of_writing_and_name_the_original_one() -> (
    None
):
    calls: list[tuple[int, bytes]] = []
    seen: list[tuple[int, bytes | None]] = []
    consumer = failing(calls)

    @consumer.middleware
    async def keep(context: HandlerContext, call_next: CallNext) -> None:
        named = dict(context.record.headers).get("asyncrevoke-replayed-timestamp")
        seen.append((context.record.timestamp, named))
        await call_next()

    async with TestConsumer(consumer, partitions=1) as t:
        old = await failed_ten_days_ago(t)
        (letter,) = t.dead_letters("orders.dlq")
        written = letter.timestamp
        assert written - old >= 10 * DAY
        stored_letter = read_dead_letter(letter)
        assert isinstance(stored_letter, StoredDeadLetter)
        assert stored_letter.origin_timestamp == old
        await t.advance(60)
        for _ in range(2):
            assert (await t.replay_dead_letters("orders.dlq")).sent > 0
        replayed = t.records("orders")[2:]
        assert all(each.timestamp >= written + 60_000 for each in replayed)
        assert {dict(each.headers)["asyncrevoke-replayed-timestamp"] for each in replayed} == {
            b"%d" % old
        }, "also of the record that was replayed twice"
        assert seen[2] == (replayed[0].timestamp, b"%d" % old), "no header is believed"


async def test_a_replay_keeps_the_original_timestamp_of_a_record_that_was_replayed_before() -> None:
    calls: list[tuple[int, bytes]] = []
    async with TestConsumer(failing(calls), partitions=1) as t:
        old = await failed_ten_days_ago(t)
        await t.replay_dead_letters("orders.dlq")
        again = DeadLetterFilter(since=datetime.fromtimestamp(old / 1000 + 60, UTC))
        options = ReplayOptions(chosen=again, timestamps="original")
        result = await t.replay_dead_letters("orders.dlq", options)
        assert (result.selected, result.sent) == (1, 1)
        assert t.records("orders")[-1].timestamp == old


async def test_a_dead_letter_whose_topic_would_not_keep_its_original_timestamp_is_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = {**topic_cluster._KEEPS_ALL, "retention.ms": str(7 * DAY)}
    monkeypatch.setattr(topic_cluster, "_KEEPS_ALL", settings)
    calls: list[tuple[int, bytes]] = []
    async with TestConsumer(failing(calls), partitions=1) as t:
        await failed_ten_days_ago(t)
        await t.publish("orders", -2)
        for dry in (True, False):
            options = ReplayOptions(timestamps="original", dry_run=dry)
            result = await t.replay_dead_letters("orders.dlq", options)
            assert (result.sent, result.not_sent) == (1, 1)
            assert "would delete it at once (retention.ms=604800000)" in result.named[0].why


@pytest.mark.parametrize(
    ("changed", "timestamp", "why"),
    [
        ({}, NOW - 8 * DAY, "would delete it at once (retention.ms=604800000)"),
        ({}, NOW - 7 * DAY, None),
        ({"cleanup.policy": "compact"}, NOW - 8 * DAY, None),
        ({"cleanup.policy": "compact,delete"}, NOW - 8 * DAY, "would delete it at once"),
        ({"retention.ms": "-1"}, 0, None),
        ({}, NOW + 3_600_000, None),
        ({}, NOW + 3_600_001, "ms ahead, which orders does not accept (message.timestamp.after"),
        ({}, NOW * 1000, "does not accept (message.timestamp.after.max.ms=3600000)"),
        ({"message.timestamp.before.max.ms": "1000"}, NOW - 1001, "before.max.ms=1000)"),
        ({"message.timestamp.type": "LogAppendTime"}, NOW, "orders replaces timestamps"),
        ({}, -1, "its original timestamp is unknown"),
    ],
)
def test_which_timestamps_a_topic_keeps(
    changed: dict[str, str], timestamp: int, why: str | None
) -> None:
    limits = TimestampLimits.of("orders", DEFAULTS | changed, lambda: NOW / 1000)
    found = limits.why_not(timestamp)
    assert found is None if why is None else why in (found or "")


def test_the_limit_of_brokers_before_3_6_is_for_both_directions() -> None:
    before = {k: v for k, v in DEFAULTS.items() if not k.startswith("message.timestamp")}
    before["message.timestamp.difference.max.ms"] = "1000"
    limits = TimestampLimits.of("orders", before, lambda: NOW / 1000)
    for timestamp in (NOW - 1001, NOW + 1001):
        assert "message.timestamp.difference.max.ms=1000" in (limits.why_not(timestamp) or "")


def test_a_broker_without_options_for_timestamps_limits_them_by_retention_only() -> None:
    settings = {"cleanup.policy": "delete", "retention.ms": "1000"}
    limits = TimestampLimits.of("orders", settings, lambda: NOW / 1000)
    assert limits.why_not(NOW * 1000) is None
    assert "(retention.ms=1000)" in (limits.why_not(NOW - 1001) or "")


@pytest.mark.parametrize("value", [None, "", "many", "-", "9" * 5000, "\u0664"])
def test_a_retention_that_is_no_number_is_an_error(value: str | None) -> None:
    settings = {k: v for k, v in DEFAULTS.items() if k != "retention.ms"}
    if value is not None:
        settings["retention.ms"] = value
    with pytest.raises(DeadLettersError, match=r"does not report retention\.ms of orders"):
        TimestampLimits.of("orders", settings, lambda: 0.0)


# -- how much is kept of what others write --------------------------------------------------------


def test_a_listing_keeps_the_beginning_of_texts_that_a_writer_chooses() -> None:
    counting = Counting("orders.dlq")
    for number in range(MAX_ROWS + 5):
        headers = (
            ("asyncrevoke-origin-topic", b"orders"),
            ("asyncrevoke-origin-partition", b"0"),
            ("asyncrevoke-origin-offset", b"7"),
            ("asyncrevoke-error-type", b"%d\xf0\x9f\x98\x80" % number + b"E" * 2_000),
            ("asyncrevoke-error-message", b"m" * 2_000),
        )
        letter = read_dead_letter(Record("orders.dlq", 0, number, 1, 0, None, b"", headers))
        assert isinstance(letter, StoredDeadLetter)
        assert len(letter.error_message) == 1024
        counting.add(letter)
    listing = counting.end()
    assert (len(listing.rows), listing.other) == (MAX_ROWS, 5)
    assert max(len(row.error_type) for row in listing.rows) == 256


def test_the_reason_against_a_record_quotes_the_beginning_of_its_origin_only() -> None:
    headers = (("asyncrevoke-origin-topic", b"\x1b" * 2_000),)
    found = read_dead_letter(Record("orders.dlq", 0, 0, 1, 0, None, b"", headers))
    assert isinstance(found, NoDeadLetter)
    assert "not a valid topic name" in found.why
    assert len(found.why) < 200


async def test_a_replay_of_a_missing_topic_makes_no_journal(tmp_path: Path) -> None:
    class Missing(ThreeDeadLetters):
        async def ends(self) -> dict[TopicPartition, range]:
            raise DeadLettersError("there is no topic")

    path = tmp_path / "orders.dlq.replay.jsonl"
    replay = Replay(cast("DeadLetterTopic", Missing()), ReplayOptions(journal=path))
    with pytest.raises(DeadLettersError, match="there is no topic"):
        await replay.run()
    assert not path.exists()
