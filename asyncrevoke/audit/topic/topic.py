"""Reads the topic with aiokafka, so that the audit does not depend on the audited consumer."""

from __future__ import annotations

import asyncio
import gc
from array import array
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from aiokafka import TopicPartition
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from asyncrevoke.audit.comparison import Bounds, Range
from asyncrevoke.audit.errors import TopicError, nothing_beyond
from asyncrevoke.audit.topic.batch_reader import read_headers
from asyncrevoke.config.security import client_options
from asyncrevoke.errors import ConfigError
from asyncrevoke.journal.format.arrow import Array, RecordBatch, Table, pa
from asyncrevoke.journal.format.hashing import key_hashes, record_hashes, signed_key_hashes
from asyncrevoke.model import TopicPartition as Partition
from asyncrevoke.printable import shown_option
from asyncrevoke.runtime.net.kafka_clients import kafka_admin, kafka_consumer

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from typing import Self

    from asyncrevoke.config import ConsumerConfig

_FETCH = 8 * 2**20
# Records of one call: the garbage collector makes longer lists slower.
_RECORDS = 2000
# Allocations between two runs of the garbage collector.
_GARBAGE = 50_000


class Topic:
    """Reads one topic, inside ``async with``; fails after ``no_progress_timeout`` seconds without
    progress. ``isolation_level`` should be that of the consumers."""

    has_batches = True

    def __init__(
        self,
        name: str,
        config: ConsumerConfig,
        *,
        isolation_level: Literal["read_committed", "read_uncommitted"],
        no_progress_timeout: float = 30.0,
    ) -> None:
        self._name = name
        self._no_progress_timeout = no_progress_timeout
        self._config = replace(config, isolation_level=isolation_level)
        self._consumer: Any = None
        self.bounds: Mapping[int, Bounds] = {}
        self.compacted = False

    async def __aenter__(self) -> Self:
        self._consumer = kafka_consumer(
            **client_options(self._config),
            group_id=None,
            isolation_level=self._config.isolation_level,
            auto_offset_reset="none",
            enable_auto_commit=False,
            max_partition_fetch_bytes=_FETCH,
            fetch_max_bytes=4 * _FETCH,
        )
        try:
            await self._consumer.start()
            await self._look()
        except KafkaError as error:
            await self._consumer.stop()
            raise TopicError(f"{self._name} cannot be read: {error}") from error
        except BaseException:
            await self._consumer.stop()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._consumer.stop()

    async def _look(self) -> None:
        admin = kafka_admin(**client_options(self._config))
        await admin.start()
        try:
            (described,) = await admin.describe_topics([self._name])
            self.compacted = await _compacts(admin, self._name)
        finally:
            await admin.close()
        numbers = sorted(each["partition"] for each in described["partitions"])
        if not numbers:
            raise ConfigError(
                f"the broker has no topic {shown_option(self._name)}, or it may not be described"
            )
        partitions = [TopicPartition(self._name, number) for number in numbers]
        self._consumer.assign(partitions)
        lows = await self._consumer.beginning_offsets(partitions)
        highs = await self._consumer.end_offsets(partitions)
        self.bounds = {tp.partition: Bounds(lows[tp], highs[tp]) for tp in partitions}

    async def read(self, ranges: Sequence[Range], take: Callable[[Table], None]) -> None:
        """See :class:`~asyncrevoke.audit.local_engine.AuditedTopic`."""
        left: dict[int, list[Range]] = {}
        for each in sorted(ranges):
            left.setdefault(each.partition, []).append(each)
        with _fewer_collections():
            while left:
                # One range of each partition at a time: a seek in between is cheap.
                await self._read([of_one.pop(0) for of_one in left.values()], take)
                left = {partition: of_one for partition, of_one in left.items() if of_one}

    async def batches(self, ranges: Sequence[Range], take: Callable[[RecordBatch], None]) -> None:
        """See :class:`~asyncrevoke.audit.local_engine.AuditedTopic`."""
        await read_headers(
            self._config, self._name, ranges, take, no_progress_timeout=self._no_progress_timeout
        )

    async def _read(self, ranges: Sequence[Range], take: Callable[[Table], None]) -> None:
        consumer, loop = self._consumer, asyncio.get_running_loop()
        ends = {TopicPartition(self._name, r.partition): r.hi for r in ranges}
        consumer.assign(list(ends))
        for each in ranges:
            consumer.seek(TopicPartition(self._name, each.partition), each.lo)
        progress = loop.time()
        positions = {TopicPartition(self._name, r.partition): r.lo for r in ranges}
        while ends:
            got = await consumer.getmany(*ends, timeout_ms=200, max_records=_RECORDS)
            for tp, records in got.items():
                wanted = records
                if records and records[-1].offset >= ends[tp]:
                    wanted = [record for record in records if record.offset < ends[tp]]
                if wanted:
                    take(_table(tp.partition, wanted))
            for tp in list(ends):
                position = await consumer.position(tp)
                if position > positions[tp]:
                    positions[tp], progress = position, loop.time()
                if position >= ends[tp]:
                    consumer.pause(tp)
                    del ends[tp]
            if ends and loop.time() - progress > self._no_progress_timeout:
                tp, end = next(iter(ends.items()))
                raise nothing_beyond(Partition(*tp), positions[tp], end)


@contextmanager
def _fewer_collections() -> Generator[None]:
    """Run the garbage collector less often: the records have no cycles, and by default collections
    take a quarter of the time of reading."""
    before = gc.get_threshold()
    if before[0]:
        gc.set_threshold(max(before[0], _GARBAGE), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


async def is_compacted(name: str, config: ConsumerConfig) -> bool:
    """Whether the topic is compacted."""
    admin = kafka_admin(**client_options(config))
    await admin.start()
    try:
        return await _compacts(admin, name)
    finally:
        await admin.close()


async def _compacts(admin: Any, name: str) -> bool:  # noqa: ANN401 - half typed
    (configured,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
    return any(
        option == "cleanup.policy" and "compact" in value
        for option, value, *_ in configured.resources[0][4]
    )


def _table(partition: int, records: list[Any]) -> Table:
    keys = [record.key for record in records]
    of_keys = key_hashes(keys)
    hashes = record_hashes(keys, [record.value for record in records], of_keys)
    return pa.table(
        {
            "part": pa.repeat(pa.scalar(partition, pa.int32()), len(records)),
            "off": _longs(array("q", [record.offset for record in records])),
            "timestamp_us": _longs(array("q", [record.timestamp * 1000 for record in records])),
            "key_hash": pa.array(signed_key_hashes(keys), pa.int64())
            if of_keys is None
            else _longs(array("Q", of_keys)),
            "record_hash": _longs(hashes),
        }
    )


def _longs(numbers: array[int]) -> Array:
    """An Arrow array over these numbers, not copied; unsigned ones become signed."""
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])
