"""Lists dead letters, replays them to their original topics, and calls their handlers again.

Names are loaded when they are first used (PEP 562).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncrevoke.dead_letters.dead_letter_filter import DeadLetterFilter
    from asyncrevoke.dead_letters.dead_letter_topic import DeadLetterTopic
    from asyncrevoke.dead_letters.errors import DeadLettersError
    from asyncrevoke.dead_letters.replay import Replay, ReplayOptions, ReplayResult
    from asyncrevoke.dead_letters.reprocessing import Reprocessing, ReprocessResult
    from asyncrevoke.dead_letters.stored_dead_letter import StoredDeadLetter

__all__ = [
    "DeadLetterFilter",
    "DeadLetterTopic",
    "DeadLettersError",
    "Replay",
    "ReplayOptions",
    "ReplayResult",
    "ReprocessResult",
    "Reprocessing",
    "StoredDeadLetter",
]

_MODULES = {
    "DeadLetterFilter": "dead_letter_filter",
    "DeadLetterTopic": "dead_letter_topic",
    "DeadLettersError": "errors",
    "ReprocessResult": "reprocessing",
    "Reprocessing": "reprocessing",
    "StoredDeadLetter": "stored_dead_letter",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_MODULES.get(name, 'replay')}"), name)
    globals()[name] = value
    return value
