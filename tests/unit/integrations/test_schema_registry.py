"""Decoders and encoders that ask a schema registry: outages, refusals, and what is said of them."""

from __future__ import annotations

import asyncio
import logging
from importlib import import_module
from typing import Any

import pytest
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from asyncrevoke import ConfigError, Consumer, DecodeError, Pause, Record
from asyncrevoke.integrations.schema_registry import SchemaRegistry, protobuf_decoder
from asyncrevoke.testing import TestConsumer

# Packages without types.
CONFLUENT: Any = import_module("confluent_kafka.schema_registry.protobuf")
DESCRIPTORS: Any = import_module("google.protobuf.descriptor_pb2")
POOLS: Any = import_module("google.protobuf.descriptor_pool")
CLASSES: Any = import_module("google.protobuf.message_factory")
NAME = "registry:8081"
REFUSED = SchemaRegistryError(401, 40101, "unauthorized")
UNKNOWN = SchemaRegistryError(404, 40403, "schema not found")


class Service:
    """A registry by the clock of a test, and the deserializer and serializer that ask it.

    ``error`` is what it answers; None: it responds. An Event is waited for.
    """

    def __init__(self, error: Exception | asyncio.Event | None = None) -> None:
        self.error = error
        self.asked = 0
        self.opened = 0
        self.contexts: list[SerializationContext] = []

    async def open(self) -> Service:
        self.opened += 1
        return self

    async def __call__(self, data: Any, context: SerializationContext) -> bytes | None:
        self.asked += 1
        self.contexts.append(context)
        if isinstance(self.error, asyncio.Event):
            await self.error.wait()
        elif self.error is not None:
            raise self.error
        return None if data is None else b"<" + bytes(data) + b">"


async def test_values_are_decoded_and_encoded_with_their_topics() -> None:
    service = Service()
    registry = SchemaRegistry(NAME)
    consumer = Consumer(group_id="billing", value_as="view")

    @consumer.handler(
        "orders",
        decoder=registry.decoder(service.open),
        encoder=registry.encoder(service.open),
        publish_to="out",
    )
    async def bill(value: bytes | None) -> bytearray | None:
        return None if value is None else bytearray(value)

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1", headers={"h": "2"}, partition=0)
        await t.publish("orders", None, partition=0)
        await t.advance(1)
        assert t.committed("orders", 0) == 2
        assert [record.value for record in t.records("out")] == [b"<<1>>"]
    assert service.opened == 2
    assert [context.topic for context in service.contexts] == ["orders", "out", "orders"]
    assert service.contexts[0].headers == [("h", b"2")]


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("refused"),
        REFUSED,
        SchemaRegistryError(503, 50301, "starting"),
        "slow",
    ],
)
async def test_an_outage_delays_records_is_named_and_loses_nothing(
    error: Exception | str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "asyncrevoke")
    service = Service(asyncio.Event() if isinstance(error, str) else error)
    registry = SchemaRegistry(NAME, timeout=2.0)
    consumer = Consumer(group_id="billing", decoder=registry.decoder(service.open))
    got: list[object] = []

    @consumer.handler("orders", dead_letter="dlq")
    async def bill(value: bytes) -> None:
        got.append(value)

    async with TestConsumer(consumer) as t:
        assert consumer.health().outages == ()
        for number in range(5):
            await t.publish("orders", str(number), key=str(number), partition=0)
        await t.advance(20)
        assert got == []
        (outage,) = consumer.health().outages
        assert outage.name == NAME
        assert 15 < outage.seconds <= 20
        (reason,) = consumer.probe().reasons
        assert reason.startswith(f"{NAME} has not responded for")
        assert type(error).__name__ in reason or isinstance(error, str)
        assert consumer.probe().live
        service.error = None
        await t.advance(8)
        assert sorted(map(str, got)) == [f"b'<{number}>'" for number in range(5)]
        assert t.committed("orders", 0) == 5
        assert t.dead_letters("dlq") == []
        assert consumer.health().outages == ()
        assert consumer.probe().ready
    lines = [record.getMessage() for record in caplog.records if NAME in record.getMessage()]
    assert [line.partition(" registry=")[0] for line in lines] == [
        "a schema registry does not respond; asking again",
        "the schema registry responds again",
    ]
    # Five records, at most every 0.5 s at first and every 5 s later.
    assert service.asked <= 5 * 12


