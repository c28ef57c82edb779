"""Journals of a share group, one member of which is killed, and their audit on a real broker."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from broker.handlers.share.share_topics import member, queue, until

from asyncrevoke import Record  # noqa: TC001 - handlers look at their annotations
from asyncrevoke.audit.audited_group import AuditSettings
from asyncrevoke.cli.audit import audit_topic
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.journal import Journal
from asyncrevoke.journal.reading import read_journal

if TYPE_CHECKING:
    from asyncrevoke.audit.results.audit_result import AuditResult
    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(110)]

COUNT = 1000
DEADLINE = 60.0


async def killed_member(servers: str, topic: str, folder: Path) -> None:
    """A member in another process that is killed while it works."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("journalled_queue.py")),
        *(servers, topic, str(folder)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE):
            for _ in range(300):
                assert await process.stdout.readline()
    finally:
        process.kill()
        await process.wait()


async def finish(broker: RunningBroker, topic: str, folder: Path | None) -> None:
    """Another member handles the rest, with a journal in this folder."""
    journal = None if folder is None else Journal(folder, strict=True)
    consumer = member(broker, topic, journal=journal)
    handled: set[int] = set()

    @consumer.handler(topic)
    async def handle(record: Record) -> None:
        handled.add(record.offset)

    async with consumer:
        await until(lambda: COUNT - 1 in handled)


async def audited(broker: RunningBroker, topic: str, folder: Path) -> AuditResult:
    config = ConsumerConfig(bootstrap_servers=broker.bootstrap_servers)
    return await audit_topic(folder, topic, config, topic, AuditSettings(), 5)


async def test_records_of_a_killed_member_are_delivered_again_and_none_is_lost(
    kafka_broker: RunningBroker, kafka_topic: str, tmp_path: Path
) -> None:
    topic = f"{kafka_topic}-queue"
    await queue(kafka_broker, topic, COUNT)
    await killed_member(kafka_broker.bootstrap_servers, topic, tmp_path)
    await finish(kafka_broker, topic, tmp_path)
    killed, ended = read_journal(tmp_path).sessions
    assert (killed.ended, ended.ended) == (False, True)
    result = await audited(kafka_broker, topic, tmp_path)
    kinds = {str(anomaly.kind) for anomaly in result.anomalies}
    assert (result.status, kinds - {"redelivery", "orphan"}) == ("PASS", set())
    assert result.done == COUNT
    assert result.group_offsets is not None
    assert result.group_offsets.offsets == {0: COUNT}


async def test_a_member_without_a_journal_leaves_the_audit_inconclusive(
    kafka_broker: RunningBroker, kafka_topic: str, tmp_path: Path
) -> None:
    topic = f"{kafka_topic}-queue"
    await queue(kafka_broker, topic, COUNT)
    await killed_member(kafka_broker.bootstrap_servers, topic, tmp_path)
    await finish(kafka_broker, topic, None)
    result = await audited(kafka_broker, topic, tmp_path)
    assert result.status == "INCONCLUSIVE"
    found = [a for a in result.anomalies if a.kind == "ended_elsewhere"]
    assert found[-1].offset_hi == COUNT - 1
