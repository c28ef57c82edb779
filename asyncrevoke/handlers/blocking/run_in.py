"""Checks a sync handler against its ``run_in``."""

from __future__ import annotations

import inspect
import os
import sys
from typing import TYPE_CHECKING, Final

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.handlers.policy.handler_function import innermost, is_async, yields
from asyncrevoke.handlers.policy.signature import yields_without_topic

if TYPE_CHECKING:
    from asyncrevoke.handlers.policy.registration import RunIn

# Python's first version with interpreters that anyio can use.
_INTERPRETERS: Final = (3, 14)


def default_calls(run_in: RunIn) -> int | None:
    """How many calls of a handler run at once by default; None: the consumer's ``concurrency``."""
    return None if run_in == "thread" else os.cpu_count() or 1


def check_blocking(function: object, name: str, run_in: RunIn, *, publishes: bool) -> None:
    """ConfigError, with the fix, for a function that cannot run there."""
    inner = innermost(function)
    if is_async(function) or yields(function):
        raise ConfigError(
            f'{name} is async and runs in the event loop: leave out run_in="{run_in}", or '
            "write `def` if it blocks"
        )
    if inspect.isgeneratorfunction(inner) and not publishes:
        raise yields_without_topic(name)
    if isinstance(inner, type) or not callable(inner):
        raise ConfigError(f'{name} is not a function: register a function with run_in="{run_in}"')
    if run_in == "interpreter" and sys.version_info < _INTERPRETERS:
        raise ConfigError(
            f'{name} has run_in="interpreter", which needs Python 3.14: use run_in="process" on '
            f"Python {sys.version_info[0]}.{sys.version_info[1]}"
        )
    qualified = getattr(inner, "__qualname__", "")
    if run_in != "thread" and ("<locals>" in qualified or "<lambda>" in qualified):
        raise ConfigError(
            f'{name} has run_in="{run_in}" and is defined inside of another function: define it at '
            f"the top of its module, where the {run_in} can import it"
        )
    if run_in == "interpreter" and getattr(inner, "__module__", None) == "__main__":
        raise ConfigError(
            f'{name} has run_in="interpreter" and is defined in the script itself: define it at '
            "the top of a module, where the interpreter can import it"
        )
