"""The producer of dead letters: when it connects, what ends it, and how long anything may take."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.errors import (
    KafkaConnectionError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    ProducerClosed,
)
from unit.handlers.scripted_source import LogLines, record, turns, until

from asyncrevoke.config import ConsumerConfig
from asyncrevoke.handlers.dead_letters.dead_letter import DeadLetter
from asyncrevoke.handlers.dead_letters.producer import DeadLetterProducer

if TYPE_CHECKING:
    from collections.abc import Awaitable


class FakeBatch:
    def __init__(self) -> None:
        self.key: bytes | None = None

    def append(self, *, key: bytes | None, **_: object) -> None:
        self.key = key


class FakePart:
    def __init__(self) -> None:
        self.closed = False

    async def close(self) -> None:
        self.closed = True


class FakeProducer:
    """Answers as it is told; ``sent`` has the keys, and the partitions they went to."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.sent: list[tuple[bytes | None, int]] = []
        self.answer: asyncio.Future[None] | Exception | None = None
        self.stopped = False
        self.hangs = False
        self.client = FakePart()
        self._sender = FakePart()

    async def start(self) -> None:
        await asyncio.sleep(0)

    async def stop(self) -> None:
        self.stopped = True
        if self.hangs:
            await asyncio.Event().wait()

    async def partitions_for(self, topic: str) -> set[int]:
        return {0, 1, 2}

    def create_batch(self) -> FakeBatch:
        return FakeBatch()

    async def send_batch(self, batch: FakeBatch, topic: str, *, partition: int) -> Awaitable[None]:
        self.sent.append((batch.key, partition))
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if isinstance(self.answer, Exception):
            answer.set_exception(self.answer)
        elif self.answer is not None:
            return self.answer
        else:
            answer.set_result(None)
        return answer


class Fakes(list[FakeProducer]):
    def __call__(self, **options: Any) -> FakeProducer:
        self.append(FakeProducer(**options))
        return self[-1]


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Fakes:
    made = Fakes()
    monkeypatch.setattr("aiokafka.AIOKafkaProducer", made)
    return made


def producer(**options: Any) -> DeadLetterProducer:
    return DeadLetterProducer(ConsumerConfig(**options), LogLines())


def letter(key: bytes | None = b"k") -> DeadLetter:
    return DeadLetter(record(0, key), ValueError("boom"), 1)


async def test_the_producer_connects_once_for_the_first_dead_letter(fakes: Fakes) -> None:
    letters = producer()
    await letters.aclose()
    assert fakes == []
    await asyncio.gather(*(letters.send("dlq", letter()) for _ in range(5)))
    await letters.aclose()
    (only,) = fakes
    assert len(only.sent) == 5
    assert len(set(only.sent)) == 1, "one key goes to one partition"
    assert only.stopped


async def test_the_producer_has_the_consumers_connection_options_and_acks_all(fakes: Fakes) -> None:
    context = ssl.create_default_context()
    letters = producer(
        bootstrap_servers=["a:1", "b:2"],
        security_protocol="SASL_SSL",
        ssl_context=context,
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username="me",
        sasl_plain_password="secret",
        client_id="billing",
        request_timeout=7,
    )
    await letters.send("dlq", letter())
    await letters.aclose()
    expected = {
        "bootstrap_servers": ["a:1", "b:2"],
        "acks": "all",
        "enable_idempotence": True,
        "security_protocol": "SASL_SSL",
        "ssl_context": context,
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "me",
        "sasl_plain_password": "secret",
        "client_id": "billing",
        "request_timeout_ms": 7000,
    }
    options = fakes[0].options
    assert {name: options[name] for name in expected} == expected


async def test_after_a_rejected_message_the_next_one_goes_by_another_producer(fakes: Fakes) -> None:
    letters = producer()
    await letters.send("dlq", letter())
    fakes[0].answer = MessageSizeTooLargeError()
    with pytest.raises(MessageSizeTooLargeError):
        await letters.send("dlq", letter())
    assert len(fakes[0].sent) == 2, "what the broker refuses is not sent again"
    await letters.send("dlq", letter())
    await letters.aclose()
    assert [len(each.sent) for each in fakes] == [2, 1]
    assert all(each.stopped for each in fakes)


@pytest.mark.parametrize("error", [OutOfOrderSequenceNumber(), ProducerClosed()], ids=repr)
async def test_a_message_stopped_by_the_rejection_of_another_is_sent_again(
    fakes: Fakes, error: Exception
) -> None:
    letters = producer()
    await letters.send("dlq", letter())
    fakes[0].answer = error
    await letters.send("dlq", letter())
    await letters.aclose()
    assert [len(each.sent) for each in fakes] == [2, 1]


async def test_sending_a_dead_letter_is_limited_by_request_timeout(fakes: Fakes) -> None:
    letters = producer(request_timeout=0.05, fetch_max_wait=0.01)
    await letters.send("dlq", letter())
    fakes[0].answer = asyncio.get_running_loop().create_future()
    with pytest.raises(TimeoutError):
        await letters.send("dlq", letter())
    await letters.aclose()


async def test_a_producer_that_does_not_stop_is_closed_part_by_part(
    fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncrevoke.handlers.dead_letters.producer._STOP_TIMEOUT", 0.02)
    letters = producer()
    await letters.send("dlq", letter())
    fakes[0].hangs = True
    await letters.aclose()
    await until(lambda: fakes[0].client.closed)
    assert fakes[0]._sender.closed
    await turns()
    mine = asyncio.current_task()
    assert [task for task in asyncio.all_tasks() if task is not mine] == []


async def test_without_a_broker_sending_fails_at_once_and_closing_works() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        letters = producer(bootstrap_servers=f"127.0.0.1:{port}")
        async with asyncio.timeout(5):
            with pytest.raises(KafkaConnectionError):
                await letters.send("dlq", letter())
            await letters.aclose()
