"""Folders, files and functions stay small enough to be read."""

from __future__ import annotations

import ast
from collections import Counter
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("asyncrevoke", "benchmarks", "examples", "tests")
MOST_ENTRIES = 14
MOST_LINES = 500
MOST_LINES_OF_ONE_THOUGHT = 800
# What is read in one go, from top to bottom.
ONE_THOUGHT = {
    "asyncrevoke/client/core/core.py",
    "asyncrevoke/client/core/fetch/fetcher.py",
    "asyncrevoke/client/log_events.py",
    "asyncrevoke/client/core/membership/classic/member.py",
    "asyncrevoke/client/core/membership/kip848/member.py",
    "asyncrevoke/client/producing/transactions/transaction_core.py",
}
MOST_TOP_FOLDERS = 12
MOST_TOP_FILES = 8
MOST_LINES_OF_A_PAGE = 250
MOST_LINES_OF_A_FUNCTION = 60
MOST_PARAMETERS = 10


def files() -> list[Path]:
    """All modules of the project."""
    return sorted(chain.from_iterable((ROOT / folder).rglob("*.py") for folder in FOLDERS))


def test_no_folder_shows_more_than_fourteen_entries() -> None:
    entries: Counter[Path] = Counter()
    for folder in {path.parent for path in files()} - {ROOT / "asyncrevoke"}:
        for path in folder.iterdir():
            is_package = path.is_dir() and any(path.rglob("*.py"))
            entries[folder] += is_package or (path.is_file() and path.name != "__init__.py")
    assert {str(folder): count for folder, count in entries.items() if count > MOST_ENTRIES} == {}


def test_the_package_has_at_most_twelve_folders_and_eight_files_at_its_top() -> None:
    top = [path for path in (ROOT / "asyncrevoke").iterdir() if path.name != "__pycache__"]
    folders = sorted(path.name for path in top if path.is_dir())
    assert len(folders) <= MOST_TOP_FOLDERS, folders
    assert len(top) - len(folders) <= MOST_TOP_FILES, top


def test_no_file_has_more_than_five_hundred_lines_or_eight_hundred_of_one_thought() -> None:
    lines = {
        path.relative_to(ROOT).as_posix(): len(path.read_text("utf-8").splitlines())
        for path in files()
    }
    most = {
        path: MOST_LINES_OF_ONE_THOUGHT if path in ONE_THOUGHT else MOST_LINES for path in lines
    }
    assert {path: count for path, count in lines.items() if count > most[path]} == {}
    assert set(lines) >= ONE_THOUGHT


def test_no_function_of_the_package_has_more_than_sixty_lines_or_ten_parameters() -> None:
    found: list[str] = []
    for path in sorted((ROOT / "asyncrevoke").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            lines = (node.end_lineno or 0) - node.lineno + 1
            given = node.args
            parameters = len(given.posonlyargs + given.args + given.kwonlyargs)
            if lines > MOST_LINES_OF_A_FUNCTION or parameters > MOST_PARAMETERS + 1:
                where = path.relative_to(ROOT)
                found.append(f"{where}:{node.lineno} {node.name}: {lines} lines, {parameters}")
    assert found == []


def test_no_page_has_more_than_250_lines() -> None:
    pages = (ROOT / "docs").rglob("*.md")
    lines = {str(page): len(page.read_text("utf-8").splitlines()) for page in pages}
    assert {page: count for page, count in lines.items() if count > MOST_LINES_OF_A_PAGE} == {}


def test_no_folder_of_pages_shows_more_than_fourteen_entries() -> None:
    folders = [path for path in (ROOT / "docs").rglob("*") if path.is_dir()]
    entries = {
        str(folder): sum(not path.name.startswith("__") for path in folder.iterdir())
        for folder in folders
    }
    assert {name: count for name, count in entries.items() if count > MOST_ENTRIES} == {}
