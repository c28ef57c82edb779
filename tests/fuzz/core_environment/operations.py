"""The names of operations on a core, by the codes of an input."""

from __future__ import annotations

HOSTILE = (*("damage",) * 6, "fail", "wrong", "late", "unasked", "twice")
USUAL = (
    *("respond",) * 56,
    *("poll",) * 16,
    *("complete",) * 10,
    *("timer",) * 12,
    *("decode",) * 5,
    *("produce",) * 4,
    *("commit", "seek", "pause", "resume") * 2,
    *("subscribe", "unsubscribe", "delay", "stop", "close", "abandon", "drop", "lookup"),
    *("leap", "background reply", "silent", "probed") * 2,
)
# By the code of the operation.
FIRST_USUAL = 88
NAMES = (*HOSTILE * 8, *(USUAL * 2)[: 256 - FIRST_USUAL])
# What a consumer rejects once it closes.
NOT_WHEN_CLOSING = frozenset(
    ("commit", "lookup", "seek", "pause", "resume", "subscribe", "unsubscribe")
)
