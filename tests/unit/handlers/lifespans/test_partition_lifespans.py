"""``@consumer.partition_lifespan`` in virtual time: entry, exit, loss, failures and limits."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from asyncrevoke import (
    AssignedPartition,
    CallbackTimeoutError,
    ConfigError,
    Consumer,
    HandlerCancelledError,
    HandlerContext,
    IllegalStateError,
    PartitionLostError,
    RebalanceListener,
    TopicPartition,
)
from asyncrevoke.replays.errors import ReplayError
from asyncrevoke.replays.opened_handlers import checked_router
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from asyncrevoke.client.config import ConsumerOptions, GroupProtocol

each_protocol = pytest.mark.parametrize("protocol", ["classic", "consumer"])
ZERO = TopicPartition("orders", 0)


class Service:
    """A consumer with a lifespan that takes time and writes down what happens."""

    def __init__(self, **options: Any) -> None:
        self.events: list[str] = []
        self.enter_seconds = 0.0
        self.exit_seconds = 0.0
        self.handler_seconds = 0.0
        self.start: int | None = None
        self.enter_error: BaseException | None = None
        self.exit_error: BaseException | None = None
        self.partitions: list[AssignedPartition] = []
        self.consumer = Consumer(**cast("ConsumerOptions", {"group_id": "billing"} | options))
        self.consumer.handler("orders")(self.handle)
        self.consumer.partition_lifespan(self.lifespan)

    async def handle(self, value: dict[str, int], context: HandlerContext) -> None:
        record = context.record
        await asyncio.sleep(self.handler_seconds)
        assert context.partition_state == f"state {record.partition}"
        self.events.append(f"handle {record.partition}:{record.offset}")

    async def lifespan(self, partition: AssignedPartition) -> AsyncGenerator[str]:
        self.partitions.append(partition)
        self.events.append(f"enter {partition.partition} at {partition.position}")
        await asyncio.sleep(self.enter_seconds)
        if self.enter_error is not None:
            raise self.enter_error
        if self.start is not None:
            partition.seek(self.start)
        self.events.append(f"entered {partition.partition}")
        try:
            yield f"state {partition.partition}"
        except PartitionLostError:
            self.events.append(f"lost {partition.partition}")
            raise
        self.events.append(f"exit {partition.partition} at {partition.offset_to_commit}")
        await asyncio.sleep(self.exit_seconds)
        if self.exit_error is not None:
            raise self.exit_error
        self.events.append(f"exited {partition.partition}")

    def of(self, partition: int) -> list[str]:
        return [event for event in self.events if f" {partition}" in event.replace(":", " :")]

    def test(self) -> TestConsumer:
        return TestConsumer(self.consumer, partitions=1)


async def publish(t: TestConsumer, count: int = 3) -> None:
    for number in range(count):
        await t.publish("orders", {"id": number}, partition=0)


@each_protocol
async def test_state_is_loaded_before_the_first_record_and_saved_before_the_last_commit(
    protocol: GroupProtocol,
) -> None:
    service = Service(group_protocol=protocol, commit_interval=100.0)
    service.enter_seconds, service.exit_seconds = 2.0, 1.0
    async with service.test() as t:
        await publish(t)
        await t.advance(3)
        await t.revoke(("orders", 0))
        assert service.events[-1] == "exit 0 at 3"
        assert t.committed("orders", 0) in (None, 0)
        await t.advance(5)
        assert t.assignment() == set()
        assert t.committed("orders", 0) == 3
    handled = [f"handle 0:{offset}" for offset in range(3)]
    assert service.events == ["enter 0 at 0", "entered 0", *handled, "exit 0 at 3", "exited 0"]


async def test_closing_exits_lifespans_before_resources_are_closed() -> None:
    order: list[str] = []

    @asynccontextmanager
    async def resources() -> AsyncGenerator[str]:
        yield "database"
        order.append("resources closed")

    consumer = Consumer(group_id="billing", resources=resources())

    @consumer.handler("orders")
    async def handle(value: bytes) -> None:
        order.append("handled")

    @consumer.partition_lifespan
    async def lifespan(partition: AssignedPartition[str]) -> AsyncGenerator[None]:
        order.append(f"entered with {partition.state}")
        yield
        await asyncio.sleep(1)
        order.append("exited")

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1", partition=0)
    assert order == ["entered with database", "handled", "exited", "resources closed"]


async def test_a_lifespan_begins_at_the_offset_of_the_users_own_database() -> None:
    service = Service()
    async with service.test() as t:
        await publish(t, 5)
        await t.advance(1)
        service.start = 2
        service.events.clear()
        await t.crash()
        await t.restart(service.consumer)
        await t.advance(1)
    assert "enter 0 at 5" in service.events
    assert [event for event in service.events if "handle" in event] == [
        "handle 0:2",
        "handle 0:3",
        "handle 0:4",
    ]


async def test_seek_is_rejected_after_the_first_record_may_have_been_handled() -> None:
    service = Service()
    async with service.test() as t:
        await publish(t)
        with pytest.raises(IllegalStateError, match="before `yield`"):
            service.partitions[0].seek(0)
        with pytest.raises(ValueError, match="negative"):
            service.partitions[0].seek(-1)
    with pytest.raises(PartitionLostError):
        service.partitions[0].seek(0)


@each_protocol
async def test_a_lost_partition_is_not_saved(protocol: GroupProtocol) -> None:
    service = Service(group_protocol=protocol)
    async with service.test() as t:
        await publish(t)
        await t.lose(("orders", 0))
        await t.advance(1)
        assert service.events[-1] == "lost 0"
    assert "exited 0" not in service.events


@each_protocol
async def test_the_exit_waits_for_a_running_handler(protocol: GroupProtocol) -> None:
    service = Service(group_protocol=protocol)
    service.handler_seconds = 5.0
    async with service.test() as t:
        await publish(t, 1)
        await t.revoke(("orders", 0))
        assert service.events == ["enter 0 at 0", "entered 0"]
        await t.advance(10)
        assert t.committed("orders", 0) == 1
    assert service.events[2:] == ["handle 0:0", "exit 0 at 1", "exited 0"]


@each_protocol
async def test_a_revocation_cancels_an_entry(protocol: GroupProtocol) -> None:
    service = Service(group_protocol=protocol)
    service.enter_seconds = 1000.0
    async with service.test() as t:
        await t.revoke(("orders", 0))
        await t.advance(5)
        assert t.assignment() == set()
    assert service.events == ["enter 0 at 0"]


@each_protocol
async def test_an_entry_that_raises_stops_the_consumer_and_nothing_is_handled(
    protocol: GroupProtocol,
) -> None:
    service = Service(group_protocol=protocol)
    service.enter_error = ValueError("no table")
    with pytest.raises(ValueError, match="no table"):
        async with service.test() as t:
            await publish(t)
            await t.advance(1)
    assert service.events == ["enter 0 at 0"]


@each_protocol
async def test_an_entry_that_hangs_is_cancelled_after_max_poll_interval(
    protocol: GroupProtocol,
) -> None:
    service = Service(group_protocol=protocol, max_poll_interval=60.0)
    service.enter_seconds = 1e6
    with pytest.raises(CallbackTimeoutError, match="orders-0 did not enter within 60 s"):
        async with service.test() as t:
            await t.advance(61)


@each_protocol
async def test_an_exit_that_raises_releases_the_partition_without_its_final_commit(
    protocol: GroupProtocol,
) -> None:
    service = Service(group_protocol=protocol, commit_interval=1000.0)
    service.exit_error = ValueError("disk full")
    committed: list[int | None] = []
    with pytest.raises(ValueError, match="disk full"):
        async with service.test() as t:
            await publish(t)
            try:
                await t.revoke(("orders", 0))
                await t.advance(10)
            finally:
                committed.append(t.committed("orders", 0))
    assert committed in ([None], [0])
    assert service.events[-1] == "exit 0 at 3"


@each_protocol
async def test_an_exit_that_raises_at_close_is_raised_and_nothing_is_committed(
    protocol: GroupProtocol,
) -> None:
    service = Service(group_protocol=protocol, commit_interval=1000.0)
    service.exit_error = ValueError("disk full")
    t = service.test()
    with pytest.raises(ValueError, match="disk full"):
        async with t:
            await publish(t)
    assert service.events[-1] == "exit 0 at 3"


@each_protocol
async def test_an_exit_that_hangs_ends_at_the_deadline_of_the_revocation(
    protocol: GroupProtocol,
) -> None:
    service = Service(group_protocol=protocol, rebalance_timeout=30.0, max_poll_interval=30.0)
    service.exit_seconds = 1e6
    async with service.test() as t:
        await publish(t)
        await t.revoke(("orders", 0))
        await t.advance(40)
        assert t.assignment() == set()


@each_protocol
async def test_an_exit_that_hangs_at_close_ends_within_close_timeout(
    protocol: GroupProtocol,
) -> None:
    service = Service(group_protocol=protocol, close_timeout=10.0)
    service.exit_seconds = 1e6
    async with service.test() as t:
        await publish(t)
    assert service.events[-1] == "exit 0 at 3"
    assert "exited 0" not in service.events


async def test_a_lifespan_that_raises_cancelled_error_by_itself_has_failed() -> None:
    service = Service()
    service.enter_error = asyncio.CancelledError()
    with pytest.raises(HandlerCancelledError):
        async with service.test() as t:
            await t.advance(1)


async def test_a_revocation_does_not_wait_until_resources_are_open() -> None:
    @asynccontextmanager
    async def resources() -> AsyncGenerator[None]:
        await asyncio.sleep(100)
        yield

    entered: list[int] = []
    consumer = Consumer(group_id="billing", resources=resources())

    @consumer.handler("orders")
    async def handle(value: bytes) -> None: ...

    @consumer.partition_lifespan
    async def lifespan(partition: AssignedPartition) -> AsyncGenerator[None]:
        entered.append(partition.partition)
        yield

    async with TestConsumer(consumer, partitions=1) as t:
        await t.advance(101)
        assert entered == [0]


async def test_records_wait_for_an_async_listener_that_seeks() -> None:
    consumer_of: list[Consumer] = []

    class Listener(RebalanceListener):
        async def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
            await asyncio.sleep(2)
            for partition in assigned:
                if consumer_of[0].position(partition):
                    consumer_of[0].seek(partition, 2)

    consumer = Consumer("orders", group_id="billing", listener=Listener())
    consumer_of.append(consumer)
    offsets: list[int] = []
    async with TestConsumer(consumer, partitions=1) as t:
        await publish(t, 5)
        await t.advance(3)
        batch = await consumer.poll(timeout=5)
        assert [record.offset for record in batch.records] == [0, 1, 2, 3, 4]
        await consumer.commit()
        await consumer.poll(timeout=1)
        await t.crash()
        await t.restart(consumer)
        while len(offsets) < 3:
            offsets += [record.offset for record in (await consumer.poll(timeout=5)).records]
    assert offsets == [2, 3, 4]


async def test_a_listener_that_hangs_is_cancelled_and_its_error_raised() -> None:
    class Listener(RebalanceListener):
        async def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
            await asyncio.sleep(1e6)

    consumer = Consumer("orders", group_id="billing", listener=Listener(), max_poll_interval=60.0)
    async with TestConsumer(consumer, partitions=1) as t:
        await publish(t, 1)
        await t.advance(61)
        with pytest.raises(CallbackTimeoutError, match="on_partitions_assigned"):
            await consumer.poll(timeout=5)
        assert len((await consumer.poll(timeout=5)).records) == 1


class Stubborn:
    """A consumer whose lifespan ignores its cancellation."""

    def __init__(self, *, when: str) -> None:
        self.entered = 0
        self._when = when
        self.consumer = Consumer(group_id="billing", close_timeout=10.0)
        self.consumer.handler("orders")(self.handle)
        self.consumer.partition_lifespan(self.lifespan)

    async def handle(self, value: dict[str, int]) -> None: ...

    async def lifespan(self, partition: AssignedPartition) -> AsyncGenerator[None]:
        self.entered += 1
        if self._when == "entering" and self.entered == 1:
            await self._hang()
        try:
            yield
        finally:
            if self._when == "exiting" and self.entered == 1:
                await self._hang()

    async def _hang(self) -> None:
        while True:
            try:
                await asyncio.sleep(1e6)
            except asyncio.CancelledError:
                continue


@pytest.mark.parametrize("when", ["entering", "exiting"])
async def test_closing_abandons_a_lifespan_that_ignores_its_cancellation(
    when: str, caplog: pytest.LogCaptureFixture
) -> None:
    stubborn = Stubborn(when=when)
    async with TestConsumer(stubborn.consumer, partitions=1) as t:
        await t.advance(1)
    assert "cancelled partition lifespan did not exit; abandoned" in caplog.text


async def test_the_next_assignment_waits_until_a_lost_lifespan_is_abandoned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stubborn = Stubborn(when="exiting")
    async with TestConsumer(stubborn.consumer, partitions=1) as t:
        await t.lose(("orders", 0))
        await t.give(("orders", 0))
        await t.until(lambda: stubborn.entered == 2, within=20)
        assert "cancelled partition lifespan did not exit; abandoned" in caplog.text


async def test_lifespans_exit_when_a_handler_stops_the_consumer() -> None:
    service = Service()

    async def fail(value: dict[str, int]) -> None:
        raise ValueError("no such order")

    service.consumer.handler("refunds")(fail)
    with pytest.raises(ValueError, match="no such order"):
        async with TestConsumer(service.consumer, partitions=1) as t:
            await publish(t)
            await t.publish("refunds", {"id": 1}, partition=0)
            await t.advance(1)
    assert service.events.count("exited 0") == 2


def test_what_is_no_lifespan_is_rejected_with_the_shape_of_one() -> None:
    consumer = Consumer(group_id="billing")

    async def without_yield(partition: AssignedPartition) -> None: ...

    def generator(partition: AssignedPartition) -> Any:
        yield

    async def without_parameter() -> AsyncGenerator[None]:
        yield

    for function in (without_yield, generator, without_parameter, 3):
        with pytest.raises(ConfigError, match="AssignedPartition"):
            consumer.partition_lifespan(cast("Any", function))


async def test_a_lifespan_needs_handlers_and_is_registered_once() -> None:
    service = Service()
    with pytest.raises(ConfigError, match="already"):
        service.consumer.partition_lifespan(service.lifespan)


def test_a_replay_rejects_a_consumer_with_lifespans() -> None:
    with pytest.raises(ReplayError, match="partition_lifespan, which a replay does not enter"):
        checked_router(Service().consumer, "shop:consumer")
