"""The error of a wrong call of a consumer names the fix."""

from __future__ import annotations

import asyncio
import re
import threading
from contextlib import asynccontextmanager, nullcontext
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest
from unit.runtime.scripted_core import (
    ORDERS,
    ScriptedConsumer,
    record,
    result,
    scripted_consumer,
    until,
)

from asyncrevoke.client.errors import (
    ConfigError,
    ConsumerClosedError,
    IllegalStateError,
    PartitionLostError,
)
from asyncrevoke.client.model import BrokerPattern, OffsetAndMetadata, TopicPartition
from asyncrevoke.client.runtime.hooks.rebalance_listener import RebalanceListener
from asyncrevoke.consumer import Consumer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from typing import Unpack

    from asyncrevoke.client.config import CommitMode, ConsumerOptions


def consumer(*topics: str, **options: Unpack[ConsumerOptions]) -> ScriptedConsumer:
    return scripted_consumer(*topics, **options)


def matching(pattern: str) -> ScriptedConsumer:
    return ScriptedConsumer(pattern=pattern, group_id="billing")


def with_handler() -> ScriptedConsumer:
    ours = consumer()

    @ours.handler("orders")
    async def handle(value: bytes) -> None:
        del value

    return ours


@pytest.mark.parametrize(
    ("make", "fix"),
    [
        (lambda: Consumer(["a", "b"]), "use Consumer('a', 'b')"),  # type: ignore[arg-type]
        (lambda: Consumer(5), "names of topics"),  # type: ignore[arg-type]
        (lambda: Consumer("a b"), "not a valid topic name"),
        (lambda: Consumer("orders.*"), 'use Consumer(pattern="orders.*")'),
        (lambda: Consumer("a,b"), 'use Consumer("a", "b")'),
        (lambda: Consumer("a", pattern="b"), "topics and pattern exclude each other"),
        (lambda: Consumer(pattern="("), "not a regular expression"),
        (lambda: Consumer(pattern=""), "regular expression, not ''"),
        (
            lambda: Consumer(pattern=BrokerPattern(cast("str", re.compile("a", re.IGNORECASE)))),
            r'flags in the text, as in "(?i)orders-.*"',
        ),
        (lambda: Consumer(pattern=BrokerPattern(cast("str", b"a"))), "BrokerPattern takes"),
        *(
            (partial(Consumer, pattern=BrokerPattern(regex)), "is not a regular expression")
            for regex in ("(", "orders-(a|b", "orders)", "orders-[ab")
        ),
        (lambda: Consumer("orders", journal=cast("Any", "path")), "use journal=Journal(path)"),
        (lambda: Consumer(listener=3), "none of the methods on_partitions_assigned"),  # type: ignore[arg-type]
        (lambda: Consumer(listener=RebalanceListener), "listener=RebalanceListener()"),  # type: ignore[arg-type]
        (lambda: consumer().subscribe(["a"]), "use subscribe('a')"),  # type: ignore[arg-type]
        (lambda: consumer().subscribe(), "subscribe needs topics"),
        (lambda: consumer().subscribe("a", pattern="b"), "topics and pattern exclude"),
        (lambda: consumer("a").assign([ORDERS]), "topics and assign() exclude each other"),
        (lambda: matching("a").assign([ORDERS]), "topics and assign() exclude"),
        (lambda: consumer().assign(["orders"]), "TopicPartition(topic"),  # type: ignore[list-item]
        (lambda: consumer().assign([5]), "TopicPartition(topic"),  # type: ignore[list-item]
        (lambda: consumer(group_id=None).handler("a"), "give the consumer a group_id"),
        (lambda: consumer(commit_mode="ack").handler("a"), 'commit_mode="processed"'),
        (lambda: matching("a").handler("a"), "none to the consumer"),
        (lambda: with_handler().subscribe("b"), "register a handler"),
        (lambda: with_handler().assign([ORDERS]), "exclude each other"),
        (lambda: with_handler().records(), "has handlers"),
        (lambda: with_handler().task_group(), "has handlers"),
        (lambda: aiter(with_handler()), "has handlers"),
    ],
)
def test_invalid_subscriptions_and_calls_raise_errors_that_name_the_fix(
    make: Callable[[], object], fix: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(fix)):
        make()


