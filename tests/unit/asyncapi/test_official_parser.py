"""The official parser of AsyncAPI reads our documents. It is a package for Node."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from unit.asyncapi import described_consumer

if TYPE_CHECKING:
    from pathlib import Path

PARSER = "@asyncapi/parser@3.6.6"
PROGRAM = """
const { Parser } = require("@asyncapi/parser");
const text = require("fs").readFileSync(process.argv[2], "utf8");
new Parser().parse(text).then(({ document, diagnostics }) => {
  const operations = document === undefined ? [] : document.operations().all();
  console.log(JSON.stringify({
    errors: diagnostics.filter((found) => found.severity < 2).map((found) => found.message),
    operations: Object.fromEntries(operations.map((operation) => [
      operation.id(),
      [operation.action(), operation.messages().all().map((message) => message.id())],
    ])),
  }));
});
"""


@pytest.fixture(scope="module")
def parser(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the parser and a program that calls it."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("there is no node with npm")
    folder = tmp_path_factory.mktemp("parser")
    install = [npm, "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
    installed = subprocess.run(
        [*install, PARSER], cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )
    if installed.returncode != 0:
        pytest.skip(f"npm cannot install {PARSER}: {installed.stderr[-300:]}")
    (folder / "parse.js").write_text(PROGRAM)
    return folder


def parsed(folder: Path, document: Any) -> Any:
    (folder / "document.json").write_text(json.dumps(document))
    command = ["node", "parse.js", "document.json"]
    output = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, check=True
    )
    return json.loads(output.stdout)


def test_the_parser_accepts_the_document_and_finds_its_operations(parser: Path) -> None:
    document = described_consumer.consumer.asyncapi()
    found = parsed(parser, document)
    assert found["errors"] == []
    assert found["operations"] == {
        name: [
            operation.get("action"),
            [message["$ref"].rpartition("/")[2] for message in operation.get("messages", [])],
        ]
        for name, operation in document["operations"].items()
    }


def test_the_parser_rejects_an_operation_with_a_message_of_another_channel(parser: Path) -> None:
    document: Any = described_consumer.consumer.asyncapi()
    operation = next(iter(document["operations"].values()))
    operation["messages"] = [{"$ref": "#/channels/invoices/messages/Invoice"}]
    assert parsed(parser, document)["errors"] != []
