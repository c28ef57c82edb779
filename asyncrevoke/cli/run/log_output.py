"""Configures ``logging`` and structlog to write to one stream."""

from __future__ import annotations

import logging
import sys
from enum import StrEnum
from traceback import format_exception
from typing import TYPE_CHECKING, TextIO, cast

import structlog

from asyncrevoke.client import log_events
from asyncrevoke.client.printable import (
    LONGEST_MESSAGE,
    named_error,
    printable,
    printable_json,
    printable_lines,
)

if TYPE_CHECKING:
    from structlog.typing import EventDict, ExcInfo, Processor

# The most characters of a traceback in a line.
_LONGEST_TRACEBACK = 64 * 1024


class LogLevel(StrEnum):
    """The least severe level to show."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """``console`` for people; ``json`` for machines, one object per line."""

    CONSOLE = "console"
    JSON = "json"


def _for_terminals(_logger: object, _method: str, event_dict: EventDict) -> EventDict:
    """Remove escape sequences from values, and line breaks from values that quote brokers."""
    quotes = str(event_dict.get("logger", "")).startswith(("aiokafka", "asyncrevoke"))
    for name, value in event_dict.items():
        if isinstance(value, str):
            event_dict[name] = (
                printable(value, LONGEST_MESSAGE) if quotes else printable_lines(value)
            )
    return event_dict


def _printable_line(_logger: object, _method: str, rendered: EventDict) -> str:
    return printable_json(str(rendered))  # the JSON of JSONRenderer


def _plain_traceback(output: TextIO, error: ExcInfo) -> None:
    output.write("\n" + printable_lines(_short_traceback(error)))


def _short_traceback(exc_info: ExcInfo) -> str:
    """A traceback without the middle of a longer one: an error's text may have any length."""
    text = "".join(format_exception(*exc_info)).removesuffix("\n")
    if len(text) <= _LONGEST_TRACEBACK:
        return text
    half = _LONGEST_TRACEBACK // 2
    return f"{text[:half]}… ({len(text)} characters) …{text[-half:]}"


class LogOutput:
    """Writes ``logging`` and structlog to stderr. Remembers the errors that were shown."""

    def __init__(self, level: LogLevel, log_format: LogFormat) -> None:
        self._level = level
        self._format = log_format
        self._shown: list[BaseException] = []
        self._fatal_errors: list[object] = []

    def install(self) -> None:
        """Configure logging. Call it before the import of the application, whose configuration
        replaces it."""
        both: list[Processor] = [
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
        ]
        structlog.configure(
            processors=[
                structlog.stdlib.filter_by_level,
                *both,
                structlog.stdlib.PositionalArgumentsFormatter(),
                structlog.processors.StackInfoRenderer(),
                structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
            ],
            wrapper_class=structlog.stdlib.BoundLogger,
            logger_factory=structlog.stdlib.LoggerFactory(),
            cache_logger_on_first_use=True,
        )
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(
            structlog.stdlib.ProcessorFormatter(
                foreign_pre_chain=[*both, structlog.stdlib.ExtraAdder()],
                processors=[
                    self._remember,
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    *self._renderers(),
                ],
            )
        )
        logging.basicConfig(level=self._level.upper(), handlers=[handler])
        logging.captureWarnings(capture=True)

    def has_shown(self, error: BaseException) -> bool:
        """Whether a line had this error: its traceback, or its text as a fatal error."""
        shown = any(error is each for each in self._shown)
        return shown or printable(named_error(error)) in self._fatal_errors

    def _renderers(self) -> list[Processor]:
        # Tracebacks without locals, which may contain records and secrets.
        if self._format is LogFormat.JSON:
            return [
                structlog.processors.ExceptionRenderer(_short_traceback),
                structlog.processors.JSONRenderer(ensure_ascii=False),
                _printable_line,
            ]
        return [
            _for_terminals,
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=_plain_traceback
            ),
        ]

    def _remember(self, _logger: object, _method: str, event_dict: EventDict) -> EventDict:
        error = cast("object", event_dict.get("exc_info"))
        if isinstance(error, tuple):  # from sys.exc_info()
            error = cast("tuple[object, ...]", error)[1]
        if isinstance(error, BaseException):
            self._shown = [*self._shown[-7:], error]
        text = str(event_dict.get("event", ""))
        if text == log_events.FATAL_ERROR.name:
            self._fatal_errors = [*self._fatal_errors[-7:], event_dict.get("error")]
        return event_dict
