"""Writes events as log lines: structlog over ``logging.getLogger("asyncrevoke")``.

Nothing is configured here. If the application has configured structlog, its processors are used;
otherwise lines are ``event key=value``, and structlog, whose import takes long, is not imported.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias, cast

from asyncrevoke.client import log_events
from asyncrevoke.client.errors import DecodeError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.printable import error_text, printable, reportable
from asyncrevoke.client.runtime.hooks.application_traceback import logged_exception

if TYPE_CHECKING:
    import structlog

    from asyncrevoke.client.core.io.driven_core import DrivenCore
    from asyncrevoke.client.core.io.effects import Emit

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

_PROCESSOR_FAILED = f"{log_events.PROCESSOR_FAILED.name} event=%r fields=%r"

_ExcInfo: TypeAlias = (
    BaseException | tuple[type[BaseException], BaseException, TracebackType | None] | None
)


def _configured_structlog(
    logger: logging.Logger, bound: dict[str, object]
) -> structlog.stdlib.BoundLogger | None:
    """A logger of structlog with the application's processors, if it has configured any."""
    if "structlog" not in sys.modules:
        return None
    import structlog

    if not structlog.is_configured():
        return None
    # Not the application's wrapper class, which may be asynchronous or have filters of its own:
    # levels are those of the logging module.
    wrapped = structlog.wrap_logger(
        logger,
        processors=structlog.get_config()["processors"],
        wrapper_class=structlog.stdlib.BoundLogger,
        context_class=dict,
    )
    return cast("structlog.stdlib.BoundLogger", wrapped.bind(**bound))


class _OneLine:
    """Writes ``event key=value``."""

    def __init__(self, logger: logging.Logger, bound: dict[str, object]) -> None:
        self._logger = logger
        self._bound = bound

    def log(self, level: int, event: str, **fields: object) -> None:
        """Write one line."""
        words = {**self._bound, **fields}
        exc_info = cast("_ExcInfo", words.pop("exc_info", None))
        line = " ".join((event, *(f"{name}={_word(value)}" for name, value in words.items())))
        self._logger.log(level, line, exc_info=exc_info)


class EventLog:
    """Writes events to ``logger``. Each line has the ``bound`` values, and the member id once
    ``core`` has one; None is for what is not a member of a group."""

    def __init__(
        self,
        core: DrivenCore | None = None,
        /,
        *,
        logger: str = "asyncrevoke",
        **bound: object,
    ) -> None:
        self._core = core
        self._bound = bound
        self._of_application = False
        self._logger = logging.getLogger(logger)
        plain = {name: _plain(value) for name, value in bound.items()}
        self._log = _configured_structlog(self._logger, plain) or _OneLine(self._logger, plain)

    def of_application(self) -> EventLog:
        """A log of what the application's handlers and callbacks do: its lines have no member id,
        and its tracebacks begin at the application's code."""
        log = EventLog(logger=self._logger.name, **self._bound)
        log._of_application = True
        return log

    def emit(self, event: Emit) -> None:
        """Write an event of the core."""
        self.write(event.level, event.event, event.fields)

    def write(self, level_name: str, event: str, fields: Mapping[str, object], /) -> None:
        """Write one line. Never raises; the field ``exc_info`` is an exception."""
        level = _LEVELS.get(level_name, logging.INFO)
        if not self._logger.isEnabledFor(level):
            return
        error = fields.get("exc_info")
        if self._of_application and error is not None:
            error = reportable(cast("BaseException", error))
        if isinstance(error, DecodeError):
            # Its traceback has only lines of this library: the message says what is wrong.
            fields = {**fields, "error": error_text(error)}
            del fields["exc_info"]
            error = None
        plain = {name: _plain(value) for name, value in fields.items()}
        if self._of_application and error is not None:
            plain["exc_info"] = logged_exception(cast("BaseException", error))
        if self._core is not None and (member := self._core.group_metadata().member_id):
            plain.setdefault("member", printable(member))
        try:
            self._log.log(level, event, **plain)
        except Exception as failure:  # noqa: BLE001 - that must not end the consumer
            self._write_plainly(event, plain, failure)

    def _write_plainly(self, event: str, plain: dict[str, object], failure: Exception) -> None:
        """A processor of the application, or the exception that is logged, has raised."""
        exc_info: Exception | None = failure
        for _ in range(2):
            try:
                self._logger.error(_PROCESSOR_FAILED, event, plain, exc_info=exc_info)
            except Exception:  # noqa: BLE001 - a traceback asks the exception whether it is true
                plain["exc_info"] = type(plain.get("exc_info")).__name__
                exc_info = None
            else:
                return


def _plain(value: object) -> object:
    """``value`` in plain types, its text in printable characters."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, TopicPartition):
        return printable(str(value))
    if isinstance(value, (frozenset, set)):
        return sorted((_plain(item) for item in cast("set[object]", value)), key=str)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in cast("list[object]", value)]
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {str(_plain(key)): _plain(item) for key, item in items}
    return value


def _word(value: object) -> str:
    if isinstance(value, list):
        return ",".join(str(item) for item in cast("list[object]", value)) or "none"
    if isinstance(value, float):
        return f"{value:.3f}"
    text = str(value)
    return repr(text) if not text or any(char.isspace() for char in text) else text
