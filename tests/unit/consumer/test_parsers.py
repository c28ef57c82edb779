"""Each parser of JSON and MessagePack has an end for values that are nested too deeply.

Python and msgspec raise RecursionError for these, which is neither ValueError nor DecodeError. So
each call of a parser is in a ``try`` that catches it, or its input is what this library or the user
of the process has written.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parents[3] / "asyncrevoke"
PARSERS = {"json.loads", "json.load", "msgspec.json.decode", "msgspec.msgpack.decode"}
CATCHES = {"RecursionError", "Exception", "BaseException"}

# Input that is not from outside.
OWN = {
    "audit/comparison.py::_anomaly": "objects of strings and numbers that its query has made",
    "cli/demo/member/main.py::main": "the arguments of a process that the demo has started",
    "cli/demo/member/handler_log.py::read": "the log of such a process",
    "cli/demo/member/aiokafka_member.py::_handle": "records that the demo has written",
    "cli/demo/visible_results.py::read_results": "records that members of the demo have written",
    "cli/run/workers/main.py::main": "the arguments of a worker process",
    "cli/run/settings.py::read_report": "reports of a worker process",
    "spark/audits/journal.py::overview": "results of tasks",
    "spark/audits/run.py::_compared": "results of tasks",
    "spark/audits/segments.py::check_files": "results of tasks",
}


def is_decoder(value: ast.expr, known: set[str]) -> bool:
    """Whether an expression makes a Decoder, or takes the method of one."""
    for node in ast.walk(value):
        if isinstance(node, ast.Call) and name_of(node.func).endswith("Decoder"):
            return True
        if isinstance(node, ast.Attribute):
            owner, _, method = name_of(node).rpartition(".")
            if method == "decode" and owner.rpartition(".")[2] in known:
                return True
    return False


def name_of(node: ast.expr) -> str:
    """A dotted name; empty for any other expression."""
    return ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""


def decoders(tree: ast.Module) -> set[str]:
    """The last parts of the names that decoders are bound to in a module."""
    found: set[str] = set()
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        else:
            continue
        if node.value is not None and is_decoder(node.value, found):
            found |= {name_of(target).rpartition(".")[2] for target in targets}
    return found - {""}


def uncaught(
    node: ast.AST, known: set[str], function: str = "", *, caught: bool = False
) -> Iterator[str]:
    """The functions that call a parser outside a ``try`` that catches RecursionError."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        function, caught = node.name, False
    if isinstance(node, ast.Call) and not caught:
        name = name_of(node.func)
        owner, _, method = name.rpartition(".")
        of_decoder = method == "decode" and owner.rpartition(".")[2] in known
        if name in PARSERS or method in known or of_decoder:
            yield function
    if isinstance(node, ast.Try):
        kinds: set[str] = set()
        for handler in node.handlers:
            kind = handler.type
            parts = kind.elts if isinstance(kind, ast.Tuple) else [kind] if kind else []
            kinds |= {ast.unparse(one) for one in parts}
        for each in node.body:
            yield from uncaught(each, known, function, caught=caught or bool(kinds & CATCHES))
        rest: list[ast.AST] = [*node.handlers, *node.orelse, *node.finalbody]
    else:
        rest = list(ast.iter_child_nodes(node))
    for part in rest:
        yield from uncaught(part, known, function, caught=caught)


def test_each_parser_of_data_from_outside_catches_recursion_errors() -> None:
    found = {
        f"{path.relative_to(PACKAGE).as_posix()}::{function}"
        for path in PACKAGE.rglob("*.py")
        for tree in [ast.parse(path.read_text(encoding="utf-8"))]
        for function in uncaught(tree, decoders(tree))
    }
    assert found == set(OWN)