def test_subscribing_after_assign_raises_an_error() -> None:
    ours = consumer()
    ours.assign([ORDERS])
    with pytest.raises(ConfigError, match="unsubscribe"):
        ours.subscribe("a")


def test_registering_a_sync_handler_without_run_in_raises_an_error_that_names_it() -> None:
    def blocking(value: bytes) -> None:
        del value

    with pytest.raises(ConfigError, match="run_in="):
        consumer().handler("orders")(blocking)


CALLS: list[Callable[[ScriptedConsumer], object]] = [
    aiter,
    lambda ours: ours.records(),
    lambda ours: ours.assignment(),
    lambda ours: ours.health(),
    lambda ours: ours.stop(),
    lambda ours: ours.ack(record(0)),
    lambda ours: ours.pause(ORDERS),
    lambda ours: ours.seek(ORDERS, 5),
    lambda ours: ours.task_group(),
    lambda ours: ours.delay_revoke([ORDERS]),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_call_before_the_consumer_is_entered_raises_an_error_that_says_how(
    call: Callable[[ScriptedConsumer], object],
) -> None:
    with pytest.raises(IllegalStateError, match="async with consumer"):
        call(consumer("orders", commit_mode="ack"))


async def test_iterating_before_the_consumer_is_entered_raises_an_error_that_says_how() -> None:
    with pytest.raises(IllegalStateError, match="async with consumer"):
        async for _ in consumer("orders"):
            pass


async def test_a_consumer_can_be_entered_only_once() -> None:
    ours = consumer("orders")
    async with ours:
        with pytest.raises(IllegalStateError, match="entered once"):
            await ours.start()
    with pytest.raises(IllegalStateError, match="entered once"):
        await ours.start()


async def test_a_closed_consumer_cannot_be_used_again() -> None:
    ours = consumer("orders")
    async with ours:
        pass
    with pytest.raises(ConsumerClosedError):
        await ours.commit()
    with pytest.raises(ConsumerClosedError):
        await ours.poll()
    assert [batch async for batch in ours] == []


async def test_a_topic_without_handler_is_an_error_at_start() -> None:
    ours = ScriptedConsumer("orders", "clicks", group_id="billing")

    @ours.handler("orders")
    async def handle(value: bytes) -> None:
        del value

    with pytest.raises(ConfigError, match="clicks"):
        await ours.start()


async def test_run_without_handlers_raises_an_error() -> None:
    with pytest.raises(ConfigError, match="run\\(\\) needs handlers"):
        await consumer("orders").run()


async def test_registering_a_handler_after_entering_raises_an_error() -> None:
    async with consumer("orders") as ours:
        with pytest.raises(IllegalStateError, match="before the consumer is entered"):
            ours.handler("orders")


async def test_a_second_loop_over_one_consumer_raises_an_error() -> None:
    async with consumer("orders") as ours:
        first = asyncio.create_task(anext(ours))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="one loop per consumer"):
            await anext(ours)
        ours.deliver(result(1))
        assert len((await first).records) == 1


async def test_a_call_from_another_thread_raises_an_error_that_says_how_to_call() -> None:
    async with consumer("orders", commit_mode="ack") as ours:
        for call in (lambda: ours.ack(record(0)), lambda: ours.pause(ORDERS)):
            with pytest.raises(RuntimeError, match="call_soon_threadsafe"):
                await asyncio.to_thread(call)


async def test_a_call_from_another_event_loop_raises_an_error() -> None:
    async with consumer("orders") as ours:
        errors: list[BaseException] = []

        def elsewhere() -> None:
            try:
                asyncio.run(ours.commit())
            except RuntimeError as error:
                errors.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert "entered in" in str(errors[0])


async def test_stop_may_be_called_from_another_thread() -> None:
    async with consumer("orders") as ours:
        await asyncio.to_thread(ours.stop)
        assert [batch async for batch in ours] == []


