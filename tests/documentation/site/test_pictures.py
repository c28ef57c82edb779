"""The pictures of the internals show what the tables of states and the walk of a record say."""

from __future__ import annotations

import enum
import re
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pytest
from documentation.site.mermaid import Arrow, Picture, pictures

from asyncrevoke.client.core.membership.classic.state_table import CLASSIC_TRANSITIONS
from asyncrevoke.client.core.membership.kip848.state_table import MEMBER_TRANSITIONS
from asyncrevoke.client.core.partition.instance import TRANSITIONS

INTERNALS = Path(__file__).parents[3] / "docs" / "internals"
STATES = INTERNALS / "changing-the-core.md"
WALKS = INTERNALS / "how-it-runs.md"


State = TypeVar("State", bound=enum.Enum)
Transition = TypeVar("Transition", bound=enum.Enum)


def names_of(table: dict[tuple[State, Transition], State]) -> dict[tuple[str, str], str]:
    """A table by the names of its states and transitions."""
    return {(state.name, step.name): after.name for (state, step), after in table.items()}


def test_the_pictures_of_states_show_exactly_the_transitions_of_the_tables() -> None:
    instance, classic, kip848 = pictures(STATES)
    assert instance.transitions() == names_of(TRANSITIONS)
    assert classic.transitions() == names_of(CLASSIC_TRANSITIONS)
    assert kip848.transitions() == names_of(MEMBER_TRANSITIONS)


def test_the_picture_of_a_record_shows_where_its_walk_enters_another_folder() -> None:
    (picture,) = pictures(WALKS)
    walk = WALKS.read_text("utf-8").split("\n## ")[1]
    steps = re.findall(r"^\d+\. `([\w/]+)/\w+\.py::([\w.]+)`", walk, re.MULTILINE)
    assert len(steps) > 30
    assert picture.messages() == [
        Arrow(folder, entered, function)
        for (folder, _), (entered, function) in pairwise(steps)
        if folder != entered
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("pie\nA --> B: STEP", "not one of"),
        ("stateDiagram-v2\nA --> B", "neither an arrow nor a name"),
        ("stateDiagram-v2\nA --> B: STEP or STEP", "two arrows for STEP of A"),
    ],
)
def test_a_picture_that_cannot_be_compared_is_rejected(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Picture(text).transitions()


def test_an_arrow_from_a_group_of_states_is_one_from_each() -> None:
    picture = Picture("stateDiagram-v2\n[*] --> A\nstate Owned {\nA --> B: GO\n}\nOwned --> C: END")
    assert picture.transitions() == {("A", "GO"): "B", ("A", "END"): "C", ("B", "END"): "C"}
