"""asyncrevoke opens its connections itself: of aiokafka it uses the record codec."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[4] / "asyncrevoke"
# The demonstration compares a member of aiokafka's with one of asyncrevoke's, and has aiokafka read
# the results.
ELSEWHERE = {
    "cli/demo/member/aiokafka_member.py",
    "cli/demo/producer.py",
    "cli/demo/run.py",
    "cli/demo/visible_results.py",
}
PARTS = ("aiokafka.record", "aiokafka.codec", "aiokafka.partitioner", "aiokafka.abc")


def test_no_module_uses_more_of_aiokafka_than_its_codec_and_the_class_of_token_providers() -> None:
    naming = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if any(
            name.partition(".")[0] == "aiokafka" and not name.startswith(PARTS)
            for name in imported(node)
        )
    }
    assert naming == ELSEWHERE


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [name.name for name in node.names] if isinstance(node, ast.Import) else []