@pytest.mark.parametrize("mode", ["processed", "ack"])
async def test_committing_given_offsets_requires_the_manual_mode(mode: CommitMode) -> None:
    async with consumer("orders", commit_mode=mode) as ours:
        for what in (record(0), {ORDERS: 5}):
            with pytest.raises(ConfigError, match='commit_mode="manual"'):
                await ours.commit(what)
        await ours.commit()
        assert ours.core.asked("commit") == [None]


async def test_a_manual_commit_of_a_record_commits_the_offset_after_it() -> None:
    async with consumer("orders", commit_mode="manual") as ours:
        await ours.commit(record(4))
        await ours.commit({ORDERS: 9})
        await ours.commit({("orders", 1): OffsetAndMetadata(7, "note")})
        assert ours.core.asked("commit") == [
            {ORDERS: OffsetAndMetadata(5)},
            {ORDERS: OffsetAndMetadata(9)},
            {TopicPartition("orders", 1): OffsetAndMetadata(7, "note")},
        ]
        for wrong in ({ORDERS: -1}, {ORDERS: "9"}, {"orders": 1}, 5):
            with pytest.raises(ConfigError):
                await ours.commit(wrong)  # type: ignore[arg-type]


async def test_a_manual_commit_of_a_record_of_a_lost_partition_raises_an_error() -> None:
    async with consumer("orders", commit_mode="manual") as ours:
        ours.core.gone.add(4)
        with pytest.raises(PartitionLostError, match="orders-0"):
            await ours.commit(record(4))
        assert ours.core.asked("commit") == []


async def test_committing_without_a_group_raises_an_error() -> None:
    async with consumer("orders", group_id=None) as ours:
        for call in (ours.commit, ours.committed):
            with pytest.raises(ConfigError, match="group_id"):
                await call()
        with pytest.raises(ConfigError, match="group_id"):
            ours.group_metadata()


async def test_ack_outside_of_ack_mode_raises_an_error() -> None:
    async with consumer("orders") as ours:
        with pytest.raises(ConfigError, match='commit_mode="ack"'):
            ours.ack(record(0))


async def test_a_task_group_outside_of_processed_mode_raises_an_error() -> None:
    async with consumer("orders", commit_mode="ack") as ours:
        with pytest.raises(ConfigError, match='commit_mode="processed"'):
            ours.task_group()


async def test_negative_offsets_and_partitions_raise_errors() -> None:
    async with consumer("orders") as ours:
        with pytest.raises(ValueError, match="seek_to_beginning"):
            ours.seek(ORDERS, -1)
        with pytest.raises(ValueError, match="beginning_offsets"):
            await ours.offsets_for_times({ORDERS: -2})
        with pytest.raises(ConfigError, match="one by one"):
            ours.pause([ORDERS])  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="at least 1"):
            await ours.poll(max_records=0)


async def test_a_loop_over_batches_that_uses_them_as_records_is_told_of_records() -> None:
    async with consumer("orders") as ours:
        ours.deliver(result(1))
        with pytest.raises(AttributeError, match=r"async for record in consumer.records\(\)"):
            async for batch in ours:
                batch.value  # type: ignore[attr-defined]  # noqa: B018


def test_a_loop_over_a_batch_that_uses_its_parts_as_records_is_told_of_records() -> None:
    batch = result(1)
    for name in ("value", "key", "offset", "headers", "topic_partition"):
        with pytest.raises(AttributeError, match=f"no '{name}'.*for record in batch.records"):
            for part in cast("Any", batch):
                getattr(part, name)
    records, to_be_revoked, lost = batch
    assert (list(records), to_be_revoked, lost) == (list(batch.records), frozenset(), frozenset())
    for other in (batch, records):
        with pytest.raises(AttributeError, match="object has no attribute 'colour'"):
            getattr(cast("Any", other), "colour")  # noqa: B009 - the name is wrong


