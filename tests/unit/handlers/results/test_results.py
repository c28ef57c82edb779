"""A record is done when the results of its handler are acknowledged; a result that cannot be
published is a failure of its record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator  # noqa: TC003 - handlers' annotations are read
from typing import TYPE_CHECKING

import pytest
from unit.handlers.results.scripted_results_broker import ScriptedResultsBroker
from unit.handlers.scripted_runner import running
from unit.handlers.scripted_source import ORDERS, RecordState, record, turns, until

from asyncrevoke.client.errors import PublishError
from asyncrevoke.client.producing.message import Message
from asyncrevoke.client.producing.requests import InitProducerIdRequest, ProduceRequest
from asyncrevoke.client.protocol.messages import ErrorCode, MetadataRequest
from asyncrevoke.handlers.policy.retry import Retry

if TYPE_CHECKING:
    from unit.handlers.scripted_runner import RunningHandlers

    from asyncrevoke.client.model import Record
    from asyncrevoke.handlers.dead_letters.dead_letter import DeadLetter


async def echo(value: bytes) -> bytes:
    return value


async def done(run: RunningHandlers, *records: Record) -> None:
    """These records, which were fed, are completed."""
    await turns()
    await until(lambda: all(run.source.state_of(each) is RecordState.DONE for each in records))


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedResultsBroker]:
    broker = ScriptedResultsBroker()
    yield broker
    await broker.open_producer().aclose()


async def test_a_record_is_done_when_its_result_is_acknowledged(
    broker: ScriptedResultsBroker,
) -> None:
    broker.responding.clear()
    records = [record(n, b"k", value=b"%d" % n) for n in range(5)]
    async with running(echo, publish_to="results", open_producer=broker.open_producer) as run:
        run.source.feed(*records)
        await until(lambda: broker.received == 1)
        await turns()
        assert {run.source.state_of(each) for each in records} == {RecordState.PENDING}
        broker.responding.set()
        await done(run, *records)
        await run.stop()
    assert broker.written == [("results", b"k", b"%d" % n) for n in range(5)]


async def test_the_producer_of_results_is_ready_before_the_first_record(
    broker: ScriptedResultsBroker,
) -> None:
    async with running(echo, publish_to="results", open_producer=broker.open_producer) as run:
        await until(lambda: len(broker.requests) == 2)
        assert broker.requests == [MetadataRequest, InitProducerIdRequest]
        first = record(0)
        run.source.feed(first)
        await done(run, first)
        await run.stop()
    assert broker.requests[2:] == [ProduceRequest]


async def test_the_records_of_all_partitions_in_a_response_complete_together(
    broker: ScriptedResultsBroker,
) -> None:
    broker.partitions = 4
    records = [record(n, b"key-%d" % n) for n in range(41)]
    async with running(echo, publish_to="results", open_producer=broker.open_producer) as run:
        run.source.feed(records[0])
        await done(run, records[0])
        broker.responding.clear()
        run.source.feed(*records[1:])
        await until(lambda: broker.received == 2)
        await turns()
        calls = run.source.calls
        broker.responding.set()
        await done(run, *records)
        await run.stop()
    assert len(broker.written) == 41
    assert broker.received == 2
    assert run.source.calls == calls + 1


async def test_records_of_a_key_do_not_wait_for_each_others_acknowledgement(
    broker: ScriptedResultsBroker,
) -> None:
    calls: list[bytes] = []

    async def handle(value: bytes) -> bytes:
        calls.append(value)
        return value

    async with running(handle, publish_to="results", open_producer=broker.open_producer) as run:
        first = record(0)
        run.source.feed(first)
        await done(run, first)
        broker.responding.clear()
        run.source.feed(*(record(n, value=b"%d" % n) for n in range(1, 100)))
        await until(lambda: len(calls) == 100)
        assert broker.received <= 3
        broker.responding.set()
        await run.stop()
    assert len(broker.written) == 100
    assert broker.received <= 4


async def test_stopping_waits_for_results_in_flight(broker: ScriptedResultsBroker) -> None:
    async with running(echo, publish_to="results", open_producer=broker.open_producer) as run:
        first, second = record(0), record(1)
        run.source.feed(first)
        await done(run, first)
        broker.responding.clear()
        run.source.feed(second)
        await until(lambda: broker.received == 2)
        run.source.stop()
        await turns()
        assert not run.task.done()
        broker.responding.set()
        await run.stop()
    assert run.source.state_of(second) is RecordState.DONE


async def test_a_cancelled_runner_abandons_records_whose_results_are_not_acknowledged(
    broker: ScriptedResultsBroker,
) -> None:
    first, second = record(0), record(1)
    async with running(echo, publish_to="results", open_producer=broker.open_producer) as run:
        run.source.feed(first)
        await done(run, first)
        broker.responding.clear()
        run.source.feed(second)
        await until(lambda: broker.received == 2)
        run.task.cancel()
        await asyncio.wait([run.task])
        assert run.source.state_of(second) is RecordState.ABANDONED
        broker.responding.set()
        await turns()
        assert run.source.state_of(second) is RecordState.ABANDONED


async def test_a_result_that_the_broker_rejects_later_fails_its_record_only(
    broker: ScriptedResultsBroker,
) -> None:
    broker.errors[b"2"] = ErrorCode.message_too_large
    letters: list[tuple[str, bytes | None]] = []

    class Sender:
        async def send(self, topic: str, message: DeadLetter, /) -> None:
            letters.append((topic, message.value))

    records = [record(n, value=b"%d" % n) for n in range(5)]
    async with running(
        echo,
        publish_to="results",
        dead_letter="dead",
        dead_letters=Sender(),
        open_producer=broker.open_producer,
    ) as run:
        run.source.feed(*records)
        await done(run, *records)
        await run.stop()
    assert letters == [("dead", b"2")]
    assert [value for _, _, value in broker.written] == [b"0", b"1", b"3", b"4"]


async def test_results_of_a_key_keep_their_order_whatever_their_size_and_kind(
    broker: ScriptedResultsBroker,
) -> None:
    async def handle(value: bytes) -> object:
        number = int(value)
        if number % 3 == 0:
            return Message(value)
        return value if number % 3 == 1 else value + b" " * 5000

    async with running(handle, publish_to="results", open_producer=broker.open_producer) as run:
        first = record(0, value=b"0")
        run.source.feed(first)
        await done(run, first)
        records = [record(n, value=b"%d" % n) for n in range(1, 60)]
        run.source.feed(*records)
        await done(run, *records)
        await run.stop()
    assert [int(value or b"") for _, _, value in broker.written] == list(range(60))


async def test_a_rejected_result_is_retried_by_another_call(broker: ScriptedResultsBroker) -> None:
    broker.errors[b"1"] = ErrorCode.topic_authorization_failed
    attempts: list[bytes] = []

    async def handle(value: bytes) -> bytes:
        attempts.append(value)
        if len(attempts) == 3:
            broker.errors.clear()
        return value

    async with running(
        handle,
        publish_to="results",
        retry=Retry(attempts=3, backoff=1),
        open_producer=broker.open_producer,
    ) as run:
        first = record(1, value=b"1")
        run.source.feed(first)
        await until(lambda: run.clock.timers)
        assert attempts == [b"1"]
        run.clock.advance(10)
        await until(lambda: len(attempts) == 2 and run.clock.timers)
        run.clock.advance(10)
        await done(run, first)
        await run.stop()
    assert attempts == [b"1"] * 3
    assert broker.written == [("results", b"k", b"1")]


async def test_a_rejected_result_stops_the_consumer_and_its_record_is_not_done(
    broker: ScriptedResultsBroker,
) -> None:
    broker.errors[b"1"] = ErrorCode.topic_authorization_failed
    records = [record(n, value=b"%d" % n) for n in range(2)]
    async with running(echo, publish_to="results", open_producer=broker.open_producer) as run:
        run.source.feed(records[0])
        await done(run, records[0])
        run.source.feed(records[1])
        error = await run.failure()
    assert isinstance(error, PublishError)
    assert "grant WRITE" in str(error)
    assert run.source.state_of(records[1]) is RecordState.ABANDONED


async def test_a_rejected_result_of_a_lost_partition_is_forgotten(
    broker: ScriptedResultsBroker,
) -> None:
    broker.errors[b"1"] = ErrorCode.topic_authorization_failed
    calls: list[bytes] = []

    async def handle(value: bytes) -> bytes:
        calls.append(value)
        return value

    first, second = record(0), record(1, value=b"1")
    async with running(
        handle,
        publish_to="results",
        retry=Retry(attempts=9, backoff=0.1),
        open_producer=broker.open_producer,
    ) as run:
        run.source.feed(first)
        await done(run, first)
        broker.responding.clear()
        run.source.feed(second)
        await until(lambda: broker.received == 2)
        run.runner.lose([ORDERS])
        broker.responding.set()
        await until(
            lambda: "results not published while their partitions stop" in str(run.log.lines)
        )
        await run.stop()
    assert calls == [b"v", b"1"]


async def test_a_value_that_cannot_be_encoded_fails_its_record(
    broker: ScriptedResultsBroker,
) -> None:
    async def handle(value: bytes) -> dict[str, object]:
        return {"of": object()}

    async with running(handle, publish_to="results", open_producer=broker.open_producer) as run:
        run.source.feed(record(0))
        error = await run.failure()
    assert isinstance(error, PublishError)
    assert "a dict cannot be encoded" in str(error)
    assert broker.written == []


async def test_a_topic_that_does_not_exist_fails_the_record_with_the_command_that_creates_it(
    broker: ScriptedResultsBroker,
) -> None:
    broker.missing.add("results")
    broker.request_timeout = 0.6
    async with running(echo, publish_to="results", open_producer=broker.open_producer) as run:
        run.source.feed(record(0))
        error = await run.failure()
    assert "topics create results" in str(error)


async def test_several_results_messages_and_none(broker: ScriptedResultsBroker) -> None:
    async def handle(value: bytes) -> AsyncIterator[object]:
        if value == b"none":
            return
        yield {"n": 1}
        yield "text"
        yield Message(None, key="gone")
        yield Message(b"x", key=None, topic="others", headers={"a": "b", "c": None})

    async with running(handle, publish_to="results", open_producer=broker.open_producer) as run:
        records = record(0, value=b"none"), record(1, value=b"some")
        run.source.feed(*records)
        await done(run, *records)
        await run.stop()
    assert broker.written == [
        ("results", b"k", b'{"n":1}'),
        ("results", b"k", b"text"),
        ("results", b"gone", None),
        ("others", None, b"x"),
    ]
    assert broker.headers[-1] == [("a", b"b"), ("c", None)]


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (Message(b"x", key=7), "the key is a int"),  # type: ignore[arg-type]
        (Message(b"x", headers={"a": 7}), "a header is a"),  # type: ignore[dict-item]
        (Message(b"x", partition=3), "there is no partition 3: it has 1"),
        (Message("\ud800"), "cannot be encoded"),
    ],
)
async def test_a_message_that_cannot_be_sent_fails_its_record(
    broker: ScriptedResultsBroker, message: Message[object], why: str
) -> None:
    async def handle(value: bytes) -> Message[object]:
        return message

    async with running(handle, publish_to="results", open_producer=broker.open_producer) as run:
        run.source.feed(record(0))
        error = await run.failure()
    assert isinstance(error, PublishError)
    assert why in str(error)


async def test_results_of_a_batch_are_acknowledged_before_its_records_are_done(
    broker: ScriptedResultsBroker,
) -> None:
    broker.responding.clear()

    async def handle(values: list[bytes]) -> list[bytes]:
        return [value * 2 for value in values]

    records = [record(n, b"k%d" % n, value=b"%d" % n) for n in range(3)]
    async with running(
        handle,
        publish_to="results",
        batch=True,
        max_records=3,
        open_producer=broker.open_producer,
    ) as run:
        run.source.feed(*records)
        await until(lambda: broker.received == 1)
        await turns()
        assert run.source.in_flight == 3
        broker.responding.set()
        await done(run, *records)
        await run.stop()
    assert broker.written == [("results", b"k%d" % n, b"%d%d" % (n, n)) for n in range(3)]


async def test_a_value_that_is_published_nowhere_is_warned_of_once(
    broker: ScriptedResultsBroker,
) -> None:
    async def handle(value: bytes) -> bytes:
        return value

    del handle.__annotations__["return"]
    records = [record(n, b"%d" % n) for n in range(5)]
    async with running(handle, open_producer=broker.open_producer) as run:
        run.source.feed(*records)
        await done(run, *records)
        await run.stop()
        assert run.log.events("warning") == [
            "handler returned a value; results without publish_to are lost"
        ]
    assert broker.received == 0
