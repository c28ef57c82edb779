"""What the AsyncAPI document of a consumer says of its handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from unit.asyncapi import described_consumer

from asyncrevoke import ConfigError, Consumer, Router
from asyncrevoke.integrations.schema_registry import SchemaRegistry

if TYPE_CHECKING:
    from asyncrevoke.handlers.asyncapi.objects import AsyncApi

MODULE = "unit.asyncapi.described_consumer"


@pytest.fixture(scope="module")
def document() -> AsyncApi:
    return described_consumer.consumer.asyncapi(version="2.1.0", description="Bills orders.")


def operation(document: AsyncApi, name: str) -> Any:
    return document["operations"][f"{MODULE}.{name}"]


def messages_of(document: AsyncApi, name: str) -> list[Any]:
    """The messages of an operation, which have to be some of its channel's."""
    found: list[Any] = []
    of = operation(document, name)
    for reference in of["messages"]:
        assert reference["$ref"].startswith(f"{of['channel']['$ref']}/messages/")
        place: Any = document
        for part in reference["$ref"].split("/")[1:]:
            place = place[part]
        found.append(place)
    return found


def names(messages: list[Any]) -> list[str]:
    return [message["name"] for message in messages]


def test_the_document_is_of_the_group(document: AsyncApi) -> None:
    assert document["asyncapi"] == "3.0.0"
    assert document["info"] == {
        "title": "billing",
        "version": "2.1.0",
        "description": "Bills orders.",
        "tags": [{"name": "consumer group"}],
    }


def test_servers_are_named_without_secrets(document: AsyncApi) -> None:
    security = [{"$ref": "#/components/securitySchemes/sasl"}]
    assert document["servers"] == {
        "kafka-1_9092": {
            "host": "kafka-1:9092",
            "protocol": "kafka-secure",
            "security": security,
        },
        "1_9093": {"host": "[::1]:9093", "protocol": "kafka-secure", "security": security},
    }
    assert document["components"].get("securitySchemes") == {
        "sasl": {"type": "scramSha512", "description": "SASL SCRAM-SHA-512"}
    }
    assert "hunter2" not in str(document)
    assert "billing-user" not in str(document)


def test_each_topic_is_a_channel(document: AsyncApi) -> None:
    addresses = {name: channel.get("address") for name, channel in document["channels"].items()}
    assert addresses == {
        **{
            topic: topic
            for topic in (
                *("orders", "orders.retry", "failed", "invoices", "transfers", "receipts"),
                *("packed", "packed.old", "texts", "words"),
            )
        },
        "pattern.audit-.": None,
    }
    tags = {
        name: channel["tags"] for name, channel in document["channels"].items() if "tags" in channel
    }
    assert tags == {
        "orders.retry": [{"name": "retry topic"}],
        "failed": [{"name": "dead letter topic"}],
    }


def test_a_handler_receives_each_kind_of_a_union_by_itself(document: AsyncApi) -> None:
    received = operation(document, "bill")
    assert received["action"] == "receive"
    assert received["summary"] == "Bill an order."
    assert received["description"] == (
        "The customer gets an invoice.\n\nIs called at most 3 times. A failed record is sent to "
        "orders.retry and handled again after 60 s, at most 3 times. A record that fails for good "
        "is sent to failed."
    )
    assert received["tags"] == [{"name": MODULE}]
    binding = received["bindings"]["kafka"]
    assert binding["groupId"]["enum"] == ["billing"]
    assert binding["clientId"]["enum"] == ["billing-service"]
    placed, cancelled, tombstone = messages_of(document, "bill")
    assert placed["payload"] == {"$ref": "#/components/schemas/Placed"}
    assert placed["contentType"] == "application/json"
    assert cancelled["payload"] == {"$ref": "#/components/schemas/Cancelled"}
    assert tombstone["payload"]["type"] == "null"
    assert "contentType" not in tombstone
    key = placed["bindings"]["kafka"]["key"]
    assert key["description"].startswith("Records of a key are handled one after another")


def test_a_handler_sends_its_results(document: AsyncApi) -> None:
    assert operation(document, "bill.results")["action"] == "send"
    (invoice,) = messages_of(document, "bill.results")
    assert invoice["payload"] == {"$ref": "#/components/schemas/Invoice"}
    assert names(messages_of(document, "sepa.results")) == ["Receipt", "Tombstone"]
    (text,) = messages_of(document, "split.results")
    assert (text["contentType"], text["payload"]) == ("text/plain", {"type": "string"})


