"""A topic of numbered records, and members that write down which of them they have handled."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Self, TypeAlias, cast

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from asyncrevoke import Consumer, PartitionsError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from typing import Unpack

    from asyncrevoke import Record, TopicPartition
    from asyncrevoke.client.config import ConsumerOptions

DEADLINE = 60.0
# Partition and offset of a record.
Place: TypeAlias = tuple[int, int]


async def until(condition: Callable[[], bool], what: str, within: float = DEADLINE) -> None:
    """Wait for something to be true."""
    try:
        async with asyncio.timeout(within):
            while not condition():  # noqa: ASYNC110 - of another's state
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {within:g} s: {what}") from None


class Numbers:
    """Records 0, 1, 2, ... of one topic, in turn over its partitions.

    ``around`` is an address that no fault stands before. What was sent stays whoever becomes the
    leader: a leader that was fenced without knowing it acknowledges records that it truncates
    later, unless its replicas have them too.
    """

    def __init__(self, bootstrap: str, around: str, topic: str, partitions: int = 3) -> None:
        self.bootstrap = bootstrap
        self.around = around
        self.topic = topic
        self.partitions = partitions
        self.group = f"group-of-{topic}"
        self.sent = 0

    def consumer(self, **options: Unpack[ConsumerOptions]) -> Consumer:
        options.setdefault("bootstrap_servers", self.bootstrap)
        options.setdefault("group_id", self.group)
        return Consumer(self.topic, **options)

    async def send(self, count: int) -> None:
        """Send so many more records."""
        async with AIOKafkaProducer(bootstrap_servers=self.around, acks="all") as producer:
            before = self.sent
            await self._send(producer, count)
            assert self.sent - before == count

    async def _send(self, producer: AIOKafkaProducer, count: int) -> None:
        # Half typed: it gives a future.
        send = cast("Callable[..., Awaitable[Awaitable[object]]]", producer.send)
        futures: list[Awaitable[object]] = []
        for number in range(self.sent, self.sent + count):
            value, key = b"number-%06d" % number, b"%d" % (number % 23)
            partition = number % self.partitions
            futures.append(await send(self.topic, value, key=key, partition=partition))
        results = await asyncio.gather(*futures, return_exceptions=True)
        self.sent += sum(not isinstance(result, BaseException) for result in results)

    @asynccontextmanager
    async def trickling(self, pause: float = 0.02) -> AsyncGenerator[None]:
        """Inside, a few records are sent all the time, if the broker takes them."""
        stop = asyncio.Event()

        async def trickle() -> None:
            async with AIOKafkaProducer(
                bootstrap_servers=self.around, acks="all", request_timeout_ms=2000
            ) as producer:
                while not stop.is_set():
                    with suppress(KafkaError):
                        await self._send(producer, 5)
                    await asyncio.sleep(pause)

        task = asyncio.create_task(trickle())
        try:
            yield
        finally:
            stop.set()
            await task

    async def written(self) -> Counter[Place]:
        """Where there are records, each once, as the broker tells another client.

        A producer that got no response writes a record twice; that is not a fault of who reads it.
        """
        partitions = [AioTopicPartition(self.topic, number) for number in range(self.partitions)]
        async with AIOKafkaConsumer(bootstrap_servers=self.around) as reader:
            ends = cast("dict[TopicPartition, int]", await reader.end_offsets(partitions))
        return Counter((tp.partition, offset) for tp, end in ends.items() for offset in range(end))

    async def committed(self) -> int:
        """How many records the group has committed, as the broker tells another client."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.around)
        await admin.start()
        try:
            offsets = await admin.list_consumer_group_offsets(self.group)
        finally:
            await admin.close()
        return sum(
            offset.offset
            for tp, offset in offsets.items()
            if tp.topic == self.topic and offset.offset >= 0
        )


def place(record: Record) -> Place:
    return record.partition, record.offset


class NumberedMember:
    """A loop over a consumer in a task of its own; errors of partitions do not end it."""

    def __init__(self, consumer: Consumer, *, tasks: bool = False) -> None:
        self.consumer = consumer
        self.handled: Counter[Place] = Counter()
        self.errors: list[PartitionsError] = []
        self.lost: set[TopicPartition] = set()
        self._tasks = tasks
        self._entered = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        await until(lambda: self._entered or self.failed, "the consumer is entered")
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            await self.stop()
        elif self._task is not None:
            # The test has failed: its error is what matters.
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def stop(self) -> None:
        """End the loop so that its last batch counts, and leave; raises what the loop raised."""
        assert self._task is not None
        if not self._task.done():
            self.consumer.stop()
        async with asyncio.timeout(DEADLINE):
            await self._task

    async def _run(self) -> None:
        async with self.consumer:
            self._entered = True
            if not self._tasks:
                await self._loop()
                return
            async with self.consumer.task_group(concurrency=32) as tasks:
                async for batch in self.consumer:
                    self.lost |= batch.lost
                    for record in batch.records:
                        await tasks.submit(self._work, record)

    async def _work(self, record: Record) -> None:
        await asyncio.sleep(0.001 * (record.offset % 20))
        self.handled[place(record)] += 1

    async def _loop(self) -> None:
        while True:
            try:
                async for batch in self.consumer:
                    self.lost |= batch.lost
                    self.handled.update(map(place, batch.records))
            except PartitionsError as error:
                self.errors.append(error)
            else:
                return

    async def has_all(self, numbers: Numbers) -> None:
        """Wait until every record was handled, and see that each of them was handled once."""
        written = await numbers.written()
        await self.has(written.total())
        assert self.handled == written

    async def has(self, count: int) -> None:
        """Wait until so many different records were handled."""
        await until(
            lambda: len(self.handled) >= count or self.failed,
            f"{count} records, but there are {len(self.handled)}",
        )
        assert not self.failed

    @property
    def failed(self) -> bool:
        """Whether the loop has ended by itself."""
        return self._task is not None and self._task.done()
