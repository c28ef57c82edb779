"""The pages on the architecture name the folders, functions and calls that the code has."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "asyncrevoke"
PAGE = "\n".join(
    (ROOT / "docs" / "internals" / f"{name}.md").read_text()
    for name in ("architecture", "where-to-look", "how-it-runs", "changing-the-core")
)
REFERENCE = re.compile(r"`([\w/]+\.py)::([\w.]+)`")
LATER = "(*later*)"
# Sections with numbered steps that do not call each other.
INSTRUCTIONS = ("How to change a state table",)
# Protocols of pyarrow's classes.
FOREIGN = "client/columns/arrow.py"


def file_of(path: str) -> Path:
    """Where a file is that the page names: in the package, unless it is a test."""
    return (ROOT if path.startswith("tests/") else PACKAGE) / path


def functions_of(path: Path) -> dict[str, ast.AST]:
    """Classes and functions of a module by qualified name."""
    found: dict[str, ast.AST] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found[prefix + child.name] = child
                visit(child, f"{prefix}{child.name}.")

    visit(ast.parse(path.read_text()), "")
    return found


def walks() -> dict[str, list[str]]:
    """The steps of each walk, by the heading above them."""
    found: dict[str, list[str]] = {}
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        steps = re.findall(r"^\d+\. (.+(?:\n   .+)*)", body, flags=re.MULTILINE)
        if steps and title not in INSTRUCTIONS:
            found[title] = steps
    return found


def calls_of(node: ast.AST) -> set[str]:
    """Every name and attribute that a function mentions."""
    return {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)} | {
        each.id for each in ast.walk(node) if isinstance(each, ast.Name)
    }


def test_every_function_on_the_page_exists() -> None:
    references = REFERENCE.findall(PAGE)
    assert len(references) > 50
    missing = [
        f"{path}::{name}" for path, name in references if name not in functions_of(file_of(path))
    ]
    assert missing == []


@pytest.mark.parametrize("title", walks())
def test_each_step_of_a_walk_calls_the_next_one(title: str) -> None:
    steps = walks()[title]
    assert len(steps) >= 8
    for step, following in pairwise(steps):
        (path, name), *_ = REFERENCE.findall(step)
        (_, next_name), *_ = REFERENCE.findall(following)
        if LATER not in step:
            calls = calls_of(functions_of(PACKAGE / path)[name])
            assert next_name.rpartition(".")[2] in calls, f"{name} does not call {next_name}"


def test_every_file_and_table_on_the_page_exists() -> None:
    files = re.findall(r"`((?:client|handlers|spark|tests)/[\w/]+\.py)`", PAGE)
    assert len(files) > 8
    assert [path for path in files if not file_of(path).is_file()] == []
    instance = (PACKAGE / "client" / "core" / "partition" / "instance.py").read_text()
    for table in ("PERMISSIONS", "TRANSITIONS"):
        assert f"`{table}`" in PAGE
        assert f"\n{table}: dict[" in instance


def test_the_page_answers_where_to_look() -> None:
    page = (ROOT / "docs" / "internals" / "where-to-look.md").read_text()
    answers = re.findall(r"^\| ([^|]+\?) \| (.+) \|$", page, flags=re.MULTILINE)
    assert len(answers) > 80
    unnamed = [question for question, answer in answers if "`" not in answer]
    assert unnamed == []


def test_the_page_lists_exactly_the_folders_that_there_are() -> None:
    listed = re.findall(r"^\| `([\w/]+)` \|", PAGE, flags=re.MULTILINE)
    folders = {
        str(path.parent.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if path.parent != PACKAGE
    }
    # What `asyncrevoke init` writes is text, and static files are no modules.
    assert set(listed) == folders
    assert len(listed) == len(set(listed))


def test_each_protocol_names_the_class_that_implements_it() -> None:
    """An editor's "go to definition" ends at a protocol; its docstring leads on."""
    unnamed: list[str] = []
    for path in sorted(set(PACKAGE.rglob("*.py")) - {PACKAGE / FOREIGN}):
        for node in ast.parse(path.read_text("utf-8")).body:
            if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
                continue
            is_protocol = any(ast.unparse(base).startswith("Protocol") for base in node.bases)
            if is_protocol and "mplemented by" not in " ".join(
                (ast.get_docstring(node) or "").split()
            ):
                unnamed.append(f"{path.relative_to(PACKAGE)}::{node.name}")
    assert unnamed == []
