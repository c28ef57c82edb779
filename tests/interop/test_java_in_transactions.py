"""Members with processing="exactly_once" beside Java: a transactional member of the same group, and
the console consumer as the reader of the results."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import jgo
import pytest
from broker.handlers.test_handlers_on_a_real_broker import until
from broker.requests.read_committed import PARTITIONS, read_committed
from confluent_kafka import Producer as ConfluentProducer
from interop.assignor_cases import KAFKA
from interop.other_process import java_command, process_of, start_process

from asyncrevoke import Consumer, Record, TopicPartition
from asyncrevoke.broker import KafkaBroker
from asyncrevoke.broker.installation.jars import class_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractAsyncContextManager

    from asyncrevoke.broker import RunningBroker

RECORDS = 2000
TOOLS = f"org.apache.kafka:kafka-tools:{KAFKA}"
PROGRAM = Path(__file__).parent / "java" / "TransactionalMember.java"

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    properties = {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        "group.consumer.session.timeout.ms": "3000",
    }
    with KafkaBroker(properties=properties) as broker:
        yield broker


class JavaTransactions:
    """A process of TransactionalMember.java; ``committed`` records are in its transactions."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.committed = 0

    async def read(self) -> None:
        """Take in what it prints, until it ends."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.committed += int(line)

    async def leave(self) -> None:
        """Let it close its consumer and end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert await self.process.wait() == 0


def java_transactions(
    broker: RunningBroker, topic: str, protocol: str
) -> AbstractAsyncContextManager[JavaTransactions]:
    arguments = (str(PROGRAM), broker.bootstrap_servers, topic, f"{topic}-out", topic, protocol)
    return process_of(JavaTransactions, *java_command(class_path(), *arguments))


async def read_by_java(broker: RunningBroker, topic: str) -> Counter[bytes]:
    """The first values that the console consumer reads with read_committed."""
    jars = await asyncio.to_thread(lambda: list(jgo.build(TOOLS).all_jars))
    command = java_command(
        os.pathsep.join(map(str, jars)),
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--from-beginning"),
        *("--isolation-level", "read_committed", "--timeout-ms", "40000"),
        *("--max-messages", str(RECORDS)),
    )
    process = await start_process(*command)
    output, _ = await process.communicate()
    return Counter(output.split())


def write(broker: RunningBroker, topic: str, numbers: range) -> None:
    producer = ConfluentProducer({"bootstrap.servers": broker.bootstrap_servers})
    for number in numbers:
        producer.produce(topic, b"%d" % number, key=b"k%d" % (number % 50))
    assert producer.flush(30) == 0


async def committed_records(consumer: Consumer, topic: str) -> int:
    """How many records the group has committed, which have one offset each."""
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    committed = await consumer.committed(*partitions)
    return sum(found.offset for found in committed.values() if found is not None)


@pytest.mark.parametrize(
    ("protocol", "end"),
    [
        ("classic", "leaves"),
        ("consumer", "is killed"),
        pytest.param("classic", "is killed", marks=pytest.mark.variant),
        pytest.param("consumer", "leaves", marks=pytest.mark.variant),
    ],
)
async def test_java_reads_each_result_once_beside_a_transactional_java_member(
    broker: KafkaBroker, protocol: Literal["classic", "consumer"], end: str
) -> None:
    topic = f"java-{protocol}-{end.replace(' ', '-')}"
    for name in (topic, f"{topic}-out"):
        broker.create_topic(name, PARTITIONS)
    rng = random.Random(3)
    handled: set[int] = set()
    metadata: set[str] = set()
    consumer = Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id=topic,
        group_protocol=protocol,
        processing="exactly_once",
        transaction_interval=0.02,
        heartbeat_interval=0.3,
    )

    @consumer.handler(topic, publish_to=f"{topic}-out")
    async def handle(record: Record) -> bytes | None:
        await asyncio.sleep(0.05 if rng.random() < 0.1 else rng.random() * 0.002)
        handled.add(int(record.value or b""))
        return record.value

    write(broker, topic, range(RECORDS // 2))
    running = asyncio.create_task(consumer.run())
    await until(lambda: len(handled) > 200)
    async with java_transactions(broker, topic, protocol) as java:
        await until(lambda: 0 < len(consumer.assignment()) < PARTITIONS)
        write(broker, topic, range(RECORDS // 2, RECORDS))
        await until(lambda: java.committed > 100)
        committed = await consumer.committed(*consumer.assignment())
        metadata |= {found.metadata for found in committed.values() if found is not None}
        if end == "leaves":
            await java.leave()
        else:
            java.process.kill()
            await java.process.wait()
        async with asyncio.timeout(60):
            while await committed_records(consumer, topic) < RECORDS:  # noqa: ASYNC110 - the broker's
                await asyncio.sleep(0.1)
    consumer.stop()
    await running
    assert metadata == {""}, "the other member does not read completion maps"
    each_once = Counter(b"%d" % number for number in range(RECORDS))
    assert await read_by_java(broker, f"{topic}-out") == each_once
    assert read_committed(broker, f"{topic}-out") == each_once
