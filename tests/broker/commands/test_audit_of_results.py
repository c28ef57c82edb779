"""asyncrevoke audit --results on a real broker: it passes a right run of a member with exactly-once
results, and names what members with injected faults have done."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from typer.testing import CliRunner

from asyncrevoke import Consumer, Producer, Record
from asyncrevoke.broker import RunningBroker
from asyncrevoke.cli.app import app
from asyncrevoke.client.errors import TransactionError
from asyncrevoke.client.producing.exactly_once.record_transactions import RecordTransactions
from asyncrevoke.client.producing.record_producer import RecordProducer
from asyncrevoke.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from asyncrevoke.client.producing.message import PublishedRecord
    from asyncrevoke.client.producing.transactions.group_offsets import GroupOffsets
    from asyncrevoke.client.producing.transactions.transaction import PlacedRecord

    Written = Callable[[Iterable[PlacedRecord]], None] | None

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

COUNT = 60


class Run(NamedTuple):
    """An input topic, a topic of results, and the journal of their consumer."""

    broker: RunningBroker
    topic: str
    output: str
    folder: Path

    async def write(self, topic: str, count: int) -> None:
        async with Producer(bootstrap_servers=self.broker.bootstrap_servers) as producer:
            for number in range(count):
                await producer.publish(topic, b"%d" % number, key=b"%d" % (number % 7))

    async def consume(self, count: int = COUNT) -> None:
        """Handle so many records, each in a transaction with few others."""
        consumer = Consumer(
            bootstrap_servers=self.broker.bootstrap_servers,
            group_id=self.topic,
            processing="exactly_once",
            transaction_interval=0.02,
            journal=Journal(self.folder, strict=True),
        )
        handled: set[tuple[int, int]] = set()

        @consumer.handler(self.topic, publish_to=self.output)
        async def bill(record: Record) -> bytes | None:
            await asyncio.sleep(0.01)
            handled.add((record.partition, record.offset))
            if len(handled) == count:
                consumer.stop()
            return record.value

        await consumer.run()

    def audit(self) -> tuple[int, dict[str, Any]]:
        """The exit code, and the result as JSON."""
        arguments = [
            *("audit", str(self.folder), "--topic", self.topic, "--results", self.output),
            *("--bootstrap-servers", self.broker.bootstrap_servers, "--json"),
        ]
        invoked = CliRunner().invoke(app, arguments)
        return invoked.exit_code, json.loads(invoked.stdout)


@pytest.fixture
async def run(kafka_broker: RunningBroker, tmp_path: Path) -> Run:
    name = f"audited-{uuid.uuid4().hex[:8]}"
    run = Run(kafka_broker, name, f"{name}-out", tmp_path / "journal")
    for topic in (run.topic, run.output):
        kafka_broker.create_topic(topic, 3)
    await run.write(run.topic, COUNT)
    return run


def kinds(result: dict[str, Any]) -> Counter[str]:
    """How many records have each kind of anomaly."""
    found: Counter[str] = Counter()
    for anomaly in result["anomalies"]:
        found[anomaly["kind"]] += anomaly["offset_hi"] - anomaly["offset_lo"] + 1
    return found


async def audited(run: Run) -> tuple[int, dict[str, Any]]:
    return await asyncio.to_thread(run.audit)


async def test_a_right_run_passes(run: Run) -> None:
    await run.consume()
    code, result = await audited(run)
    assert (code, result["status"], result["anomalies"]) == (0, "PASS", [])
    assert result["results"] == [{"topic": run.output, "visible": COUNT, "written": COUNT}]
    assert result["done"] == COUNT


async def test_a_record_that_no_journal_names_leaves_it_inconclusive(run: Run) -> None:
    await run.consume()
    await run.write(run.output, 1)
    code, result = await audited(run)
    assert (code, kinds(result)) == (3, {"result_unaccounted": 1})


async def test_results_that_are_committed_twice_are_named(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = RecordProducer.commit_transaction
    again: list[int] = []

    async def commit_twice(
        producer: RecordProducer,
        records: Sequence[PublishedRecord],
        offsets: GroupOffsets | None = None,
        written: Written = None,
    ) -> None:
        await commit(producer, records, offsets, written)
        if records and not again:
            again.append(len(records))
            # As if the first one had been taken for an abort.
            await commit(producer, records, None, written)

    monkeypatch.setattr(RecordProducer, "commit_transaction", commit_twice)
    await run.consume()
    code, result = await audited(run)
    assert (code, kinds(result)) == (1, {"result_doubled": again[0]})
    assert all(len(a["evidence"]["results"]) >= 2 for a in result["anomalies"])


def abort_transactions(monkeypatch: pytest.MonkeyPatch, *, most: int) -> list[int]:
    """Abort the first transactions with results, ``most`` of them, when the results are written;
    the list gets how many results each has."""
    commit = RecordProducer.commit_transaction
    aborted: list[int] = []

    async def abort_one(
        producer: RecordProducer,
        records: Sequence[PublishedRecord],
        offsets: GroupOffsets | None = None,
        written: Written = None,
    ) -> None:
        def then_abort(placed: Iterable[PlacedRecord]) -> None:
            assert written is not None
            written(placed)
            if len(aborted) < most:
                aborted.append(len(records))
                abort = producer.abort_transaction
                asyncio.get_running_loop().call_soon(abort, TransactionError("injected"))

        await commit(producer, records, offsets, then_abort)

    monkeypatch.setattr(RecordProducer, "commit_transaction", abort_one)
    return aborted


async def test_results_of_an_abort_that_was_taken_for_a_commit_are_named(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped = abort_transactions(monkeypatch, most=1)

    def take_for_committed(
        transactions: RecordTransactions, _outcome: str, composed: Any, *_: object, **_options: bool
    ) -> None:
        transactions._committed(composed)

    monkeypatch.setattr(RecordTransactions, "_aborted", take_for_committed)
    await run.consume()
    code, result = await audited(run)
    assert (code, kinds(result)) == (1, {"result_missing": dropped[0]})


async def test_an_aborted_transaction_that_is_done_again_passes(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    aborted = abort_transactions(monkeypatch, most=3)
    await run.consume()
    code, result = await audited(run)
    assert (code, result["anomalies"]) == (0, [])
    ((compared),) = result["results"]
    assert compared["visible"] == COUNT
    assert compared["written"] >= COUNT + sum(aborted)
