"""The pages of docs/reference have each event that the package declares, and it logs no others."""

import re
from collections import defaultdict
from pathlib import Path

from documentation import log_events

DOCS = Path(__file__).parents[2] / "docs"


def test_the_pages_have_the_declared_events() -> None:
    pages = {path: path.read_text() for path in log_events.PAGES.values()}
    assert pages == {path: log_events.renewed(path) for path in pages}, (
        "the pages are behind: run python tests/documentation/log_events.py"
    )
    row = re.compile(r"^\| (\w+) \| `", re.MULTILINE)
    rows = [level for text in pages.values() for level in row.findall(text)]
    assert len(rows) == len(log_events.declared())


def test_each_level_and_name_is_declared_once() -> None:
    events = [(each.level, each.name) for each in log_events.declared().values()]
    assert len(events) == len(set(events)) > 150


def test_names_have_no_placeholders_and_fields_are_words() -> None:
    for event in log_events.declared().values():
        assert not re.search(r"[%{}…]", event.name), event.name
        fields = event.fields.split()
        assert all(map(str.isidentifier, fields)), event
        assert len(fields) == len(set(fields)), event


def test_the_package_logs_declared_events_only() -> None:
    assert list(log_events.undeclared_lines()) == []


def test_each_declared_event_is_logged() -> None:
    named = set[str]()
    for path in log_events.PACKAGE.rglob("*.py"):
        if path != log_events.DECLARATIONS:
            named |= set(re.findall(r"\blog_events\.([A-Z_]+)\b", path.read_text()))
    assert named == set(log_events.declared())


def test_fields_are_declared_and_logged() -> None:
    events = log_events.declared()
    logged = defaultdict[str, set[str]](set)
    for call in log_events.logging_calls():
        for name in call.events:
            declared = set(events[name].fields.split())
            passed = call.fields - log_events.UNDECLARED - {log_events.ANY}
            assert passed <= declared, f"{call.place}: {name} lacks {passed - declared}"
            logged[name] |= call.fields
    assert len(logged) > 150
    # WaitLog adds the seconds; `_warn` adds what `log_fields` has.
    added = {"seconds", "handler", "partition", "offset"}
    for name, fields in logged.items():
        if log_events.ANY not in fields:
            unused = set(events[name].fields.split()) - fields - added
            assert not unused, f"{name} is never logged with {unused}"


def test_every_event_that_a_page_names_is_declared() -> None:
    known = {each.name for each in log_events.declared().values()}
    for page in DOCS.rglob("*.md"):
        text = " ".join(page.read_text().split())
        named = set(re.findall(r"\bevents?(?: are| is)? `([^`]+)`", text))
        assert named <= known, page.name
