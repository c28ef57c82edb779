"""Writes the options into pages of ``docs/reference``, from the text beside each.

python tests/documentation/option_reference.py
"""

import argparse
import ast
import dataclasses
import inspect
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import UnionType
from typing import Literal, Union, get_args, get_origin

from asyncrevoke.client.config import ConsumerConfig, consumer_options

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
# Each page has the options from this one on, up to the first one of the next page.
PAGES = {
    "bootstrap_servers": REFERENCE / "configuration.md",
    "auto_offset_reset": REFERENCE / "fetch-and-connection-options.md",
}
BEGIN = "<!-- options: begin (written by tests/documentation/option_reference.py) -->"
END = "<!-- options: end -->"
LIST_PAGE = REFERENCE / "api" / "consumer.md"
BEGIN_LIST = "<!-- list of options: begin (written by tests/documentation/option_reference.py) -->"
END_LIST = "<!-- list of options: end -->"

# The first option of each chapter, in the order of the options.
CHAPTERS = {
    "bootstrap_servers": "The group",
    "commit_mode": "When a record is done",
    "concurrency": "Concurrency",
    "client_id": "Identity",
    "group_protocol": "Assignment",
    "compression": "Publishing",
    "auto_offset_reset": "Reading",
    "session_timeout": "Membership and its times",
    "request_timeout": "Requests",
    "security_protocol": "Security",
}


def options() -> Iterator[tuple[str, str, str, str]]:
    """Name, type, default and description of each option, in their order."""
    defaults = {field.name: field.default for field in dataclasses.fields(ConsumerConfig)}
    (tree,) = ast.parse(inspect.getsource(ConsumerConfig)).body
    assert isinstance(tree, ast.ClassDef)
    body = [*tree.body, ast.Pass()]
    for statement, following in itertools.pairwise(body):
        if not isinstance(statement, ast.AnnAssign):
            continue
        name = ast.unparse(statement.target)
        assert isinstance(following, ast.Expr), f"{name} has no description"
        assert isinstance(following.value, ast.Constant), f"{name} has no description"
        yield (
            name,
            spelled_out(ast.unparse(statement.annotation)),
            readable(defaults[name]),
            markdown(str(following.value.value)),
        )


def spelled_out(annotation: str) -> str:
    """An annotation without aliases: the values of a Literal instead of its name."""

    def values(alias: re.Match[str]) -> str:
        meaning = getattr(consumer_options, alias[0], None)
        if get_origin(meaning) in (Literal, UnionType, Union):
            return " | ".join(values_of(meaning))
        return alias[0]

    return re.sub(r"\w+", values, annotation)


def values_of(meaning: object) -> Iterator[str]:
    for part in get_args(meaning):
        if get_origin(part) is Literal:
            yield from values_of(part)
        elif get_origin(part) is Callable:
            parameters, result = get_args(part)
            names = ", ".join(parameter.__name__ for parameter in parameters)
            yield f"Callable[[{names}], {result.__name__}]"
        else:
            yield part.__name__ if isinstance(part, type) else f'"{part}"'


def readable(default: object) -> str:
    """A default as a user would write it."""
    mib = 1024 * 1024
    if isinstance(default, int) and default >= mib and default % mib == 0:
        return f"{default // mib} * 1024 * 1024"
    return repr(default).replace("'", '"')


def markdown(text: str) -> str:
    """reStructuredText of a docstring as Markdown, each hazard in a paragraph of its own."""
    text = " ".join(text.split())
    text = re.sub(r":class:`~?[\w.]*?(\w+)`", r"`\1`", text).replace("``", "`")
    return re.sub(r" (Hazards?)( of [^:]*)?:", r"\n\n**\1\2:**", text)


def reference(of_page: Path) -> str:
    """The generated part of a page."""
    parts: list[str] = []
    page = of_page
    for name, annotation, default, text in options():
        page = PAGES.get(name, page)
        if page != of_page:
            continue
        if name in CHAPTERS:
            parts.append(f"## {CHAPTERS[name]}")
        parts.append(f"### `{name}`")
        parts.append(f"`{annotation}`, default `{default}`")
        parts.append(text)
    return "\n\n".join([BEGIN, *parts, END])


def list_of_options() -> str:
    """The names of all options by chapter, each with a link to its description."""
    chapters: dict[str, list[str]] = {}
    chapter = page = ""
    for name, *_ in options():
        page = PAGES[name].name if name in PAGES else page
        chapter = CHAPTERS.get(name, chapter)
        chapters.setdefault(chapter, []).append(f"[`{name}`](../{page}#{name})")
    rows = [f"| {chapter} | {', '.join(links)} |" for chapter, links in chapters.items()]
    return "\n".join([BEGIN_LIST, "| about | options |", "|---|---|", *rows, END_LIST])


def with_reference(page: Path) -> str:
    """The text of a page with its generated part renewed."""
    is_list = page == LIST_PAGE
    begin, end = (BEGIN_LIST, END_LIST) if is_list else (BEGIN, END)
    before, _, rest = page.read_text().partition(begin)
    _, _, after = rest.partition(end)
    return before + (list_of_options() if is_list else reference(page)) + after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description="Write the options into their pages of docs/reference."
    )
    parser.parse_args()
    for path in (*PAGES.values(), LIST_PAGE):
        path.write_text(with_reference(path))
