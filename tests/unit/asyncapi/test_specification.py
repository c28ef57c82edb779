"""Documents are valid by the JSON Schema of AsyncAPI 3.0, and schemas in them by their draft."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, cast

import jsonschema
import msgspec
import pytest
from referencing import Registry
from referencing.jsonschema import DRAFT7
from unit.asyncapi import described_consumer
from unit.asyncapi.described_consumer import Line, Placed, Transfer

SPECIFICATION = Path(__file__).with_name("asyncapi-3.0.0.json")


@cache
def specification() -> jsonschema.Draft7Validator:
    schema = json.loads(SPECIFICATION.read_text("utf-8"))
    parts = ((name, DRAFT7.create_resource(part)) for name, part in schema["definitions"].items())
    registry = cast("Any", Registry)().with_resources(parts)
    return jsonschema.Draft7Validator(schema, registry=registry)


@pytest.fixture
def document() -> Any:
    return json.loads(json.dumps(described_consumer.consumer.asyncapi()))


def test_the_document_is_valid(document: Any) -> None:
    assert [error.message for error in specification().iter_errors(document)] == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("operations/unit.asyncapi.described_consumer.bill/action", "sends"),
        ("channels/orders/topic", "orders"),
        ("channels/orders/bindings/kafka/partitions", 0),
        ("components/schemas/Placed/discriminator", {}),
        ("servers/kafka-1_9092/protocol", 1),
    ],
)
def test_a_document_that_is_not_valid_is_found(document: Any, path: str, value: object) -> None:
    *folders, name = path.split("/")
    place = document
    for folder in folders:
        place = place[folder]
    place[name] = value
    assert not specification().is_valid(document)


@pytest.mark.parametrize(
    ("name", "value", "valid"),
    [
        ("Placed", Placed(1, [Line("a", 2)], (1, "m"), Placed(2, [], (1, "s"))), True),
        ("Placed", {"type": "placed", "id": 1, "lines": [], "size": [1]}, False),
        ("Placed", {"type": "placed", "id": 1, "lines": [], "size": ["1", 1]}, False),
        ("Placed", {"type": "placed", "id": 1, "lines": [{"sku": "a", "count": 0}]}, False),
        ("Placed", {"type": "other", "id": 1, "lines": [], "size": [1, "m"]}, False),
        ("Transfer", Transfer(transferId=1, iban="DE", parts={"a": (1, 2)}), True),
        ("Transfer", {"transferId": 1, "iban": "1"}, False),
    ],
)
def test_a_schema_accepts_what_its_type_does(
    document: Any, name: str, value: object, valid: bool
) -> None:
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    plain: Any = value.model_dump(by_alias=True) if isinstance(value, Transfer) else value
    instance = json.loads(msgspec.json.encode(plain))
    assert jsonschema.Draft7Validator(schema).is_valid(instance) is valid
