"""What a journal costs a record on its way through the handlers, in CPU, without a broker.

    python -m benchmarks.costs.journal [--turns T] [--records N]

Batches as a broker sends them are decoded and given to handlers, which await nothing or the next
turn of the event loop. With a journal and without one take turns in one process; the threads of the
journal count, and the flush at the end, but not sealing. What fetching and committing cost is
not in it: ``benchmarks.handlers`` has all.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from asyncrevoke import PollResult, Record, Router, TopicPartition
from asyncrevoke.client.model import GroupMetadata
from asyncrevoke.client.protocol.messages import ErrorCode, FetchedPartition
from asyncrevoke.client.protocol.records import decode_batches
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.handlers.execution.runner_context import RunnerContext
from asyncrevoke.handlers.runner import HandlerRunner
from asyncrevoke.journal import Journal
from benchmarks.costs.observer import KEYS, PARTITIONS, POLL, InMemory
from benchmarks.report.surroundings import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncrevoke.client.core.core import Core
    from asyncrevoke.client.protocol.records import RecordDecoder
    from asyncrevoke.client.runtime.hooks.recorders import SessionRecorder
    from asyncrevoke.handlers.scheduling.record_source import RecordSource
    from asyncrevoke.journal.format.schema import Content

SIZE = 100
_FACTS = {"group": "benchmark", "commit_mode": "processed"}
_CONTENTS: dict[str, Content | None] = {
    "content by batches": "batches",
    "content by records": "records",
    "no content": None,
}


class Nobody:
    """What a journal asks of a membership."""

    def group_metadata(self) -> GroupMetadata:
        """Nothing."""
        return GroupMetadata("benchmark")

    def position(self, partition: TopicPartition) -> int | None:  # noqa: ARG002
        """Nothing."""
        return None


def encoded(records: int) -> list[tuple[int, bytes]]:
    """Partitions and batches, keys by chance."""
    chance = random.Random(1)
    offsets = [0] * PARTITIONS
    found: list[tuple[int, bytes]] = []
    for _ in range(records // POLL):
        partition = chance.randrange(PARTITIONS)
        builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 2**20)
        for number in range(POLL):
            key = b"key-%d" % chance.randrange(KEYS)
            builder.append(number, 0, key, chance.randbytes(SIZE), [])
        batch = bytearray(builder.build())
        batch[:8] = offsets[partition].to_bytes(8, "big")
        offsets[partition] += POLL
        found.append((partition, bytes(batch)))
    return found


def decoded(data: list[tuple[int, bytes]], decode: RecordDecoder) -> Iterator[PollResult]:
    """As they are asked for."""
    for partition, batch in data:
        where = TopicPartition("plain", partition)
        (found,) = decode(
            FetchedPartition(partition=where, error=ErrorCode.none, records=batch), True
        )
        records = found.decode("plain", partition, partition, 0)
        yield PollResult({where: records})


class FailsMeasurement:
    """Ends the measurement if the journal cannot be written."""

    def fail(self, cause: BaseException) -> None:
        """Raise it."""
        raise cause


async def turn(
    data: list[tuple[int, bytes]], folder: Path | None, waits: bool, *, content: Content | None
) -> float:
    """Handle all of it; the CPU that it took, in microseconds a record."""
    router, log = Router(), EventLog()

    @router.handler("plain")
    async def each(_record: Record) -> None:
        if waits:
            await asyncio.sleep(0)

    recorder: SessionRecorder | None = None
    decode: RecordDecoder = decode_batches
    if folder is not None:
        journal = Journal(folder, segment_bytes=2**32, segment_seconds=9e9, content=content)
        recorder = journal.begin(_FACTS, wall_clock=None)
        decode = recorder.decoder(decode)
        recorder.session_opened(cast("Core", Nobody()), FailsMeasurement().fail)
        await recorder.flush()
    source = cast("RecordSource", InMemory(decoded(data, decode), None))
    runner = HandlerRunner(
        source, router, RunnerContext(concurrency=64, log=log, recorder=recorder)
    )
    gc.collect()
    began = time.process_time()
    await runner.run()
    if recorder is not None:
        await recorder.flush()
    took = (time.process_time() - began) / (len(data) * POLL) * 1e6
    if recorder is not None:
        await recorder.aclose()
    return took


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What a journal costs a record, in CPU.")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--records", type=int, default=100_000)
    options = parser.parse_args()
    data = encoded(options.records)
    rows: list[list[str]] = []
    for waits, name in ((False, "handlers that await nothing"), (True, "that await a turn")):
        found: dict[str, list[float]] = {name: [] for name in ("", *_CONTENTS)}
        for _ in range(options.turns):
            for what, took in found.items():
                with tempfile.TemporaryDirectory() as at:
                    content = _CONTENTS.get(what)
                    folder = Path(at) if what else None
                    took.append(asyncio.run(turn(data, folder, waits, content=content)))
        without = found.pop("")
        for what, took in found.items():
            more = statistics.median(took) - statistics.median(without)
            ratio = statistics.median(a / b for a, b in zip(took, without, strict=True))
            rows.append(
                [
                    f"{name}: {what}",
                    f"{statistics.median(without):.3f}",
                    f"{more:+.3f}",
                    f"{min(took) - min(without):+.3f}",
                    f"{ratio:.2f}",
                ]
            )
    print(table(["µs of CPU a record", "without", "a journal", "least", "ratio"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
