"""Records that are queued, and acknowledged later."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass
from typing import Any

import pytest
from unit.handlers.results.scripted_results_broker import ScriptedResultsBroker
from unit.producing.publishing.scripted_producer import entered, values

from asyncrevoke import Acknowledgement, Published, PublishError
from asyncrevoke.client.producing.publishing import publisher as publishers
from asyncrevoke.client.protocol.messages import ErrorCode

pytestmark = pytest.mark.timeout(20)


@dataclass
class Order:
    id: int


async def test_it_returns_before_the_acknowledgement() -> None:
    broker = ScriptedResultsBroker()
    async with entered(broker) as producer:
        await producer.publish("t", b"0")
        broker.responding.clear()
        records = [await producer.publish_soon("t", b"%d" % n) for n in range(1, 100)]
        assert not any(record.done() for record in records)
        assert values(broker) == [0]
        broker.responding.set()
        assert await records[0] == Published("t", 0, 0)
        await producer.flush()
        assert all(record.done() for record in records)
        assert [(await record).offset for record in records[1:]] == list(range(1, 99))
    assert values(broker) == list(range(100))


async def test_records_of_a_batch_share_a_request() -> None:
    broker = ScriptedResultsBroker()
    async with entered(broker) as producer:
        await producer.publish("t", b"0")
        for number in range(1, 1000):
            _ = await producer.publish_soon("t", b"%d" % number)
        await producer.flush()
        assert broker.received == 2


async def test_values_are_encoded_as_results_are() -> None:
    broker = ScriptedResultsBroker()
    async with entered(broker) as producer:
        for value in ("text", b"bytes", None, Order(7), {"a": 1}):
            _ = await producer.publish_soon("t", value, key="k", headers={"h": "x"})
        await producer.flush()
        with pytest.raises(PublishError, match="a object cannot be encoded"):
            _ = await producer.publish_soon("t", object())
        with pytest.raises(PublishError, match="the key is a int"):
            _ = await producer.publish_soon("t", b"", key=1)  # type: ignore[arg-type]
    expected = [b"text", b"bytes", None, b'{"id":7}', b'{"a":1}']
    assert broker.written == [("t", b"k", value) for value in expected]
    assert broker.headers == [[("h", b"x")]] * 5


async def test_an_argument_of_a_wrong_type_affects_no_other_record() -> None:
    broker = ScriptedResultsBroker()
    async with entered(broker) as producer:
        await producer.publish("t", b"0")
        _ = await producer.publish_soon("t", b"1")
        wrong: dict[str, Any]
        for wrong in ({"timestamp": "now"}, {"timestamp": 2**80}, {"partition": "first"}):
            with pytest.raises((TypeError, OverflowError)):
                _ = await producer.publish_soon("t", b"9", **wrong)
        _ = await producer.publish_soon("t", b"2")
        await producer.flush()
    assert values(broker) == [0, 1, 2]


async def test_a_loop_of_calls_lets_others_run_and_requests_be_sent() -> None:
    broker = ScriptedResultsBroker()
    async with entered(broker) as producer:
        await producer.publish("t", b"0")
        received: list[int] = []
        for number in range(1, 4000):
            _ = await producer.publish_soon("t", b"%0250d" % number)
            received.append(broker.received)
        assert received[-1] >= 3
        await producer.flush()
    assert values(broker) == list(range(4000))


async def test_calls_wait_for_memory_in_their_order() -> None:
    broker = ScriptedResultsBroker()
    async with entered(broker, buffer_memory=1000) as producer:
        await producer.publish("t", b"0")
        broker.responding.clear()
        calls = [
            asyncio.ensure_future(producer.publish_soon("t", b"%0300d" % n)) for n in range(1, 9)
        ]
        for _ in range(10):
            await asyncio.sleep(0)
        queued = [call for call in calls if call.done()]
        assert len(queued) == 4
        health = producer.health()
        assert health.waiting_calls == 4
        assert 1000 <= health.queued_bytes < 1500
        calls[5].cancel()
        await asyncio.sleep(0)
        broker.responding.set()
        for call in calls:
            if call is not calls[5]:
                await (await call)
    assert values(broker) == [0, 1, 2, 3, 4, 5, 7, 8]


async def test_cancelling_a_wait_cancels_nothing_else() -> None:
    broker = ScriptedResultsBroker()
    async with entered(broker) as producer:
        await producer.publish("t", b"0")
        broker.responding.clear()
        record = await producer.publish_soon("t", b"1")

        async def wait() -> Published:
            return await record

        first, second = asyncio.create_task(wait()), asyncio.create_task(wait())
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        broker.responding.set()
        assert await second == await record == Published("t", 0, 0)


async def test_the_error_of_one_record_is_of_that_record() -> None:
    broker = ScriptedResultsBroker()
    broker.errors[b"2"] = ErrorCode.invalid_record
    async with entered(broker) as producer:
        records = [await producer.publish_soon("t", b"%d" % n) for n in range(5)]
        results = await asyncio.gather(*records, return_exceptions=True)
        assert [type(result) for result in results] == [
            Published,
            Published,
            PublishError,
            Published,
            Published,
        ]
        for _ in range(2):
            with pytest.raises(PublishError, match="rejects the record"):
                await records[2]
    assert values(broker) == [0, 1, 3, 4]


async def test_an_error_that_no_call_waits_for_is_logged_and_raised_once_by_flush(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = ScriptedResultsBroker()
    broker.errors = {b"%d" % n: ErrorCode.topic_authorization_failed for n in (1, 2, 3)}
    async with entered(broker) as producer:
        await producer.publish("t", b"0")
        failed = [await producer.publish_soon("t", b"%d" % n) for n in (1, 2, 3)]
        with pytest.raises(PublishError, match=r"to t: .*WRITE.* \(and 2 other records failed\)"):
            await producer.flush()
        assert producer.health().unreceived_errors == 0
        await producer.flush()
        with pytest.raises(PublishError):
            await failed[0]
    (line,) = [r.getMessage() for r in caplog.records if "not published" in r.getMessage()]
    assert "topic=t records=3" in line


async def test_an_error_that_a_call_receives_is_not_raised_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = ScriptedResultsBroker()
    broker.errors[b"1"] = ErrorCode.topic_authorization_failed
    async with entered(broker) as producer:
        record = await producer.publish_soon("t", b"1")
        with pytest.raises(PublishError):
            await record
        with pytest.raises(PublishError):
            await producer.publish("t", b"1")
        late = await producer.publish_soon("t", b"1")
        while not late.done():  # noqa: ASYNC110 - nobody waits for it
            await asyncio.sleep(0)
        assert producer.health().unreceived_errors == 1
        with pytest.raises(PublishError):
            await late
        await producer.flush()
    assert sum("not published" in r.getMessage() for r in caplog.records) == 1


async def test_the_error_after_a_cancelled_publish_is_of_nobody() -> None:
    broker = ScriptedResultsBroker()
    async with entered(broker) as producer:
        await producer.publish("t", b"0")
        broker.responding.clear()
        broker.errors[b"1"] = ErrorCode.topic_authorization_failed
        call = asyncio.create_task(producer.publish("t", b"1"))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        broker.responding.set()
        await producer.flush()


async def test_the_error_of_a_wait_that_is_cancelled_with_it_is_raised_by_flush() -> None:
    broker = ScriptedResultsBroker()
    broker.errors[b"1"] = ErrorCode.topic_authorization_failed
    async with entered(broker) as producer:
        await producer.publish("t", b"0")
        record = await producer.publish_soon("t", b"1")

        async def wait() -> Published:
            return await record

        waiting = asyncio.create_task(wait())
        while not record.done():  # noqa: ASYNC110 - the task is cancelled just then
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(PublishError, match="WRITE"):
            await producer.flush()


async def test_a_flush_leaves_an_error_to_the_call_that_waits_for_it() -> None:
    broker = ScriptedResultsBroker()
    broker.errors[b"1"] = ErrorCode.topic_authorization_failed
    async with entered(broker) as producer:
        record = await producer.publish_soon("t", b"1")

        async def wait() -> Published:
            return await record

        waiting = asyncio.create_task(wait())
        await producer.flush()
        with pytest.raises(PublishError):
            await waiting
        await producer.flush()


async def test_a_call_that_is_cancelled_when_its_record_was_queued_fails_no_record() -> None:
    broker = ScriptedResultsBroker()
    async with entered(broker, buffer_memory=100) as producer:
        await producer.publish("t", b"0")
        broker.responding.clear()
        first = await producer.publish_soon("t", b"%0100d" % 1)
        call = asyncio.create_task(producer.publish_soon("t", b"2"))
        await asyncio.sleep(0)
        broker.responding.set()
        while not first.done():  # noqa: ASYNC110 - the call is resumed just after that
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            _ = await call
        await producer.flush()
        assert producer.health().unreceived_errors == 0
    assert values(broker) == [0, 1, 2]


async def test_errors_are_counted_when_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishers, "_MOST_FAILED", 3)
    broker = ScriptedResultsBroker()
    broker.errors[b"1"] = ErrorCode.topic_authorization_failed
    async with entered(broker) as producer:
        for _ in range(4):
            for _ in range(5):
                _ = await producer.publish_soon("t", b"1")
            while producer.health().queued_records:  # noqa: ASYNC110 - nobody waits for them
                await asyncio.sleep(0)
        assert producer.health().unreceived_errors == 20
        with pytest.raises(PublishError, match="and 19 other records failed"):
            await producer.flush()


async def test_the_garbage_collector_does_not_track_acknowledged_records() -> None:
    broker = ScriptedResultsBroker()
    async with entered(broker) as producer:
        record = await producer.publish_soon("t", b"1")
        await producer.flush()
        assert isinstance(record, Acknowledgement)
        assert not gc.is_tracked(record)
        assert await record == Published("t", 0, 0)