def test_failed_records_are_sent_to_the_retry_topic_and_received_from_it(
    document: AsyncApi,
) -> None:
    assert operation(document, "bill.failures")["action"] == "send"
    assert operation(document, "bill.retries")["action"] == "receive"
    assert operation(document, "bill.retries")["channel"] == {"$ref": "#/channels/orders.retry"}
    retried = messages_of(document, "bill.retries")
    assert names(retried) == ["Placed", "Cancelled", "Tombstone"]
    assert {message["headers"]["$ref"] for message in retried} == {
        "#/components/schemas/RetryHeaders"
    }
    headers = cast("Any", document["components"].get("schemas", {})["RetryHeaders"])
    assert {"asyncrevoke-origin-topic", "asyncrevoke-due"} < set(headers["required"])


def test_a_dead_letter_has_any_value_of_its_handlers_and_the_headers_of_a_failure(
    document: AsyncApi,
) -> None:
    assert operation(document, "sepa.dead_letters")["action"] == "send"
    (letter,) = messages_of(document, "bill.dead_letters")
    assert messages_of(document, "sepa.dead_letters") == [letter]
    alternatives = letter["payload"]["anyOf"]
    assert [one.get("$ref", "").rpartition("/")[2] for one in alternatives] == [
        *("Placed", "Cancelled", "", "Transfer", ""),
    ]
    assert alternatives[-1] == {"description": "A value that does not decode."}
    assert letter["headers"] == {"$ref": "#/components/schemas/DeadLetterHeaders"}


def test_handlers_of_one_topic_have_messages_with_the_headers_that_choose_them(
    document: AsyncApi,
) -> None:
    (of_sepa,), (of_card,) = messages_of(document, "sepa"), messages_of(document, "card")
    assert of_sepa["headers"]["properties"]["type"]["enum"] == ["sepa"]
    assert of_sepa["headers"]["required"] == ["type"]
    assert of_card["headers"]["properties"]["type"]["enum"] == ["card", "cash"]
    assert "match by_header('type', 'sepa')" in operation(document, "sepa")["description"]


def test_values_without_a_schema_are_binary(document: AsyncApi) -> None:
    (undecoded,) = messages_of(document, "audit")
    assert undecoded["contentType"] == "application/octet-stream"
    assert undecoded["payload"]["format"] == "binary"
    (packed,) = messages_of(document, "packed.packed.old")
    assert packed["name"] == "Line"
    assert packed["payload"] == {
        "type": "string",
        "format": "binary",
        "description": "A value that <lambda> decodes to Line.",
    }


def test_handlers_of_routers_are_described_too() -> None:
    router = Router()

    @router.handler("refunds")
    async def refund(value: dict[str, int]) -> None: ...

    consumer = Consumer(group_id="billing", order_by="partition")
    consumer.include_router(router)
    document = consumer.asyncapi(title="Refunds")
    assert document["info"].get("title") == "Refunds"
    (message,) = document["channels"]["refunds"].get("messages", {}).values()
    assert message.get("payload") == {
        "type": "object",
        "additionalProperties": {"type": "integer"},
    }
    assert "Records of a partition" in str(message.get("bindings"))


def test_values_of_a_registry_begin_with_the_id_of_their_schema() -> None:
    async def serialize(value: object, context: object) -> bytes:
        return b""

    registry = SchemaRegistry("registry:8081")
    consumer = Consumer(group_id="billing")

    @consumer.handler(
        "orders",
        decoder=registry.decoder(lambda: serialize),
        encoder=registry.encoder(lambda: serialize),
        publish_to="invoices",
    )
    async def bill(order: described_consumer.Line) -> described_consumer.Invoice:
        return described_consumer.Invoice(order.count, 0.0)

    channels = consumer.asyncapi()["channels"]
    for topic in ("orders", "invoices"):
        (message,) = channels[topic].get("messages", {}).values()
        binding = message.get("bindings", {})["kafka"]
        assert binding["schemaIdLocation"] == "payload"
        assert binding["schemaIdPayloadEncoding"] == "4"
        assert message.get("contentType") == "application/octet-stream"


def test_handlers_with_one_name_are_told_apart() -> None:
    consumer = Consumer(group_id="billing")
    for topic in ("orders", "refunds"):

        @consumer.handler(topic)
        async def handle(value: bytes) -> None: ...

    assert len(consumer.asyncapi()["operations"]) == 2


def test_a_consumer_without_handlers_has_no_document() -> None:
    with pytest.raises(ConfigError, match="this consumer has none"):
        Consumer("orders", group_id="billing").asyncapi()
