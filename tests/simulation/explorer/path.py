"""Paths: what differs in one run of a small world from the run in which all is as usual."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass


class Deviation(enum.Enum):
    """What may differ at one point of a run."""

    WAIT = "wait"
    """A message or a timer waits for ``amount`` more events of its receiver."""
    LOST_BEFORE = "lost_before"
    """A request is lost before the broker processes it, and its connection breaks."""
    LOST_AFTER = "lost_after"
    """A request is processed; its response is lost, and its connection breaks."""
    LATE = "late"
    """The connection of a request breaks, and it is processed ``amount`` ms later."""
    FREEZE = "freeze"
    """The event loop of a member is blocked for ``amount`` ms."""
    CRASH = "crash"
    """A member dies."""
    LEAVE = "leave"
    """A member stops its loop, and closes."""
    JOIN = "join"
    """Another member joins."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A deviation at the point with this number."""

    point: int
    deviation: Deviation
    amount: int = 0

    def __str__(self) -> str:
        amount = f":{self.amount}" if self.amount else ""
        return f"{self.point}:{self.deviation.value}{amount}"


_CHOICE = re.compile(r"(\d+):([a-z_]+)(?::(\d+))?")


@dataclass(frozen=True, slots=True)
class Path:
    """All that differs in one run, in the order of the points."""

    choices: tuple[Choice, ...] = ()

    def __str__(self) -> str:
        return ",".join(map(str, self.choices)) or "usual"

    @classmethod
    def parse(cls, text: str) -> Path:
        """The inverse of ``str``. Raises ValueError if that is not a path."""
        if text == str(cls()):
            return cls()
        choices: list[Choice] = []
        for part in text.split(","):
            match = _CHOICE.fullmatch(part)
            if match is None:
                raise ValueError(f"{part!r} is not a choice such as 12:wait:2")
            choices.append(Choice(int(match[1]), Deviation(match[2]), int(match[3] or 0)))
        points = [choice.point for choice in choices]
        if points != sorted(set(points)):
            raise ValueError(f"the points of {text!r} do not ascend")
        return cls(tuple(choices))

    def then(self, choice: Choice) -> Path:
        """The same with another choice, which replaces the last one if it is at the same point."""
        before = tuple(each for each in self.choices if each.point < choice.point)
        return Path((*before, choice))
