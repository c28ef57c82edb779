"""Transactions of a producer, as an independent reader with read_committed sees them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from broker.requests.read_committed import PARTITIONS, read_committed

from asyncrevoke import Producer
from asyncrevoke.broker import KafkaBroker
from asyncrevoke.errors import ProducerFencedError, PublishError, TransactionError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

# Those of the default run are version 2's: with version 1, transactions have offsets there
# (test_group_offsets_in_transactions.py).
VERSIONS = [2, *(pytest.param(version, marks=pytest.mark.variant) for version in (1, 0))]


# Of a node that is its own controller: fenced after a pause, it can lack leaders for long.
NEVER_FENCED = {"broker.session.timeout.ms": "60000"}


@pytest.fixture(scope="module", params=VERSIONS)
def broker(request: pytest.FixtureRequest) -> Iterator[KafkaBroker]:
    features = {"transaction.version": request.param}
    with KafkaBroker(features=features, properties=NEVER_FENCED) as broker:
        yield broker


@pytest.fixture
def topic(broker: KafkaBroker, request: pytest.FixtureRequest) -> str:
    name = f"out-{abs(hash(request.node.name)) % 10**8}"
    broker.create_topic(name, PARTITIONS)
    return name


async def test_committed_transactions_are_visible_once_and_others_never(
    broker: KafkaBroker, topic: str
) -> None:
    expected: Counter[bytes] = Counter()
    async with Producer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=topic
    ) as producer:
        for number in range(20):
            values = [b"%d-%d" % (number, n) for n in range(50)]
            try:
                async with producer.transaction() as transaction:
                    for n, value in enumerate(values):
                        transaction.publish(topic, value, key=b"%d" % n)
                    if number % 3 == 2:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                continue
            expected.update(values)
    assert read_committed(broker, topic) == expected


async def test_a_refused_record_leaves_nothing_of_its_transaction(
    broker: KafkaBroker, topic: str
) -> None:
    async with Producer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=topic, compression="zstd"
    ) as producer:
        with pytest.raises(PublishError, match=r"max\.message\.bytes"):
            async with producer.transaction() as transaction:
                transaction.publish(topic, b"beside")
                transaction.publish(topic, random.Random(1).randbytes(2_000_000))
        async with producer.transaction() as transaction:
            transaction.publish(topic, b"after")
    assert read_committed(broker, topic) == Counter([b"after"])


async def test_a_second_producer_with_the_id_fences_the_first(
    broker: KafkaBroker, topic: str
) -> None:
    first = Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=topic)
    second = Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=topic)
    async with first, second:
        for producer, value in ((first, b"first"), (second, b"second")):
            async with producer.transaction() as transaction:
                transaction.publish(topic, value)
        with pytest.raises(ProducerFencedError):
            async with first.transaction() as transaction:
                transaction.publish(topic, b"late")
        async with second.transaction() as transaction:
            transaction.publish(topic, b"again")
    assert read_committed(broker, topic) == Counter([b"first", b"second", b"again"])


async def test_a_cancelled_commit_is_visible_as_a_whole_or_not_at_all(
    broker: KafkaBroker, topic: str
) -> None:
    async def write(producer: Producer, number: int) -> None:
        async with producer.transaction() as transaction:
            for n in range(30):
                transaction.publish(topic, b"%d-%d" % (number, n), key=b"%d" % n)

    done: set[int] = set()
    async with Producer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=topic
    ) as producer:
        for number in range(25):
            task = asyncio.create_task(write(producer, number))
            await asyncio.wait([task], timeout=number * 0.001)
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                done.add(number)
        await write(producer, 99)
    found = read_committed(broker, topic)
    sizes = Counter(int(value.split(b"-")[0]) for value in found)
    assert set(found.values()) == {1}
    assert set(sizes.values()) == {30}
    assert {*done, 99} <= set(sizes)


async def test_concurrent_transactions_of_one_producer_are_written_one_after_another(
    broker: KafkaBroker, topic: str
) -> None:
    async with Producer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=topic
    ) as producer:

        async def write(number: int) -> None:
            async with producer.transaction() as transaction:
                transaction.publish(topic, b"%d" % number)

        await asyncio.gather(*map(write, range(20)))
        await producer.publish(topic, b"outside")
    assert read_committed(broker, topic) == Counter([b"%d" % n for n in range(20)] + [b"outside"])


async def test_a_longer_timeout_than_brokers_allow_is_refused_with_their_property(
    broker: KafkaBroker, topic: str
) -> None:
    async with Producer(
        bootstrap_servers=broker.bootstrap_servers,
        transactional_id=topic,
        transaction_timeout=3600.0,
    ) as producer:
        with pytest.raises(TransactionError, match=r"transaction\.max\.timeout\.ms"):
            async with producer.transaction() as transaction:
                transaction.publish(topic, b"v")


async def test_a_coordinator_that_stands_still_delays_a_transaction_and_loses_nothing(
    broker: KafkaBroker, topic: str
) -> None:
    async with Producer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=topic, request_timeout=4.0
    ) as producer:
        async with producer.transaction() as transaction:
            transaction.publish(topic, b"before")
        broker.pause()
        try:
            transaction = producer.transaction()
            async with transaction:
                transaction.publish(topic, b"meanwhile")
                asyncio.get_running_loop().call_later(6.0, broker.resume)
        finally:
            broker.resume()
    assert read_committed(broker, topic) == Counter([b"before", b"meanwhile"])
