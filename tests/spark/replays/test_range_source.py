"""Handlers on a range, without Kafka and without Spark."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pydantic
import pytest

from asyncrevoke import BatchError, Consumer, HandlerContext, Message, Record, Retry
from asyncrevoke.client.columns.arrow import pa
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.replays.errors import ReplayError
from asyncrevoke.replays.opened_handlers import Errors, with_errors
from asyncrevoke.replays.range_source import RangeSource
from asyncrevoke.replays.result_rows import ResultRows, Row, encode_result

if TYPE_CHECKING:
    from collections.abc import Sequence

ORDERS = TopicPartition("orders", 0)


async def run(
    consumer: Consumer, values: list[bytes | None], errors: Errors = "record", at_once: int = 3
) -> dict[int, Row]:
    """The rows by offset of a range with these values."""
    from asyncrevoke.handlers.execution.runner_context import RunnerContext
    from asyncrevoke.handlers.runner import HandlerRunner

    log = EventLog()
    router = consumer.handler_host.router
    assert router is not None
    outcomes = ResultRows(log, "error" if errors == "record" else "skipped")
    given = [Record("orders", 0, n, 0, 0, b"k", value) for n, value in enumerate(values)]

    async def read() -> Sequence[Record]:
        await asyncio.sleep(0)
        taken, given[:] = given[:at_once], given[at_once:]
        return taken

    source = RangeSource(ORDERS, read, outcomes, max_in_flight=4)
    config = consumer.config
    host = consumer.handler_host
    async with host.open_resources() as state, host.open_worker_resources(state, log) as workers:
        context = RunnerContext(
            concurrency=config.concurrency,
            log=outcomes,
            order_by=config.order_by,
            max_in_flight=4,
            state=state,
            worker_resources=workers,
            call_recorder=outcomes,
        )
        runner = HandlerRunner(source, with_errors(router, errors), context)
        async with asyncio.timeout(20):
            await runner.run()
    assert source.finished
    quick, rows = outcomes.take()
    columns = zip(quick.offsets, quick.started, quick.finished, quick.results, strict=True)
    for offset, began, finished, result in columns:
        rows.append(Row(0, offset, 1, began // 1000, finished // 1000, "ok", None, None, result))
    assert len({row.offset for row in rows}) == len(rows)
    assert outcomes.errors == sum(row.outcome == "error" for row in rows)
    return {row.offset: row for row in rows}


async def test_a_range_ends_when_all_of_it_is_handled_and_each_record_has_a_row() -> None:
    consumer = Consumer(group_id="g")

    @consumer.handler("orders")
    async def handle(value: bytes) -> object:
        await asyncio.sleep(0.001)
        return value + b"!"

    rows = await run(consumer, [b"%d" % n for n in range(20)])
    assert {offset: row.result for offset, row in rows.items()} == {
        n: b"%d!" % n for n in range(20)
    }
    assert {row.outcome for row in rows.values()} == {"ok"}


async def test_a_record_that_fails_for_good_is_a_row_with_its_last_error_and_its_attempts() -> None:
    consumer = Consumer(group_id="g")

    @consumer.handler("orders", retry=Retry(attempts=3, backoff=0), dead_letter="never")
    async def handle(value: bytes, context: HandlerContext) -> None:
        if value == b"bad" or (value == b"late" and context.attempt < 3):
            raise ValueError(f"{value!r} at {context.attempt}")

    rows = await run(consumer, [b"good", b"bad", b"late", b"good"])
    assert rows[1][5:8] == ("error", "ValueError", "b'bad' at 3")
    assert [rows[n].attempts for n in range(4)] == [1, 3, 3, 1]
    assert [rows[n].outcome for n in (0, 2, 3)] == ["ok", "ok", "ok"]


async def test_a_value_that_does_not_decode_is_a_row_that_says_so() -> None:
    consumer = Consumer(group_id="g")

    @consumer.handler("orders")
    async def handle(value: dict[str, int]) -> None: ...

    rows = await run(consumer, [b"{}", b"{", None])
    assert rows[0].outcome == "ok"
    assert (rows[1].outcome, rows[1].error_type) == ("error", "DecodeError")
    assert "a tombstone" in str(rows[2].error)


async def test_an_order_that_cannot_be_known_is_a_row_without_a_call() -> None:
    def by_value(record: Record) -> bytes:
        raise KeyError(record.offset)

    consumer = Consumer(group_id="g", order_by=by_value)

    @consumer.handler("orders")
    async def handle(value: bytes) -> None: ...

    rows = await run(consumer, [b"x"])
    assert (rows[0].outcome, rows[0].attempts, rows[0].started_us) == ("error", 0, None)
    assert "order_by=" in str(rows[0].error)


async def test_batches_are_formed_and_only_their_failed_values_are_errors() -> None:
    consumer = Consumer(group_id="g")
    sizes: list[int] = []

    @consumer.handler("orders", batch=True, max_records=4, max_wait=0.01)
    async def handle(values: list[bytes]) -> object:
        sizes.append(len(values))
        if b"bad" in values:
            raise BatchError({values.index(b"bad"): ValueError("bad")})
        return "stored"

    rows = await run(consumer, [b"a", b"b", b"bad", b"c", b"d", b"e"], at_once=4)
    assert max(sizes) == 4
    assert [rows[n].outcome for n in range(6)] == ["ok", "ok", "error", "ok", "ok", "ok"]
    assert [row.result for row in rows.values()].count(b"stored") == len(sizes) - 1


async def test_what_a_middleware_has_taken_is_no_error() -> None:
    consumer = Consumer(group_id="g")

    @consumer.handler("orders")
    async def handle(value: bytes) -> None:
        if value == b"bad":
            raise ValueError

    @consumer.middleware
    async def around(context: HandlerContext, call_next: object) -> None:
        if context.record.value == b"none":
            return
        try:
            await call_next()  # type: ignore[operator]
        except ValueError:
            return

    rows = await run(consumer, [b"good", b"bad", b"none"])
    assert [rows[n].outcome for n in range(3)] == ["ok", "ok", "ok"]
    assert rows[2].attempts == 0


async def test_the_first_failure_ends_a_replay_that_is_to_fail() -> None:
    consumer = Consumer(group_id="g")

    @consumer.handler("orders", on_error="skip")
    async def handle(value: bytes) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await run(consumer, [b"x"] * 10, "fail")


async def test_a_partition_that_pauses_ends_a_replay_and_says_why() -> None:
    consumer = Consumer(group_id="g")

    @consumer.handler("orders", on_error="pause")
    async def handle(value: bytes) -> None:
        raise ValueError("no")

    with pytest.raises(ReplayError, match=r"orders-0 has paused at offset 0 .*errors=\"record\""):
        await run(consumer, [b"x"] * 10, "policy")


class Invoice(pydantic.BaseModel):
    order: int


@pytest.mark.parametrize(
    ("result", "encoded"),
    [
        (b"x", b"x"),
        (bytearray(b"x"), b"x"),
        ("ä", "ä".encode()),
        ({"a": 1}, b'{"a":1}'),
        (7, b"7"),
        (Invoice(order=7), b'{"order":7}'),
        (Message(Invoice(order=7), key="k"), b'{"order":7}'),
        (Message("text"), b"text"),
        (Message(None, key="k"), None),
        ([Invoice(order=7), Message("text"), Message(None)], b'[{"order":7},"text",null]'),
        (pa.RecordBatch.from_pydict({"value": ["a", None], "n": [1, 2]}), b'["a",null]'),
    ],
)
def test_results_that_are_published_have_a_form_in_rows(
    result: object, encoded: bytes | None
) -> None:
    assert encode_result(result) == encoded


@pytest.mark.parametrize(
    "result", [object(), "\ud800", Message(object()), pa.RecordBatch.from_pydict({"n": [1]})]
)
def test_a_result_without_a_form_gets_a_sentence(result: object) -> None:
    with pytest.raises(ReplayError, match=r"returned .*, which cannot be written .*: return None"):
        encode_result(result)


async def test_a_handler_whose_result_has_no_form_is_called_once() -> None:
    consumer = Consumer(group_id="g")
    called: list[bytes] = []

    @consumer.handler("orders", retry=Retry(attempts=3, backoff=0))
    async def handle(value: bytes) -> object:
        called.append(value)
        return "\ud800"

    rows = await run(consumer, [b"x"])
    assert (rows[0].outcome, rows[0].error_type, called) == ("error", "ResultError", [b"x"])
