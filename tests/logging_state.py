"""The logging configuration of the process, restored after a test that replaces it."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Generator

# Level, handlers, propagate and disabled of a logger that nobody has configured.
UNCONFIGURED: tuple[int, list[logging.Handler], bool, bool] = (logging.NOTSET, [], True, False)


@contextlib.contextmanager
def restored_logging() -> Generator[None]:
    """Restore every logger's level, handlers, propagation and ``disabled``; reset structlog.

    ``logging.config.dictConfig`` disables existing loggers by default, those that other tests
    in the process listen to as well. Loggers that did not exist before are left unconfigured.
    """
    before = {
        logger: (logger.level, logger.handlers[:], logger.propagate, logger.disabled)
        for logger in _loggers()
    }
    structlog.reset_defaults()
    try:
        yield
    finally:
        structlog.reset_defaults()
        for logger in _loggers():
            level, handlers, logger.propagate, logger.disabled = before.get(logger, UNCONFIGURED)
            logger.setLevel(level)
            logger.handlers[:] = handlers


def _loggers() -> list[logging.Logger]:
    known = logging.root.manager.loggerDict.values()
    return [
        logging.root,
        *(candidate for candidate in known if isinstance(candidate, logging.Logger)),
    ]
