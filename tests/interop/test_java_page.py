"""Runs the Java code of the page about Java's listeners, on a real broker."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from asyncio.subprocess import PIPE
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import jgo
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from interop.assignor_cases import JAVA, KAFKA

from asyncrevoke import Consumer, TopicPartition
from asyncrevoke.broker.process.supervisor import die_with_parent

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncGenerator

    from asyncrevoke.broker import RunningBroker

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs/how-to/migrating/from-java-listeners.md"
CLIENTS = f"org.apache.kafka:kafka-clients:{KAFKA}"
JACKSON = "com.fasterxml.jackson.core:jackson-databind:2.19.0"
SPRING = f"org.springframework.kafka:spring-kafka:3.3.10+{JACKSON}"
PARALLEL = "io.confluent.parallelconsumer:parallel-consumer-core:0.5.3.3"
PARTITIONS = 4
RECORDS = 20
DEADLINE = 60.0

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(120),
    pytest.mark.kafka_topic(partitions=PARTITIONS),
    pytest.mark.skipif(shutil.which("javac") is None, reason="there is no JDK on PATH"),
]


def code_of_page(heading: str) -> str:
    """The indented block below a heading."""
    below = PAGE.read_text("utf-8").partition(f"\n## {heading}\n")[2]
    block = below[below.index("\n    ") :].partition("\n```")[0].splitlines()
    return "\n".join(line for line in block if not line or line.startswith("    "))


@asynccontextmanager
async def program(
    folder: Path, name: str, heading: str, artifacts: str, broker: RunningBroker, topic: str
) -> AsyncGenerator[Process]:
    """The program with the code of the page, which reads 20 records of this topic."""
    jars = await asyncio.to_thread(lambda: list(jgo.build(artifacts).all_jars))
    code = code_of_page(heading)
    for names in ('"orders"', '"billing"'):
        code = code.replace(names, f'"{topic}"')
    code = code.replace('"invoices"', f'"{topic}.invoices"')
    source = (HERE / "java" / f"{name}.java").read_text("utf-8")
    (folder / f"{name}.java").write_text(source.replace("// FRAGMENT", code), "utf-8")
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(RECORDS):
            value = b'{"id": %d, "amount": %d}' % (number, 10 * number)
            await producer.send_and_wait(topic, value, partition=number % PARTITIONS)
    process = await asyncio.create_subprocess_exec(
        *JAVA, "-cp", os.pathsep.join(map(str, jars)), str(folder / f"{name}.java"),
        broker.bootstrap_servers, topic,
        stdin=PIPE, stdout=PIPE,
        preexec_fn=die_with_parent if sys.platform == "linux" else None,
    )  # fmt: skip
    try:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), DEADLINE) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def until_committed(broker: RunningBroker, topic: str) -> None:
    """Until all records are committed for the group with the topic's name."""
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    async with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id=topic) as reader:
        async with asyncio.timeout(DEADLINE):
            while True:
                found = await reader.committed(*partitions)
                if (
                    sum(candidate.offset for candidate in found.values() if candidate is not None)
                    == RECORDS
                ):
                    return
                await asyncio.sleep(0.1)


async def test_the_listener_of_the_page_saves_and_commits_what_it_has_read(
    tmp_path: Path, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    heading = "A listener that saves state"
    async with program(
        tmp_path, "ListenerPage", heading, CLIENTS, kafka_broker, kafka_topic
    ) as java:
        assert java.stdout is not None
        saved = (await java.stdout.read()).decode().splitlines()
    assert saved == [f"saved {RECORDS // PARTITIONS}"] * PARTITIONS
    await until_committed(kafka_broker, kafka_topic)


async def test_spring_on_the_page_sends_an_invoice_for_each_order(
    tmp_path: Path, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    invoices = f"{kafka_topic}.invoices"
    kafka_broker.create_topic(invoices, PARTITIONS)
    async with program(
        tmp_path, "SpringPage", "`@KafkaListener`", SPRING, kafka_broker, kafka_topic
    ):
        await until_committed(kafka_broker, kafka_topic)
    reader = AIOKafkaConsumer(
        invoices,
        bootstrap_servers=kafka_broker.bootstrap_servers,
        group_id=None,
        auto_offset_reset="earliest",
    )
    async with reader, asyncio.timeout(DEADLINE):
        values: set[object] = {(await anext(reader)).value for _ in range(RECORDS)}
    assert b'{"order":4,"total":50.0}' in values
    assert len(values) == RECORDS


async def test_the_parallel_consumer_on_the_page_charges_each_order(
    tmp_path: Path, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    async with program(
        tmp_path, "ParallelPage", "Parallel Consumer", PARALLEL, kafka_broker, kafka_topic
    ) as java:
        assert java.stdout is not None
        async with asyncio.timeout(DEADLINE):
            charged = {await java.stdout.readline() for _ in range(RECORDS)}
        await until_committed(kafka_broker, kafka_topic)
    assert len(charged) == RECORDS
