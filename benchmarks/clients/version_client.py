"""A consumer that reads a topic once and prints the CPU time of each record; run by ``versions``.

The first tenth of the records is not measured. While they are read, the process joins the group and
imports what it needs on first use, and a collection of all that was imported would take as long as
tens of thousands of records.

It uses the public API alone, so that it runs with any version of the library on ``PYTHONPATH``.

    python benchmarks/clients/version_client.py STYLE BOOTSTRAP TOPIC GROUP RECORDS
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time

from asyncrevoke import Consumer


class Stopwatch:
    """Takes the CPU time from a tenth of the records to the last one."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._warm_up = total // 10
        self._records = 0
        self._first = 0
        self._began = self._ended = 0.0
        self.finished = asyncio.Event()

    def add(self, records: int) -> None:
        """The consumer has so many more records."""
        self._records += records
        if not self._first and self._records >= self._warm_up:
            self._first = self._records
            gc.collect()
            self._began = time.process_time()
        if self._records >= self._total and not self.finished.is_set():
            self._ended = time.process_time()
            self.finished.set()

    def microseconds(self) -> float:
        """CPU time of each record after the first tenth."""
        return (self._ended - self._began) * 1e6 / (self._records - self._first)


async def _batches(bootstrap: str, topic: str, group: str, watch: Stopwatch) -> None:
    async with Consumer(topic, bootstrap_servers=bootstrap, group_id=group) as consumer:
        async for batch in consumer:
            size = 0
            for record in batch.records:
                size += len(record.value or b"")
            watch.add(len(batch.records))
            if watch.finished.is_set():
                consumer.stop()


async def _records(bootstrap: str, topic: str, group: str, watch: Stopwatch) -> None:
    async with Consumer(topic, bootstrap_servers=bootstrap, group_id=group) as consumer:
        async for _ in consumer.records():
            watch.add(1)
            if watch.finished.is_set():
                break


async def _handlers(bootstrap: str, topic: str, group: str, watch: Stopwatch) -> None:
    consumer = Consumer(bootstrap_servers=bootstrap, group_id=group, concurrency=64)

    @consumer.handler(topic)
    async def count(value: bytes) -> None:  # noqa: ARG001 - a handler that does nothing
        watch.add(1)

    async with consumer:
        await watch.finished.wait()


async def _waiting(bootstrap: str, topic: str, group: str, watch: Stopwatch) -> None:
    consumer = Consumer(bootstrap_servers=bootstrap, group_id=group, concurrency=512)

    @consumer.handler(topic)
    async def wait(value: bytes) -> None:  # noqa: ARG001 - a handler that awaits a response
        await asyncio.sleep(0.005)
        watch.add(1)

    async with consumer:
        await watch.finished.wait()


async def _results(bootstrap: str, topic: str, group: str, watch: Stopwatch) -> None:
    consumer = Consumer(
        bootstrap_servers=bootstrap, group_id=group, concurrency=64, max_in_flight=10_000
    )

    @consumer.handler(topic, publish_to=f"{topic}-results")
    async def publish(value: bytes) -> bytes:
        watch.add(1)
        return value

    async with consumer:
        await watch.finished.wait()


STYLES = {
    "batches": _batches,
    "records": _records,
    "handlers": _handlers,
    "waiting": _waiting,
    "results": _results,
}


async def _main(style: str, bootstrap: str, topic: str, group: str, records: str) -> None:
    watch = Stopwatch(int(records))
    async with asyncio.timeout(90):
        await STYLES[style](bootstrap, topic, group, watch)
    print(json.dumps({"microseconds": watch.microseconds()}))


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