@pytest.mark.parametrize(
    ("at", "milliseconds"),
    [
        (0, 0),
        (10**9 - 1, 10**9 - 1),
        (10**11 + 1, 10**11 + 1),
        (1_764_000_000_000, 1_764_000_000_000),
        (datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 1_767_225_600_000),
        (datetime(2026, 1, 1, 0, 0, 0, 1500, tzinfo=UTC), 1_767_225_600_002),
        (timedelta(hours=1), 1_767_222_000_000),
        (timedelta(0), 1_767_225_600_000),
    ],
)
async def test_a_time_is_a_datetime_a_timedelta_or_milliseconds(
    at: int | datetime | timedelta, milliseconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with consumer("orders") as ours:
        session = cast("Any", ours)._session
        monkeypatch.setattr(session, "wall_clock", lambda: 1_767_225_600.0)
        asking = asyncio.create_task(ours.offsets_for_times({ORDERS: at}))
        await until(lambda: ours.core.asked("offsets_for_times"))
        assert ours.core.asked("offsets_for_times") == [{ORDERS: milliseconds}]
        asking.cancel()


@pytest.mark.parametrize(
    ("at", "kind", "fix"),
    [
        (1_764_000_000, ValueError, "is in seconds: times are in milliseconds"),
        (10**9, ValueError, "is in seconds"),
        (10**11, ValueError, "is in seconds"),
        (-1, ValueError, "use beginning_offsets or end_offsets"),
        (datetime(1969, 1, 1, tzinfo=UTC), ValueError, "is negative"),
        (timedelta(days=100_000), ValueError, "is negative"),
        (timedelta(hours=-1), ConfigError, "how long ago, so not negative"),
        (datetime(2026, 1, 1), ValueError, r"use datetime\(..., tzinfo=...\)"),  # noqa: DTZ001
        (2**63, ValueError, "more than 64 bits"),
        (1_764_000_000.5, ConfigError, "a time is a datetime"),
        (True, ConfigError, "a time is a datetime"),
        ("now", ConfigError, "a time is a datetime"),
        (None, ConfigError, "a time is a datetime"),
    ],
)
async def test_what_is_no_time_is_rejected_before_a_broker_is_asked(
    at: Any, kind: type[Exception], fix: str
) -> None:
    async with consumer("orders") as ours:
        with pytest.raises(kind, match=fix):
            await ours.offsets_for_times({ORDERS: at})
        assert not ours.core.asked("offsets_for_times")


async def test_a_call_that_waits_ends_when_the_consumer_is_closed() -> None:
    ours = consumer("orders")
    async with ours:
        waiting = asyncio.create_task(ours.beginning_offsets(ORDERS))
        await until(lambda: ours.core.asked("offsets_for_times"))
    with pytest.raises(ConsumerClosedError):
        await waiting


# -- what handlers share --------------------------------------------------------------------------


def test_resources_are_an_async_context_manager_or_a_function_that_returns_one() -> None:
    @asynccontextmanager
    async def database(path: str) -> AsyncGenerator[None]:
        yield

    async def undecorated() -> AsyncGenerator[None]:
        yield

    with pytest.raises(ConfigError, match=r"call it, resources=database\(\.\.\.\)"):
        ScriptedConsumer(group_id="billing", resources=cast("Any", database))
    for value in 7, undecorated:
        with pytest.raises(ConfigError, match="use @asynccontextmanager"):
            ScriptedConsumer(group_id="billing", resources=cast("Any", value))


async def test_a_function_that_returns_no_resources_stops_the_consumer() -> None:
    def database() -> int:
        return 7

    ours = ScriptedConsumer(group_id="billing", resources=cast("Any", database))

    @ours.handler("orders")
    async def handle(value: bytes) -> None: ...

    await ours.start()
    with pytest.raises(ConfigError, match="resources=database returned 7"):
        await ours.aclose()


async def test_resources_without_handlers_raise_an_error() -> None:
    ours = ScriptedConsumer("orders", group_id="billing", resources=nullcontext())
    with pytest.raises(ConfigError, match="resources= is for handlers"):
        await ours.start()


async def test_max_records_above_max_in_flight_raises_an_error() -> None:
    ours = ScriptedConsumer(group_id="billing", max_in_flight=100)

    @ours.handler("orders", batch=True)
    async def handle(values: list[bytes]) -> None: ...

    with pytest.raises(ConfigError, match="use max_in_flight=500 or more, or lower max_records"):
        await ours.start()
