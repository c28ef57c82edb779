"""Batches whose handlers run until the test ends them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from unit.handlers.scripted_runner import RunningHandlers, running
from unit.handlers.scripted_source import record

from asyncrevoke.client.model import Record  # noqa: TC001
from asyncrevoke.handlers.policy.retry import Retry

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from asyncrevoke.client.model import TopicPartition


BOOM = ValueError("boom")


RETRY = Retry(attempts=3, backoff=1, jitter=0)


class HeldBatches:
    """Calls with batches that end when the test says so."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.records: list[list[Record]] = []
        self.cancelled: list[list[int]] = []
        self._holds: dict[int, tuple[list[Record], asyncio.Future[None]]] = {}

    @property
    def running(self) -> list[list[int]]:
        return [[each.offset for each in records] for records, _ in self._holds.values()]

    @property
    def partitions(self) -> list[TopicPartition]:
        return [records[0].topic_partition for records, _ in self._holds.values()]

    async def __call__(self, records: list[Record]) -> None:
        offsets = [each.offset for each in records]
        self.calls.append(offsets)
        self.records.append(records)
        hold: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._holds[id(hold)] = records, hold
        try:
            await hold
        except asyncio.CancelledError:
            self.cancelled.append(offsets)
            raise
        finally:
            del self._holds[id(hold)]

    def end(
        self, error: BaseException | None = None, partition: TopicPartition | None = None
    ) -> None:
        for records, hold in list(self._holds.values()):
            if partition in (None, records[0].topic_partition) and not hold.done():
                if error is None:
                    hold.set_result(None)
                else:
                    hold.set_exception(error)

    def fail_first(self, error: BaseException) -> None:
        """Of the running calls, the first one fails."""
        _, hold = next(iter(self._holds.values()))
        hold.set_exception(error)


def batching(work: HeldBatches, **options: Any) -> AbstractAsyncContextManager[RunningHandlers]:
    async def handle(values: list[bytes], records: list[Record]) -> None:
        assert values == [each.value for each in records]
        await work(records)

    return running(handle, batch=True, **{"max_records": 3, "max_wait": 1.0, **options})


def some(*offsets: int, **more: Any) -> list[Record]:
    return [record(offset, b"%d" % offset, **more) for offset in offsets]
