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


class BoundLog:
    """A log whose lines all have certain fields."""

    __slots__ = ("_fields", "_log")

    def __init__(self, log: Log, /, **fields: object) -> None:
        self._log = log
        self._fields = fields

    def bind(self, **fields: object) -> BoundLog:
        """The same with more fields."""
        return BoundLog(self._log, **{**self._fields, **fields})

    def debug(self, event: str, /, **fields: object) -> None:
        """For who looks for a fault."""
        self._log.debug(event, **{**self._fields, **fields})

    def info(self, event: str, /, **fields: object) -> None:
        """What an operator may want to know."""
        self._log.info(event, **{**self._fields, **fields})

    def warning(self, event: str, /, **fields: object) -> None:
        """What an operator should look at; ``exc_info`` takes an exception."""
        self._log.warning(event, **{**self._fields, **fields})

    def error(self, event: str, /, **fields: object) -> None:
        """What went wrong for good; ``exc_info`` takes an exception."""
        self._log.error(event, **{**self._fields, **fields})