async def test_after_its_patience_the_policy_of_the_handler_decides() -> None:
    service = Service(ConnectionError("refused"))
    registry = SchemaRegistry(NAME, patience=10.0)
    consumer = Consumer(group_id="billing", decoder=registry.decoder(service.open))
    got: list[object] = []

    @consumer.handler("orders", on_error=Pause(probe_after=30))
    async def bill(value: bytes) -> None:
        got.append(value)

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1", partition=0)
        await t.advance(9)
        assert consumer.health().failure_pauses == ()
        await t.advance(5)
        (pause,) = consumer.health().failure_pauses
        assert "ConnectionError" in pause.error
        service.error = None
        await t.advance(40)
        assert got == [b"<1>"]
        assert consumer.health().outages == ()


async def test_a_schema_that_is_not_there_is_an_error_of_the_value() -> None:
    service = Service(UNKNOWN)
    consumer = Consumer(group_id="billing", decoder=SchemaRegistry(NAME).decoder(service.open))

    @consumer.handler("orders", dead_letter="dlq")
    async def bill(value: bytes) -> None: ...

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1")
        await t.advance(1)
        assert len(t.dead_letters("dlq")) == 1
        assert consumer.health().outages == ()
    assert service.asked == 1


async def test_a_deserializer_that_cannot_be_opened_blames_no_value() -> None:
    async def wrong() -> Service:
        raise ValueError("Unrecognized properties: use.latest")

    consumer = Consumer(group_id="billing", decoder=SchemaRegistry(NAME).decoder(wrong))

    @consumer.handler("orders", on_error=Pause(probe_after=30))
    async def bill(value: bytes) -> None: ...

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1", partition=0)
        await t.advance(1)
        assert len(consumer.health().failure_pauses) == 1
        assert t.committed("orders", 0) in (None, 0)


async def test_a_sync_deserializer_would_block_the_loop() -> None:
    def sync(data: bytes, context: object) -> bytes:
        return data

    consumer = Consumer(group_id="billing", decoder=SchemaRegistry(NAME).decoder(lambda: sync))

    @consumer.handler("orders", on_error=Pause(probe_after=30))
    async def bill(value: bytes) -> None: ...

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1", partition=0)
        await t.advance(1)
        assert len(consumer.health().failure_pauses) == 1


async def test_an_encoder_waits_for_the_registry_too() -> None:
    service = Service(ConnectionError("refused"))
    registry = SchemaRegistry(NAME)
    consumer = Consumer(group_id="billing")
    calls: list[bytes] = []

    @consumer.handler("orders", publish_to="out", encoder=registry.encoder(service.open))
    async def bill(value: bytes) -> bytes:
        calls.append(value)
        return value

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1", partition=0)
        await t.advance(10)
        assert [outage.name for outage in consumer.health().outages] == [NAME]
        service.error = None
        await t.advance(6)
        assert [record.value for record in t.records("out")] == [b"<1>"]
        assert t.committed("orders", 0) == 1
    assert calls == [b"1"]


async def test_an_outage_that_no_record_notices_any_more_is_forgotten() -> None:
    service = Service(ConnectionError("refused"))
    registry = SchemaRegistry(NAME, patience=0.0)
    consumer = Consumer(group_id="billing", decoder=registry.decoder(service.open))

    @consumer.handler("orders", on_error="skip")
    async def bill(value: bytes) -> None: ...

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1")
        await t.advance(30)
        assert len(consumer.health().outages) == 1
        await t.advance(40)
        assert consumer.health().outages == ()


