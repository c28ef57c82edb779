"""The logger that handlers write to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncrevoke.client.log_events import Log


class BoundLog:
    """A log that adds the same fields to each line."""

    __slots__ = ("_fields", "_log")

    def __init__(self, log: Log, /, **fields: object) -> None:
        self._log = log
        self._fields = fields

    def bind(self, **fields: object) -> BoundLog:
        """Return a log that adds these fields, too."""
        return BoundLog(self._log, **{**self._fields, **fields})

    def debug(self, event: str, /, **fields: object) -> None:
        """Log details for finding a fault."""
        self._log.debug(event, **{**self._fields, **fields})

    def info(self, event: str, /, **fields: object) -> None:
        """Log what an operator may want to know."""
        self._log.info(event, **{**self._fields, **fields})

    def warning(self, event: str, /, **fields: object) -> None:
        """Log what an operator should look at; ``exc_info`` takes an exception."""
        self._log.warning(event, **{**self._fields, **fields})

    def error(self, event: str, /, **fields: object) -> None:
        """Log what needs an operator; ``exc_info`` takes an exception."""
        self._log.error(event, **{**self._fields, **fields})
