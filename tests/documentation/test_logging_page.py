"""docs/reference/logging.md has each event that the code logs, with its level and fields."""

import re
from pathlib import Path

from asyncrevoke.client.config import ConsumerConfig
from documentation.log_events import ANY, logged_events

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "logging.md"
ROW = re.compile(r"^\| (debug|info|warning|error) \| `(.+?)` \| (.*) \|$", re.MULTILINE)
ROWS: list[tuple[str, str, str]] = ROW.findall(PAGE.read_text())


def test_every_event_is_on_the_page_and_no_other() -> None:
    assert sorted((level, name) for level, name, _ in ROWS) == sorted(logged_events())
    assert len(ROWS) > 80


def test_every_field_that_the_page_names_is_logged() -> None:
    events = logged_events()
    options = set(ConsumerConfig.__dataclass_fields__) | {"max_handler_time", "on_error"}
    for level, name, meaning in ROWS:
        fields = events[level, name]
        if ANY not in fields:
            told = set(re.findall(r"`([a-z_]+)`", meaning)) - options
            assert told <= fields, name


def test_every_event_that_a_page_names_is_logged() -> None:
    known = {name for _, name in logged_events()}
    for page in (ROOT / "docs").rglob("*.md"):
        text = " ".join(page.read_text().split())
        named = set(re.findall(r"\bevents?(?: are| is)? `([^`]+)`", text))
        assert named <= known, page.name