async def test_a_call_that_waits_is_cancelled_with_its_partition() -> None:
    service = Service(ConnectionError("refused"))
    consumer = Consumer(group_id="billing", decoder=SchemaRegistry(NAME).decoder(service.open))

    @consumer.handler("orders")
    async def bill(value: bytes) -> None: ...

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1", partition=0)
        await t.advance(3)
        await t.lose(("orders", 0))
        asked = service.asked
        await t.advance(30)
        assert service.asked == asked


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SchemaRegistry(""), "SchemaRegistry\\(name\\) is empty"),
        (lambda: SchemaRegistry(NAME, patience=-1.0), "patience"),
        (lambda: SchemaRegistry(NAME, timeout=0.0), "timeout"),
        (lambda: SchemaRegistry(NAME).decoder("avro"), "takes a function that opens it"),  # type: ignore[arg-type]
    ],
)
def test_wrong_options_are_rejected(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def messages() -> tuple[Any, Any, Any]:
    """The classes of ``Money``, of ``Order``, which refers to it and is second in its file, and of
    ``Order.Line``, the second one in that."""
    pool = POOLS.DescriptorPool()
    money = DESCRIPTORS.FileDescriptorProto(name="money.proto", syntax="proto3", package="shop")
    money.message_type.add(name="Money").field.add(name="cents", number=1, type=3, label=1)
    pool.Add(money)
    orders = DESCRIPTORS.FileDescriptorProto(
        name="orders.proto", syntax="proto3", package="shop", dependency=["money.proto"]
    )
    orders.message_type.add(name="Other")
    order = orders.message_type.add(name="Order")
    order.nested_type.add(name="Unused")
    line = order.nested_type.add(name="Line")
    line.field.add(name="count", number=1, type=3, label=1)
    order.field.add(name="id", number=1, type=3, label=1)
    order.field.add(name="total", number=2, type=11, type_name=".shop.Money", label=1)
    pool.Add(orders)
    names = ("Money", "Order", "Order.Line")
    money, order, line = (pool.FindMessageTypeByName(f"shop.{name}") for name in names)
    get: Any = CLASSES.GetMessageClass
    return get(money), get(order), get(line)


async def test_protobuf_has_the_id_and_the_indexes_of_its_message_before_the_payload() -> None:
    money, order, _ = messages()
    client: Any = AsyncSchemaRegistryClient.new_client({"url": "mock://"})
    registry = SchemaRegistry(NAME)
    consumer = Consumer(group_id="billing")
    got: list[Any] = []

    @consumer.handler(
        "orders",
        decoder=registry.decoder(lambda: CONFLUENT.AsyncProtobufDeserializer(order, None, client)),
        encoder=registry.encoder(lambda: CONFLUENT.AsyncProtobufSerializer(money, client)),
        publish_to="totals",
        dead_letter="dlq",
    )
    async def bill(value: Any) -> Any:
        got.append(value)
        return value.total

    producer = registry.encoder(lambda: CONFLUENT.AsyncProtobufSerializer(order, client))
    written: Any = await producer("orders", order(id=1, total=money(cents=3)))
    assert written is not None
    assert written[:1] == b"\0"
    assert written[5:7] == b"\2\2"  # one index, zigzag: the second message of the file
    async with TestConsumer(consumer) as t:
        await t.publish("orders", written, partition=0)
        await t.publish("orders", written[:5] + b"\2\2\xff", partition=0)
        await t.advance(1)
        assert len(t.dead_letters("dlq")) == 1
        (total,) = t.records("totals")
        assert total.value is not None
        assert total.value[5:] == b"\0" + money(cents=3).SerializeToString()
    assert [(value.id, value.total.cents) for value in got] == [(1, 3)]


def framed(content: bytes | None) -> Record:
    return Record("orders", 0, 0, 0, 0, None, content)


async def test_protobuf_is_read_without_the_registry_as_a_serializer_has_written_it() -> None:
    client: Any = AsyncSchemaRegistryClient.new_client({"url": "mock://"})
    money, order, line = messages()
    for kind, value in (
        (money, money(cents=3)),
        (order, order(id=1, total=money(cents=4))),
        (line, line(count=5)),
    ):
        write = await CONFLUENT.AsyncProtobufSerializer(kind, client)
        context = SerializationContext("orders", MessageField.VALUE)
        written = await write(value, context)
        decode = protobuf_decoder(kind)
        assert decode(framed(written)) == value
        assert decode(framed(None)) is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no schema id"),
        (b"\0\0\0\0\1", "no schema id"),
        (b"\1\0\0\0\1\0", "no schema id"),
        (b"\0\0\0\0\1\4\2", "no schema id"),  # two indexes, and only one is there
        (b"\0\0\0\0\1\1", "no schema id"),  # a negative count
        (b"\0\0\0\0\1" + b"\xff" * 100_000, "no schema id"),
        (b"\0\0\0\0\1\xfe\xff\xff\xff\x0f" + b"\2" * 1000, "no schema id"),
        (b"\0\0\0\0\1\0\x08\1", r"is message \(0,\) of its file, not \(1,\)"),
        (b"\0\0\0\0\1\4\2\2\x08\1", r"is message \(1, 1\) of its file"),
    ],
)
def test_a_value_with_other_framing_does_not_decode(content: bytes, reason: str) -> None:
    _, order, _ = messages()
    with pytest.raises(DecodeError, match=reason):
        protobuf_decoder(order)(framed(content))


def test_a_class_that_is_no_message_is_rejected() -> None:
    with pytest.raises(ConfigError, match="protoc has generated"):
        protobuf_decoder(int)
