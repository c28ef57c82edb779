"""Reads the pictures of the pages: state diagrams and sequence diagrams of Mermaid."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from pathlib import Path

_COMPOSITE = re.compile(r"state (\w+) \{")
_PARTICIPANT = re.compile(r"participant (\w+) as (\S+)")
_STEP = re.compile(r"(\w+|\[\*\]) --> (\w+): (.+)")
_START = re.compile(r"\[\*\] --> \w+")
_MESSAGE = re.compile(r"(\w+)->>(\w+): (\S+)")
KINDS = ("stateDiagram-v2", "sequenceDiagram")


class Arrow(NamedTuple):
    """One arrow of a picture."""

    source: str
    target: str
    label: str


class Picture:
    """A picture, by its lines; ValueError for a line that is neither an arrow nor a name."""

    def __init__(self, text: str) -> None:
        kind, *lines = text.strip().splitlines()
        if kind not in KINDS:
            raise ValueError(f"not one of {KINDS}: {kind}")
        self.arrows: list[Arrow] = []
        self._inside: dict[str, set[str]] = {}
        self._names: dict[str, str] = {}
        composite: str | None = None
        for line in map(str.strip, lines):
            if opened := _COMPOSITE.fullmatch(line):
                composite = str(opened[1])
                self._inside[composite] = set()
            elif line == "}":
                composite = None
            elif participant := _PARTICIPANT.fullmatch(line):
                self._names[participant[1]] = participant[2]
            elif arrow := _STEP.fullmatch(line) or _MESSAGE.fullmatch(line):
                self.arrows.append(Arrow(*arrow.groups()))
                if composite is not None:
                    self._inside[composite] |= {arrow[1], arrow[2]}
            elif not _START.fullmatch(line):
                raise ValueError(f"neither an arrow nor a name: {line}")

    def transitions(self) -> dict[tuple[str, str], str]:
        """What follows each state and transition. An arrow from a group is one from each state."""
        found: dict[tuple[str, str], str] = {}
        for source, target, label in self.arrows:
            for state in self._inside.get(source, {source}):
                for transition in label.split(" or "):
                    if (state, transition) in found:
                        raise ValueError(f"two arrows for {transition} of {state}")
                    found[state, transition] = target
        return found

    def messages(self) -> list[Arrow]:
        """The arrows with the names of the participants."""
        return [
            Arrow(self._names[source], self._names[target], label)
            for source, target, label in self.arrows
        ]


def pictures(page: Path) -> list[Picture]:
    """All pictures of a page."""
    tokens = MarkdownIt().parse(page.read_text("utf-8"))
    return [Picture(token.content) for token in tokens if token.info == "mermaid"]
