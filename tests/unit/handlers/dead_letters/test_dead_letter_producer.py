"""Dead letters and records of retry topics are written by the consumer's one producer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator  # noqa: TC003 - fixtures' annotations are read
from typing import Any

import pytest
from unit.handlers.results.scripted_results_broker import ScriptedResultsBroker
from unit.handlers.scripted_runner import running
from unit.handlers.scripted_source import RecordState, record, turns, until

from asyncrevoke import Consumer
from asyncrevoke.client.errors import ConsumerClosedError, PublishError
from asyncrevoke.client.producing.record_producer import RecordProducer
from asyncrevoke.client.protocol.messages import ErrorCode
from asyncrevoke.handlers.dead_letters.dead_letter import DeadLetter
from asyncrevoke.handlers.dead_letters.producer import DeadLetterProducer
from asyncrevoke.testing import TestConsumer


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedResultsBroker]:
    broker = ScriptedResultsBroker()
    yield broker
    await broker.open_producer().aclose()


def letter(number: int) -> DeadLetter:
    return DeadLetter(record(number, b"k", value=b"%d" % number), ValueError("boom"), 1)


async def test_sending_returns_when_the_dead_letter_is_acknowledged(
    broker: ScriptedResultsBroker,
) -> None:
    letters = DeadLetterProducer(broker.open_producer)
    broker.responding.clear()
    sending = asyncio.create_task(letters.send("dlq", letter(7)))
    await until(lambda: broker.received == 1)
    await turns()
    assert not sending.done()
    broker.responding.set()
    await sending
    assert broker.written == [("dlq", b"k", b"7")]
    assert dict(broker.headers[0])["asyncrevoke-error-type"] == b"ValueError"


@pytest.mark.parametrize(
    "error",
    [ErrorCode.message_too_large, ErrorCode.invalid_record, ErrorCode.invalid_timestamp],
    ids=lambda each: str(each.name),
)
async def test_a_dead_letter_that_the_broker_rejects_fails_alone(
    broker: ScriptedResultsBroker, error: ErrorCode
) -> None:
    broker.errors[b"3"] = error
    letters = DeadLetterProducer(broker.open_producer)
    sent = await asyncio.gather(
        *(letters.send("dlq", letter(number)) for number in range(6)), return_exceptions=True
    )
    assert [type(each) for each in sent] == [
        PublishError if number == 3 else type(None) for number in range(6)
    ]
    assert sorted(value or b"" for _, _, value in broker.written) == [
        b"%d" % number for number in range(6) if number != 3
    ]


async def test_a_topic_that_does_not_exist_is_named_with_the_command_that_creates_it(
    broker: ScriptedResultsBroker,
) -> None:
    broker.missing.add("dlq")
    broker.request_timeout = 0.6
    letters = DeadLetterProducer(broker.open_producer)
    with pytest.raises(PublishError, match="topics create dlq"):
        await letters.send("dlq", letter(0))


async def test_results_and_dead_letters_of_a_consumer_share_one_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[RecordProducer] = []
    create = RecordProducer.__init__

    def counted(self: RecordProducer, *args: Any, **options: Any) -> None:
        made.append(self)
        create(self, *args, **options)

    monkeypatch.setattr(RecordProducer, "__init__", counted)
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders", publish_to="invoices", dead_letter="orders.dlq")
    async def bill(value: int) -> int:
        return 1 // value

    async with TestConsumer(consumer, partitions=1) as t:
        assert len(made) == 1, "the producer of results"
        for value in (1, 0):
            await t.publish("orders", value)
        assert [each.value for each in t.records("invoices")] == [b"1"]
        assert [dead_letter.value for dead_letter in t.dead_letters("orders.dlq")] == [b"0"]
        await t.advance(10)
        assert t.committed("orders", 0) == 2
    assert len(made) == 1


async def test_no_producer_is_made_before_a_handler_has_failed() -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders", dead_letter="orders.dlq")
    async def bill(value: int) -> None:
        assert value

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", 1)
        assert consumer.handler_host._producer is None
        await t.publish("orders", 0)
        assert consumer.handler_host._producer is not None
    assert consumer.handler_host._producer is None


async def test_a_task_group_that_outlives_its_consumer_sends_nothing() -> None:
    consumer = Consumer("orders", group_id="billing")
    async with TestConsumer(consumer, partitions=1) as t:
        session = t._session
        consumer.producer  # noqa: B018 - it is made
    with pytest.raises(ConsumerClosedError, match="nothing more is published"):
        consumer.handler_host.open_producer(session)


async def test_a_stopped_runner_abandons_a_record_whose_dead_letter_is_not_acknowledged(
    broker: ScriptedResultsBroker,
) -> None:
    async def fail(_value: bytes) -> None:
        raise ValueError("boom")

    broker.responding.clear()
    letters = DeadLetterProducer(broker.open_producer)
    async with running(fail, dead_letter="dlq", dead_letters=letters) as run:
        fails = record(0)
        run.source.feed(fails)
        await until(lambda: broker.received == 1)
        run.task.cancel()
        await asyncio.wait([run.task])
        broker.responding.set()
        await turns()
        assert run.source.state_of(fails) is RecordState.ABANDONED
