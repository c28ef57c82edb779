"""What ``repr()`` says of consumers, producers, readers and acknowledgements."""

from __future__ import annotations

import re

import pytest
from unit.handlers.results.scripted_results_broker import ScriptedResultsBroker
from unit.producing.publishing.scripted_producer import entered

from asyncrevoke import BrokerPattern, Consumer, Producer, TopicPartition, TopicReader
from asyncrevoke.client.protocol.messages import ErrorCode
from asyncrevoke.errors import PublishError
from asyncrevoke.testing import TestConsumer


def test_the_representation_names_topics_group_servers_and_state() -> None:
    consumer = Consumer("orders", "mails", bootstrap_servers="a:1,b:2", group_id="billing")
    assert (
        repr(consumer) == "<Consumer of mails, orders, group 'billing', at a:1, b:2: not entered>"
    )


def test_the_representation_names_what_a_consumer_without_topics_reads() -> None:
    assert "<Consumer of no topics, no group, at localhost:9092: " in repr(Consumer())
    assert "pattern 'orders-.*'" in repr(Consumer(pattern="orders-.*", group_id="g"))
    assert "pattern 'a-.*'" in repr(Consumer(pattern=re.compile("a-.*"), group_id="g"))
    by_brokers = Consumer(pattern=BrokerPattern("b-.*"), group_id="g", group_protocol="consumer")
    assert "pattern 'b-.*'" in repr(by_brokers)
    assigned = Consumer()
    assigned.assign([TopicPartition("orders", 3)])
    assert "<Consumer of orders-3, no group" in repr(assigned)


def test_the_representation_shows_six_topics_and_how_many_more_there_are() -> None:
    consumer = Consumer(*(f"t{number}" for number in range(9)), group_id="g")
    assert "of t0, t1, t2, t3, t4, t5 and 3 more, group" in repr(consumer)


def test_the_representation_has_no_password() -> None:
    consumer = Consumer(
        group_id="g",
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_plain_username="alice",
        sasl_plain_password="secret",
    )
    assert "secret" not in repr(consumer)
    assert "alice" not in repr(consumer)


async def test_the_representation_follows_the_state_of_a_consumer_with_handlers() -> None:
    consumer = Consumer(bootstrap_servers="kafka:9092", group_id="billing")

    @consumer.handler("orders")
    async def bill(value: bytes) -> None: ...

    assert repr(consumer).endswith("of orders, group 'billing', at kafka:9092: not entered>")
    async with TestConsumer(consumer):
        assert repr(consumer).endswith(": entered>")


async def test_the_representation_says_that_a_consumer_is_closed() -> None:
    consumer = Consumer("orders", bootstrap_servers="127.0.0.1:1", group_id="billing")
    async with consumer:
        assert repr(consumer).endswith(": entered>")
    assert repr(consumer).endswith(": closed>")


async def test_a_producer_names_its_servers_and_its_state() -> None:
    producer = Producer(bootstrap_servers="a:1,b:2")
    assert repr(producer) == "<Producer at a:1, b:2: not entered>"
    async with producer:
        assert repr(producer) == "<Producer at a:1, b:2: entered>"
    assert repr(producer) == "<Producer at a:1, b:2: closed>"


def test_a_reader_names_its_topics_and_servers() -> None:
    reader = TopicReader("orders", "mails", bootstrap_servers="a:1")
    assert repr(reader) == "<TopicReader of orders, mails at a:1: not entered>"


async def test_an_acknowledgement_says_what_has_become_of_its_record() -> None:
    broker = ScriptedResultsBroker()
    broker.errors = {b"bad": ErrorCode.invalid_record}
    async with entered(broker) as producer:
        await producer.publish("orders", b"1")
        broker.responding.clear()
        waiting = await producer.publish_soon("orders", b"2")
        assert repr(waiting) == "<Acknowledgement of a record for orders: waiting>"
        broker.responding.set()
        await waiting
        assert repr(waiting).startswith("<Acknowledgement of a record for orders: partition 0, ")
        failed = await producer.publish_soon("orders", b"bad")
        with pytest.raises(PublishError):
            await failed
        assert repr(failed).startswith("<Acknowledgement of a record for orders: failed: not publ")
