"""Sync handlers in worker processes, against a real Apache Kafka."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from broker.handlers.blocking_work import FOLDER, append
from broker.handlers.test_handlers_on_a_real_broker import SOON, HandlerTopic, until

from asyncrevoke import Consumer

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.broker import RunningBroker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(60),
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs the signals of POSIX"),
]
COUNT = 60


async def test_a_killed_worker_process_loses_nothing_and_keeps_the_order_of_keys(
    kafka_broker: RunningBroker, kafka_topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    kafka = HandlerTopic(kafka_broker, kafka_topic)
    await kafka.produce(COUNT)
    consumer = Consumer(**kafka.options())
    consumer.handler(kafka.topic, run_in="process", retry=SOON)(append)

    def noted() -> dict[int, list[int]]:
        files = {key: tmp_path / f"key-{key}" for key in range(7)}
        # Whole lines: a process may be writing the last one.
        return {
            key: [int(line) for line in file.read_text().split("\n")[:-1]]
            for key, file in files.items()
            if file.exists()
        }

    async with consumer:
        await until(lambda: sum(map(len, noted().values())) == COUNT)
        consumer.stop()
    assert noted() == {key: list(range(key, COUNT, 7)) for key in range(7)}
    assert (tmp_path / "killed").exists()
    assert await kafka.committed() == COUNT
