"""The core's events as log lines: structlog over ``logging.getLogger("asyncrevoke")``.

Nothing is configured here. An application that has configured structlog gets its own processors;
any other gets ``event key=value`` lines through its ``logging`` set-up.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import structlog

from asyncrevoke.model import TopicPartition
from asyncrevoke.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from asyncrevoke.core.io.effects import Emit

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


class EventLog:
    """Writes events. ``bound`` values are added to each line, and our id in the group if there is
    one: ``member`` tells it."""

    def __init__(self, **bound: object) -> None:
        self.member: Callable[[], str] = str
        self._logger = logging.getLogger("asyncrevoke")
        processors = (
            structlog.get_config()["processors"] if structlog.is_configured() else [_one_line]
        )
        # An application's wrapper class may be asynchronous or filter by itself: levels are the
        # logging module's here.
        wrapped = structlog.wrap_logger(
            self._logger,
            processors=processors,
            wrapper_class=structlog.stdlib.BoundLogger,
            context_class=dict,
        )
        self._log = cast("structlog.stdlib.BoundLogger", wrapped.bind(**bound))
        # Told of the core's events, whatever the level.
        self.on_event: Callable[[Emit], None] | None = None

    def emit(self, event: Emit) -> None:
        """Write an event of the core."""
        if self.on_event is not None:
            self.on_event(event)
        self._write(_LEVELS.get(event.level, logging.INFO), event.event, event.fields)

    def debug(self, event: str, /, **fields: object) -> None:
        """For who looks for a fault. Never raises, as the others; ``exc_info`` is an error."""
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        """What an operator may want to know."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        """What an operator should look at."""
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        """What went wrong for good."""
        self._write(logging.ERROR, event, fields)

    def exception(self, event: str, /, *, exc_info: BaseException, **fields: object) -> None:
        """What went wrong for good, with the error that tells why."""
        self._write(logging.ERROR, event, {**fields, "exc_info": exc_info})

    def _write(self, level: int, event: str, fields: Mapping[str, object]) -> None:
        if not self._logger.isEnabledFor(level):
            return
        plain = {name: _plain(value) for name, value in fields.items()}
        if member := self.member():
            plain.setdefault("member", member)
        try:
            self._log.log(level, event, **plain)
        except Exception:
            # A processor of the application failed. Logging must not end the consumer, and must
            # not hide that either.
            self._logger.exception("a structlog processor failed on %r %r", event, plain)


def _plain(value: object) -> object:
    """``value`` in plain types. Names and messages from outside lose what is not printable."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, TopicPartition):
        return printable(f"{value.topic}-{value.partition}")
    if isinstance(value, (frozenset, set)):
        return sorted((_plain(item) for item in cast("set[object]", value)), key=str)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in cast("list[object]", value)]
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {str(_plain(key)): _plain(item) for key, item in items}
    return value


def _one_line(
    _logger: object, _method: str, event_dict: MutableMapping[str, object]
) -> tuple[tuple[str], dict[str, object]]:
    event = event_dict.pop("event", "")
    exc_info = event_dict.pop("exc_info", None)
    words = [str(event), *(f"{name}={_word(value)}" for name, value in event_dict.items())]
    return (" ".join(words),), {} if exc_info is None else {"exc_info": exc_info}


def _word(value: object) -> str:
    if isinstance(value, list):
        return ",".join(str(item) for item in cast("list[object]", value)) or "none"
    if isinstance(value, float):
        return f"{value:.3f}"
    text = str(value)
    return repr(text) if not text or any(char.isspace() for char in text) else text
