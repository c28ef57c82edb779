"""The logger that handlers write to."""

from __future__ import annotations

from typing import Protocol


class Log(Protocol):
    """What is used of a structlog logger; whoever makes it decides where lines go."""

    def debug(self, event: str, /, **fields: object) -> object:
        """For who looks for a fault."""
        ...

    def info(self, event: str, /, **fields: object) -> object:
        """What an operator may want to know."""
        ...

    def warning(self, event: str, /, **fields: object) -> object:
        """What an operator should look at."""
        ...

    def error(self, event: str, /, **fields: object) -> object:
        """What went wrong for good."""
        ...
