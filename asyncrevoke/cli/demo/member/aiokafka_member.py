"""A member that uses aiokafka, as carefully as its interface allows.

Handlers run concurrently, except those of one key. The member commits the first offset that is not
done every second, when partitions are revoked, and at the end. Its rebalance listener waits for
running handlers, drops records that were not started, and commits. With results, a commit is a
transaction with the results of all records before the committed offsets.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeArgument=false
# pyright: reportUnknownParameterType=false
# aiokafka has types in parts.

from __future__ import annotations

import asyncio
import signal
from collections import deque
from typing import TYPE_CHECKING

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from asyncrevoke.cli.demo.workload import Invoice, Order

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiokafka.structs import ConsumerRecord, TopicPartition

    from asyncrevoke.cli.demo.member.handler_log import HandlerLog, MemberConfig

POLL_TIMEOUT_MS = 200
MAX_POLL_RECORDS = 500


class Tracker:
    """The fetched, started and completed records of a partition."""

    def __init__(self) -> None:
        self.taken: dict[int, bool] = {}  # offset -> done, in offset order
        self.highest_begun = -1
        self.position: int | None = None
        self.closing = False
        self.committed: int | None = None
        # The results of records that are done and not committed, by offset.
        self.results: dict[int, tuple[bytes | None, bytes]] = {}

    @property
    def commit_point(self) -> int | None:
        """The first offset that is not done."""
        while self.taken:
            offset = next(iter(self.taken))
            if not self.taken[offset]:
                return offset
            del self.taken[offset]
        return self.position

    @property
    def drained(self) -> bool:
        """Whether all started records are done."""
        return all(done or offset > self.highest_begun for offset, done in self.taken.items())

    def close(self) -> None:
        """Start no more records, and drop those that were not started."""
        self.closing = True
        for offset in [offset for offset in self.taken if offset > self.highest_begun]:
            del self.taken[offset]
            self.position = min(offset, self.position or offset)


class AiokafkaMember:
    """The consumer, its queues of records by key, and its trackers."""

    def __init__(self, config: MemberConfig, log: HandlerLog) -> None:
        self._config = config
        self._log = log
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=config.bootstrap_servers,
            group_id=config.group,
            client_id=config.name,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            partition_assignment_strategy=(RangePartitionAssignor,),
            session_timeout_ms=int(config.session_timeout * 1000),
            heartbeat_interval_ms=int(config.heartbeat_interval * 1000),
            rebalance_timeout_ms=300_000,
            max_poll_records=MAX_POLL_RECORDS,
        )
        self._producer: AIOKafkaProducer | None = None
        if config.results is not None:
            self._producer = AIOKafkaProducer(
                bootstrap_servers=config.bootstrap_servers,
                transactional_id=f"{config.group}-{config.name}",
                transaction_timeout_ms=int(config.transaction_timeout * 1000),
            )
        self._turn = asyncio.Lock()
        self._decode = msgspec.json.Decoder(Order).decode
        self._slots = asyncio.Semaphore(config.concurrency)
        self._trackers: dict[TopicPartition, Tracker] = {}
        self._lanes: dict[
            tuple[TopicPartition, bytes | None], deque[tuple[Tracker, ConsumerRecord]]
        ] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()
        self._in_flight = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Consume until ``stop`` is set, then drain, commit and leave."""
        self._consumer.subscribe([self._config.topic], listener=self)
        await self._consumer.start()
        if self._producer is not None:
            await self._producer.start()
        try:
            committing = asyncio.create_task(self._commit_regularly())
            polling = asyncio.create_task(self._poll())
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait({polling, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in (polling, stopping, committing):
                task.cancel()
            results = await asyncio.gather(polling, stopping, committing, return_exceptions=True)
            for result in results:
                if isinstance(result, Exception):
                    raise result
            await self._release(list(self._trackers))
        finally:
            await self._consumer.stop()
            if self._producer is not None:
                await self._producer.stop()

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Drain and commit before the member rejoins."""
        await self._release(list(revoked))

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Begin to track the new assignment."""
        self._trackers = {partition: Tracker() for partition in assigned}
        self._log.assigned(partition.partition for partition in self._trackers)

    async def _poll(self) -> None:
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._in_flight < self._config.max_in_flight)
            batches = await self._consumer.getmany(timeout_ms=POLL_TIMEOUT_MS)
            for partition, records in batches.items():
                tracker = self._trackers.get(partition)
                if tracker is None or tracker.closing:
                    continue  # the next owner fetches these records again
                for record in records:
                    tracker.taken[record.offset] = False
                    tracker.position = record.offset + 1
                    self._in_flight += 1
                    self._submit(partition, tracker, record)

    def _submit(self, partition: TopicPartition, tracker: Tracker, record: ConsumerRecord) -> None:
        key = (partition, record.key)
        lane = self._lanes.get(key)
        if lane is not None:
            lane.append((tracker, record))
            return
        self._lanes[key] = deque([(tracker, record)])
        task = asyncio.create_task(self._serve(key))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, key: tuple[TopicPartition, bytes | None]) -> None:
        lane = self._lanes[key]
        while lane:
            async with self._slots:
                tracker, record = lane.popleft()
                if record.offset in tracker.taken:
                    tracker.highest_begun = max(tracker.highest_begun, record.offset)
                    await self._handle(tracker, record)
                    tracker.taken[record.offset] = True
            self._in_flight -= 1
            async with self._changed:
                self._changed.notify_all()
        del self._lanes[key]

    async def _handle(self, tracker: Tracker, record: ConsumerRecord) -> None:
        order = self._decode(record.value or b"")
        with self._log.handling(record.topic, record.partition, record.offset, record.key):
            await asyncio.sleep(order.seconds)
        if self._producer is not None:
            invoice = Invoice(record.partition, record.offset, order.customer)
            tracker.results[record.offset] = record.key, msgspec.json.encode(invoice)

    async def _release(self, partitions: list[TopicPartition]) -> None:
        closing = [
            self._trackers[partition] for partition in partitions if partition in self._trackers
        ]
        if not closing:
            return
        self._log.draining(len(closing))
        for tracker in closing:
            tracker.close()
        async with self._changed:
            await self._changed.wait_for(lambda: all(tracker.drained for tracker in closing))
        await self._commit()
        for partition in partitions:
            self._trackers.pop(partition, None)
        self._log.draining(0)
        self._log.released(partition.partition for partition in partitions)

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._config.commit_interval)
            if not any(tracker.closing for tracker in self._trackers.values()):
                await self._commit()

    async def _commit(self) -> None:
        async with self._turn:
            await self._commit_points()

    async def _commit_points(self) -> None:
        points = {
            partition: point
            for partition, tracker in self._trackers.items()
            if (point := tracker.commit_point) is not None and point != tracker.committed
        }
        if not points:
            return
        try:
            if self._producer is None:
                await self._consumer.commit(points)
            else:
                await self._commit_results(self._producer, points)
        except (CommitFailedError, IllegalStateError):
            return  # the partitions have new owners, which handle these records again
        except KafkaError as error:
            if not error.retriable:
                raise
            return
        for partition, point in points.items():
            if partition in self._trackers:
                tracker = self._trackers[partition]
                tracker.committed = point
                for offset in [offset for offset in tracker.results if offset < point]:
                    del tracker.results[offset]

    async def _commit_results(
        self, producer: AIOKafkaProducer, points: dict[TopicPartition, int]
    ) -> None:
        async with producer.transaction():
            for partition, point in points.items():
                results = self._trackers[partition].results
                for offset in sorted(offset for offset in results if offset < point):
                    key, value = results[offset]
                    await producer.send(self._config.results, value, key=key)
            await producer.send_offsets_to_transaction(points, self._config.group)


ConsumerRebalanceListener.register(AiokafkaMember)


async def run(config: MemberConfig, log: HandlerLog) -> None:
    """Handle orders until SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await AiokafkaMember(config, log).run(stop)
