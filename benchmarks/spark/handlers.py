"""The consumer that ``benchmarks.spark.replay`` replays."""

from __future__ import annotations

import asyncio
import os

from asyncrevoke import Consumer

SECONDS = float(os.environ.get("BENCHMARK_SECONDS", "0.005"))

consumer = Consumer(group_id="benchmark", concurrency=512)


@consumer.handler(pattern="benchmark|handover-.*")
async def handle(value: bytes) -> None:
    """Wait as for a database, or do nothing."""
    assert value
    if SECONDS:
        await asyncio.sleep(SECONDS)
