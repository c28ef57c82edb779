"""How the time that closing or unsubscribing may take is divided."""

from __future__ import annotations

from typing import NamedTuple, Self

# Of that time, what is kept for the final commit and for leaving the group (seconds), or half.
_KEPT = 5.0


class Deadline(NamedTuple):
    """Three instants of one clock, in this order: at ``work`` running handlers are cancelled, at
    ``commits`` partitions without an acknowledged final commit are lost and the group is left, and
    at ``end`` nothing is waited for any more."""

    work: float
    commits: float
    end: float

    @classmethod
    def after(cls, now: float, seconds: float) -> Self:
        """All within ``seconds``: the last 5 of them, or half, are for the final commit and for
        leaving, in equal parts."""
        kept = min(_KEPT, seconds / 2)
        end = now + seconds
        return cls(end - kept, end - kept / 2, end)
