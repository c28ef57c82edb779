"""Compares the results that a reader with ``read_committed`` sees with the input records.

The terms, for a record *r* of the input whose handlers publish one result for each record:

- *missing*: no result of r is visible.
- *doubled*: more than one result of r is visible.
- *out of order*: a result of r follows, in its partition, a result of a later record with the same
  partition and key.

The reader is aiokafka's, without a group, so that this library does not judge itself.
"""

# aiokafka has types in parts.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition

from asyncrevoke.cli.demo.group_result import RecordId, VisibleResults
from asyncrevoke.cli.demo.workload import Invoice
from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from asyncrevoke.cli.demo.group_result import Produced

# Seconds without a further result after which all are read, if there is one for each record.
_QUIET: Final = 1.5
# The transaction of a killed member may be open until the coordinator aborts it.
_LONGEST: Final = 40.0
_STEP_MS: Final = 300


def judge(produced: Sequence[Produced], results: Iterable[Invoice]) -> VisibleResults:
    """Compare the records of a topic with the results, which are in the order of each partition."""
    if not produced:
        return VisibleResults(0, (), (), ())
    topic = produced[0].partition.topic
    counts: Counter[RecordId] = Counter()
    latest: dict[tuple[int, str], int] = {}
    out_of_order: set[RecordId] = set()
    for result in results:
        record = RecordId(TopicPartition(topic, result.partition), result.offset)
        counts[record] += 1
        key = result.partition, result.customer
        if result.offset < latest.get(key, -1):
            out_of_order.add(record)
        latest[key] = max(result.offset, latest.get(key, -1))
    records = {RecordId(record.partition, record.offset) for record in produced}
    doubled = sorted(record for record, count in counts.items() if count > 1)
    return VisibleResults(
        counts.total(),
        tuple(sorted(records - counts.keys())),
        tuple(doubled),
        tuple(sorted(out_of_order)),
    )


async def read_results(
    bootstrap_servers: str, topic: str, partitions: int, expected: int
) -> list[Invoice]:
    """The visible results of a topic, in the order of each partition.

    Reads until there are as many as ``expected`` and no other follows, or for 40 s. Raises
    KafkaError.
    """
    reader = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    decode = msgspec.json.Decoder(Invoice).decode
    found: list[Invoice] = []
    await reader.start()
    try:
        reader.assign([AioTopicPartition(topic, number) for number in range(partitions)])
        began = last = time.monotonic()
        while (now := time.monotonic()) < began + _LONGEST:
            if len(found) >= expected and now > last + _QUIET:
                break
            batches = await reader.getmany(timeout_ms=_STEP_MS)
            for records in batches.values():
                last = now
                found += [decode(record.value or b"") for record in records]
    finally:
        await reader.stop()
    return found
