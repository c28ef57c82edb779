"""Writes two pages of ``docs/reference`` from the events that the package declares.

python tests/documentation/log_events.py
"""

import argparse
import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from asyncrevoke.client import log_events
from asyncrevoke.client.log_events import LogEvent

PACKAGE = Path(log_events.__file__).parents[1]
DECLARATIONS = Path(log_events.__file__)
REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
# Each page has the chapters from this one on, up to the first one of the next page.
PAGES = {
    "Brokers and topics": REFERENCE / "log-events.md",
    "Stopping": REFERENCE / "more-log-events.md",
}
BEGIN = "<!-- events: begin (written by tests/documentation/log_events.py) -->"
END = "<!-- events: end -->"
CHAPTER = re.compile(r"^# --- (.+)$", re.MULTILINE)
LITERAL = re.compile(
    r"\w*(?:log|outbox)(?:ger)?\b[\w().]*\.(?:debug|info|warning|error|exception|critical|emit)"
    r"\(\s*f?[\"'][^\"']*",
    re.IGNORECASE,
)
# What any event may have without declaring it.
UNDECLARED = {"group", "member", "exc_info"}
# What a call passes on as a mapping.
ANY = "**"


class LoggingCall(NamedTuple):
    """A call that is given the events of these names, and the fields that it names."""

    place: str
    events: frozenset[str]
    fields: frozenset[str]


def declared() -> dict[str, LogEvent]:
    """Each event by the name of its declaration."""
    return {name: var for name, var in vars(log_events).items() if isinstance(var, LogEvent)}


def meanings() -> dict[str, str]:
    """The text below each declaration that has one."""
    body = ast.parse(DECLARATIONS.read_text()).body
    found: dict[str, str] = {}
    for statement, following in itertools.pairwise(body):
        match statement, following:
            case (
                ast.Assign(targets=[ast.Name(name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = " ".join(text.split())
            case _:
                pass
    return found


def tables(page: Path) -> str:
    """The generated part of a page."""
    events, texts = declared(), meanings()
    parts = [BEGIN]
    (current,) = list(PAGES.values())[:1]
    _, *chapters = CHAPTER.split(DECLARATIONS.read_text())
    for title, source in zip(chapters[::2], chapters[1::2], strict=True):
        current = PAGES.get(title, current)
        if current != page:
            continue
        rows = ["| level | event | fields | |", "|---|---|---|---|"]
        for name in re.findall(r"^([A-Z_]+) = ", source, re.MULTILINE):
            event = events[name]
            fields = ", ".join(f"`{field}`" for field in event.fields.split())
            rows.append(f"| {event.level} | `{event.name}` | {fields} | {texts.get(name, '')} |")
        parts += [f"## {title}", "\n".join(rows)]
    return "\n\n".join([*parts, END])


def renewed(page: Path) -> str:
    """The text of a page with its generated part renewed."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + tables(page) + after


def logging_calls() -> Iterator[LoggingCall]:
    """Each call of the package that names declared events."""
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text()
        if path == DECLARATIONS or "log_events." not in source:
            continue
        for call in ast.walk(ast.parse(source)):
            if not isinstance(call, ast.Call):
                continue
            events = frozenset[str]().union(*map(_events_in, [call.func, *call.args]))
            if events:
                fields = frozenset(word.arg or ANY for word in call.keywords)
                if isinstance(call.func, ast.Attribute) and call.func.attr == "watch":
                    fields |= {ANY}
                place = f"{path.relative_to(PACKAGE)}:{call.lineno}"
                yield LoggingCall(place, events, fields)


def _events_in(node: ast.expr) -> frozenset[str]:
    """The declarations that an argument may be, or whose method is called."""
    match node:
        case ast.Attribute(ast.Name("log_events"), name):
            return frozenset((name,))
        case ast.Attribute(ast.Attribute() as owner, "write_to"):
            return _events_in(owner)
        case ast.IfExp(_, one, other):
            return _events_in(one) | _events_in(other)
        case _:
            return frozenset()


def undeclared_lines() -> Iterator[str]:
    """Calls of a log's methods with a text in place of a declared event."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for found in LITERAL.findall(path.read_text()):
            yield f"{path.relative_to(PACKAGE)}: {found}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the events into docs/reference.")
    parser.parse_args()
    for path in PAGES.values():
        path.write_text(renewed(path))
