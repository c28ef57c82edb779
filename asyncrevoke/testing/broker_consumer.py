"""Runs a consumer of an application on a real broker, for tests: the fixture ``consumer_for``."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, cast

from asyncrevoke.broker import BrokerRequestError
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.errors import ConfigError, IllegalStateError
from asyncrevoke.client.groups.cluster import GroupsClient
from asyncrevoke.client.groups.errors import GroupsError
from asyncrevoke.client.groups.requests import DeleteGroupsRequest
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.printable import shown_option
from asyncrevoke.client.producing.delivery import CompleteDelivery
from asyncrevoke.client.producing.message import Published
from asyncrevoke.client.producing.publishing.producer import ProducerWithOwnConnections
from asyncrevoke.client.runtime.session.open_session import config_override
from asyncrevoke.consumer import Consumer
from asyncrevoke.replays.ranges.range_consumer import RangeConsumer
from asyncrevoke.testing.cluster import encode, encode_headers
from asyncrevoke.testing.harness import forget

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.client.producing.record_producer import RecordProducer

_TOPIC_EXISTS = 36
_PARTITIONS = 4
# Seconds for each response.
_DELETED_WITHIN = 5.0


class BrokerConsumer:
    """Enters a consumer with the address of a test's broker and a new group.

    ::

        async with consumer_for(app.consumer) as running:
            await running.publish("orders", {"id": 1}, key="a")
            await running.until_done()

    Its other options stay. Missing topics are created with 4 partitions; the consumer does not
    read earlier records. Entering waits until the consumer has joined its group. Leaving drains
    it, raises its failure, and resets it, so that the consumer of a module can be tested many
    times. The group is deleted at the end, if the broker allows it.
    """

    def __init__(self, consumer: Consumer, broker: RunningBroker) -> None:
        if not isinstance(cast("object", consumer), Consumer):
            raise ConfigError(
                "consumer_for needs the Consumer of an application, not "
                f"{shown_option(consumer)}: for example consumer_for(app.consumer)"
            )
        self.consumer = consumer
        self.group = f"{consumer.config.group_id or 'test'}-{uuid.uuid4().hex[:8]}"
        self._broker = broker
        self._options = cast("dict[str, Any]", dict(broker.client_options()))
        self._stack = AsyncExitStack()
        self._producer: RecordProducer | None = None
        self._published: dict[TopicPartition, int] = {}

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._delete_group)
            topics = await asyncio.to_thread(self._create_topics)
            await self._begin_at_the_end(topics)
            self._producer = await stack.enter_async_context(
                ProducerWithOwnConnections(ConsumerConfig(**self._options))
            )
            await self._enter_consumer()
            stack.push_async_callback(self._leave_consumer)
            await self.until(lambda: self.consumer.probe().ready)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the group after running handlers have ended. Raises the consumer's failure."""
        await self._stack.__aexit__(kind, error, trace)

    async def publish(
        self,
        topic: str,
        value: object,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes | None] | None = None,
        partition: int | None = None,
    ) -> Published:
        """Write a record. Bytes and None are unchanged, text is UTF-8, other values are JSON.

        Raises PublishError, and IllegalStateError outside of ``async with``.
        """
        if self._producer is None:
            raise IllegalStateError("publish() is called inside `async with consumer_for(...)`")
        delivery = CompleteDelivery()
        await self._producer.queue(
            topic,
            partition,
            encode(key),
            encode(value),
            list(encode_headers(headers or {})),
            None,
            delivery,
        )
        await delivery.wait()
        for _, error in delivery.failed:
            raise error
        ((_, written, offset),) = delivery.acknowledged
        self._published[written] = offset
        return Published(topic, written.partition, offset)

    async def until(self, condition: Callable[[], object], *, within: float = 30.0) -> None:
        """Wait for a condition, at most ``within`` seconds.

        Raises TimeoutError, or the consumer's failure.
        """
        deadline = time.monotonic() + within
        while not condition():
            self._raise_failure()
            if time.monotonic() > deadline:
                raise TimeoutError(f"the condition is still false after {within:g} s")
            await asyncio.sleep(0.01)

    async def until_done(self, *, within: float = 30.0) -> None:
        """Wait until all published records are completed and committed."""
        deadline = time.monotonic() + within
        while any([await self._is_left(*published) for published in self._published.items()]):
            self._raise_failure()
            if time.monotonic() > deadline:
                raise TimeoutError(f"published records are not committed after {within:g} s")
            await asyncio.sleep(0.05)

    async def committed(self, topic: str, partition: int) -> int | None:
        """The committed offset (of the next record to read); None if there is none."""
        await self.consumer.commit()
        where = TopicPartition(topic, partition)
        found = (await self.consumer.committed(where))[where]
        return None if found is None else found.offset

    async def _is_left(self, partition: TopicPartition, offset: int) -> bool:
        committed = await self.committed(*partition)
        return committed is None or committed <= offset

    def _raise_failure(self) -> None:
        session = self.consumer._session  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        if session is not None and session.failure is not None:
            raise session.failure

    # --- entering and leaving --------------------------------------------------------------------

    def _adapted(self, config: ConsumerConfig) -> ConsumerConfig:
        group = None if config.group_id is None else self.group
        return replace(config, **self._options, group_id=group)

    async def _enter_consumer(self) -> None:
        before = config_override.set(self._adapted)
        try:
            await self.consumer.start()
        finally:
            config_override.reset(before)

    async def _leave_consumer(self) -> None:
        try:
            await self.consumer.aclose()
        finally:
            forget(self.consumer)

    async def _delete_group(self) -> None:
        """Delete the group. On a shared broker, groups of all tests would pile up."""
        if self.consumer.config.group_id is None:
            return
        config = ConsumerConfig(**self._options, request_timeout=_DELETED_WITHIN)
        with suppress(GroupsError):  # the test may have stopped the broker
            async with GroupsClient(config) as client:
                coordinator = await client.coordinator(self.group)
                await client.ask(coordinator, DeleteGroupsRequest(groups_names=(self.group,)))

    def _create_topics(self) -> list[str]:
        host = self.consumer.handler_host
        handled = () if host.router is None else host.router.topics
        topics = sorted({*self.consumer.subscription(), *handled})
        for topic in (*topics, *sorted(host.output_topics())):
            try:
                self._broker.create_topic(topic, _PARTITIONS)
            except BrokerRequestError as error:
                if error.code != _TOPIC_EXISTS:
                    raise
        return topics

    async def _begin_at_the_end(self, topics: list[str]) -> None:
        """Commit the end offsets for the new group, so that it reads only later records."""
        if self.consumer.config.group_id is None or not topics:
            return
        reader = RangeConsumer(**self._options, group_id=self.group, commit_mode="manual")
        async with reader:
            described = await reader.describe_topics(topics)
            partitions = [
                TopicPartition(topic, number)
                for topic, known in described.items()
                for number in known.partitions
            ]
            reader.assign(partitions)
            await reader.commit(await reader.end_offsets(*partitions))
