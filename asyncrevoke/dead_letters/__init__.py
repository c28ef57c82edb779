"""Lists dead letters, replays them to their original topics, and calls their handlers again.

Names are loaded when they are first used (PEP 562).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.lazy_names import lazy_names

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

__getattr__ = lazy_names(
    __name__,
    {
        ".dead_letter_filter": ("DeadLetterFilter",),
        ".dead_letter_topic": ("DeadLetterTopic",),
        ".errors": ("DeadLettersError",),
        ".replay": ("Replay", "ReplayOptions", "ReplayResult"),
        ".reprocessing": ("ReprocessResult", "Reprocessing"),
        ".stored_dead_letter": ("StoredDeadLetter",),
    },
)
