"""The page of a document: complete, and with nothing in it that a browser would run or load."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
import yaml
from typer.testing import CliRunner
from unit.asyncapi import described_consumer

from asyncrevoke import Consumer
from asyncrevoke.cli.app import app
from asyncrevoke.web.asyncapi.page import page
from asyncrevoke.web.asyncapi.schema_table import rows, type_of

if TYPE_CHECKING:
    from pathlib import Path

TARGET = "unit.asyncapi.described_consumer:consumer"


def shown(schema: dict[str, Any]) -> str:
    return "".join(part.text for part in type_of(schema))


def test_all_links_lead_to_a_part_of_the_page_and_no_id_is_used_twice() -> None:
    html = page(described_consumer.consumer.asyncapi())
    ids = re.findall(r' id="([^"]+)"', html)
    links = re.findall(r' href="#([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert set(links) <= set(ids)
    assert {"channel-orders", "message-orders-Placed", "schema-Line"} <= set(links)


def test_the_page_names_handlers_topics_types_and_limits() -> None:
    html = page(described_consumer.consumer.asyncapi())
    text = re.sub(r"<style>.*?</style>|<[^>]+>", " ", html)
    for part in (
        *("Bill an order.", "orders.retry", "retry topic", "transferId", "How many are ordered."),
        *("minimum: 1", "whose whole name matches audit-.*", "kafka-1:9092"),
    ):
        assert part in text, part


def test_the_page_has_the_document_to_be_saved() -> None:
    document = described_consumer.consumer.asyncapi()
    (encoded,) = re.findall(r'href="data:application/json;base64,([^"]+)"', page(document))
    assert json.loads(base64.b64decode(encoded)) == document


def test_text_of_the_application_cannot_become_markup() -> None:
    attack = '"><script>alert(1)</script>'
    kind = msgspec.defstruct("Odd", [("field", int)], rename={"field": attack.replace('"', "'")})
    kind.__doc__ = attack
    consumer = Consumer(group_id=attack)

    async def handle(value: bytes) -> None: ...

    handle.__doc__ = attack
    handle.__annotations__["value"] = kind
    consumer.handler("orders")(handle)
    html = page(consumer.asyncapi(description=attack, version=attack))
    assert "<script" not in html
    assert "default-src 'none'" in html
    assert html.count("&lt;script&gt;alert(1)") >= 5


def test_the_page_loads_nothing() -> None:
    html = page(described_consumer.consumer.asyncapi())
    sources = re.findall(r'(?:src|href)="([^"]+)"', html)
    assert [one for one in sources if not one.startswith(("#", "data:"))] == []


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ({"type": "array", "items": {"$ref": "#/components/schemas/Line"}}, "array of Line"),
        ({"type": "array", "items": [{"type": "integer"}, {}]}, "array of integer, any value"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer or null"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "object of string"),
        ({"type": ["string", "null"], "format": "date"}, "string or null (date)"),
        ({"enum": ["a", 1]}, '"a" or 1'),
        ({"const": None}, "null"),
        ({"description": "?"}, "any value"),
    ],
)
def test_types_are_named(schema: dict[str, Any], name: str) -> None:
    assert shown(schema) == name


def test_fields_of_objects_inside_are_listed_up_to_a_depth() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    schema["properties"]["below"] = schema
    found = list(rows(schema))
    assert [row.name for row in found[:2]] == ["below", "below.below"]
    assert len(found) == 7
    endless: dict[str, Any] = {"type": "array"}
    endless["items"] = endless
    assert shown(endless).startswith("array of array of")


def test_the_command_writes_json_yaml_and_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = cast("Any", described_consumer.consumer.asyncapi(title="Bills", version="3.0.0"))
    about = ["--title", "Bills", "--app-version", "3.0.0"]
    printed = CliRunner().invoke(app, ["asyncapi", TARGET, *about])
    assert printed.exit_code == 0, printed.output
    assert json.loads(printed.stdout) == expected
    files = ["--out", "asyncapi.yaml", "--html", "asyncapi.html"]
    written = CliRunner().invoke(app, ["asyncapi", TARGET, *about, *files])
    assert (written.exit_code, written.stdout) == (0, "")
    assert yaml.safe_load((tmp_path / "asyncapi.yaml").read_text()) == expected
    assert (tmp_path / "asyncapi.html").read_text() == page(expected)
    in_json = CliRunner().invoke(app, ["asyncapi", TARGET, *about, "--out", "asyncapi.json"])
    assert in_json.exit_code == 0
    assert json.loads((tmp_path / "asyncapi.json").read_text()) == expected


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["no_such_module:consumer"], 2, "there is no module"),
        (["unit.asyncapi.described_consumer:bill"], 2, "has to be a Consumer"),
        (["unit.asyncapi.test_page:WITHOUT_HANDLERS"], 2, "this consumer has none"),
        ([TARGET, "--out", "missing/asyncapi.json"], 1, "missing"),
        ([TARGET, "--html", "missing/asyncapi.html"], 1, "missing"),
    ],
)
def test_the_command_says_what_is_wrong(
    arguments: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["asyncapi", *arguments])
    assert result.exit_code == code
    assert message in " ".join(result.stderr.split())


WITHOUT_HANDLERS = Consumer("orders", group_id="billing")
