"""A producer commits, aborts and settles transactions as its caller asks for."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from unit.producing.transactions.transaction_brokers import TOPIC, TransactionBrokers
from unit.producing.transactions.transaction_setting import INPUT, offsets_of

from asyncrevoke.client.core.io.effects import Failed, FailureKind, Node, Replied
from asyncrevoke.client.errors import TransactionError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.producing.message import PublishedRecord
from asyncrevoke.client.producing.record_producer import RecordProducer
from asyncrevoke.client.producing.requests import ProduceRequest
from asyncrevoke.client.producing.transactions.requests import EndTxnRequest
from asyncrevoke.client.producing.transactions.transaction import (
    PlacedRecord,
    RecordsRefusedError,
    TransactionTimedOutError,
)
from asyncrevoke.client.protocol.messages import MetadataRequest
from asyncrevoke.config import ConsumerConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from asyncrevoke.client.core.io.effects import Send
    from asyncrevoke.client.protocol.messages import Request

pytestmark = pytest.mark.timeout(20)
RECORD = PublishedRecord(TOPIC, 0, None, b"a", [], None)


class Network:
    """Requests of the type ``held`` wait; with ``loses``, their responses are lost instead, and
    those of the type ``fails`` do not reach a broker."""

    def __init__(self, brokers: TransactionBrokers) -> None:
        self.brokers = brokers
        self.held: type[Request] | None = None
        self.is_held = asyncio.Event()
        self.let_go = asyncio.Event()
        self.loses: type[Request] | None = None
        self.fails: type[Request] | None = None

    def begin(self, _send: Send, _on_reply: object) -> bool:
        return False

    async def request(self, send: Send) -> Replied | Failed:
        if self.held is not None and isinstance(send.message, self.held):
            self.is_held.set()
            await self.let_go.wait()
        if self.fails is not None and isinstance(send.message, self.fails):
            return Failed(send.request_id, FailureKind.UNREACHABLE, "no broker")
        message = self.brokers.handle(send.message)
        self.brokers.complete()
        if self.loses is not None and isinstance(send.message, self.loses):
            return Failed(send.request_id, FailureKind.TIMEOUT, "no response")
        return Replied(send.request_id, message)


@pytest.fixture
async def network() -> Network:
    return Network(TransactionBrokers(2))


@pytest.fixture
def request_timeout() -> float:
    return 2.0


@pytest.fixture
async def producer(network: Network, request_timeout: float) -> AsyncIterator[RecordProducer]:
    requests: Any = network
    producer = RecordProducer(
        ConsumerConfig(request_timeout=request_timeout),
        requests,
        [Node(-1, "a", 1)],
        time.time,
        transactional_id="id",
        transaction_timeout=2.0,
    )
    yield producer
    network.let_go.set()
    await producer.aclose()


async def test_records_and_offsets_are_committed_together(
    producer: RecordProducer, network: Network
) -> None:
    await producer.commit_transaction([RECORD], offsets_of({0: 7}))
    assert network.brokers.logs[0].visible == [b"a"]
    assert network.brokers.group.applied == [{TopicPartition(INPUT, 0): 7}]


async def test_where_records_are_is_reported_before_the_commit(
    producer: RecordProducer, network: Network
) -> None:
    first = PublishedRecord(TOPIC, 0, None, b"1", [], None)
    second = PublishedRecord(TOPIC, 0, None, b"2", [], None)
    elsewhere = PublishedRecord(TOPIC, 1, None, b"3", [], None)
    await producer.commit_transaction([RECORD])
    reported: list[list[PlacedRecord]] = []

    def written(placed: Iterable[PlacedRecord]) -> None:
        assert network.brokers.logs[1].visible == []
        reported.append(list(placed))

    await producer.commit_transaction([first, elsewhere, second], offsets_of({0: 7}), written)
    (placed,) = reported
    # After the record and the marker of the transaction before.
    assert {id(token): (tp.partition, offset) for token, tp, offset in placed} == {
        id(first): (0, 2),
        id(second): (0, 3),
        id(elsewhere): (1, 0),
    }


async def test_offsets_are_committed_without_records(
    producer: RecordProducer, network: Network
) -> None:
    await producer.commit_transaction([], offsets_of({0: 7}))
    assert network.brokers.group.applied == [{TopicPartition(INPUT, 0): 7}]


async def test_nothing_begins_without_records_and_offsets(
    producer: RecordProducer, network: Network
) -> None:
    await producer.commit_transaction([])
    await producer.commit_transaction([], offsets_of({}))
    assert network.brokers.state == "empty"
    assert not producer.abort_transaction(LookupError())


@pytest.mark.parametrize("request_timeout", [0.6])
async def test_records_wait_for_another_transaction_while_no_broker_names_their_partitions(
    producer: RecordProducer, network: Network
) -> None:
    """They are not refused: their handlers have succeeded, and are not to be called again."""
    network.fails = MetadataRequest
    with pytest.raises(TransactionTimedOutError, match="its partitions are unknown: no broker"):
        await producer.commit_transaction([RECORD], offsets_of({0: 7}))
    network.fails = None
    await producer.commit_transaction([RECORD], offsets_of({0: 7}))
    assert network.brokers.logs[0].visible == [b"a"]


@pytest.mark.parametrize("held", [MetadataRequest, ProduceRequest])
async def test_a_commit_raises_the_error_that_the_transaction_is_aborted_with(
    producer: RecordProducer, network: Network, held: type[Request]
) -> None:
    network.held = held
    commit = asyncio.create_task(producer.commit_transaction([RECORD], offsets_of({0: 7})))
    await network.is_held.wait()
    error = LookupError("a partition was lost")
    assert producer.abort_transaction(error)
    network.held = None
    network.let_go.set()
    with pytest.raises(LookupError) as raised:
        await commit
    assert raised.value is error
    assert network.brokers.logs[0].visible == []
    assert network.brokers.group.applied == []
    await producer.commit_transaction([RECORD], offsets_of({0: 8}))
    assert network.brokers.logs[0].visible == [b"a"]


async def test_a_commit_that_was_sent_is_not_aborted(
    producer: RecordProducer, network: Network
) -> None:
    network.held = EndTxnRequest
    commit = asyncio.create_task(producer.commit_transaction([RECORD], offsets_of({0: 7})))
    await network.is_held.wait()
    assert not producer.abort_transaction(LookupError())
    network.let_go.set()
    await commit
    assert network.brokers.logs[0].visible == [b"a"]


async def test_a_cancelled_commit_stays_cancelled_if_it_is_aborted_as_well(
    producer: RecordProducer, network: Network
) -> None:
    network.held = MetadataRequest
    commit = asyncio.create_task(producer.commit_transaction([RECORD]))
    await network.is_held.wait()
    assert producer.abort_transaction(LookupError())
    commit.cancel()
    await asyncio.wait([commit])
    assert commit.cancelled()


async def test_records_of_a_partition_that_does_not_exist_are_named(
    producer: RecordProducer,
) -> None:
    wrong = RECORD._replace(partition=99)
    with pytest.raises(RecordsRefusedError, match="no partition 99") as raised:
        await producer.commit_transaction([RECORD, wrong], offsets_of({0: 7}))
    assert list(raised.value.tokens) == [wrong]


async def test_an_end_in_doubt_can_be_waited_for(
    producer: RecordProducer, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "asyncrevoke.client.producing.transactions.transaction_core._ABORTED_WITHIN", -1.8
    )
    await producer.transaction_settled()
    network.loses = EndTxnRequest
    with pytest.raises(TransactionError) as raised:
        await producer.commit_transaction([RECORD], offsets_of({0: 7}))
    assert raised.value.in_doubt
    await producer.transaction_settled()
    assert network.brokers.group.applied == [{TopicPartition(INPUT, 0): 7}]
    network.loses = None
    await producer.commit_transaction([RECORD], offsets_of({0: 8}))
    assert network.brokers.logs[0].visible == [b"a", b"a"]
