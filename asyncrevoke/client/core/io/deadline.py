"""Until when the parts of closing and of unsubscribing may wait: the only place that says so.

All times are seconds. ``close_timeout`` after closing began is the end.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Self

# Before the end, or half of the time: for final commits and for leaving, in equal parts.
_KEPT: Final = 5.0
# Before work is cancelled, or a quarter of the time: no handler of a gap is started.
_FOR_RUNNING: Final = 5.0
# For final commits and leaving, if a close does not wait for work.
URGENT_CLOSE: Final = 5.0
# That cancelled work has at least, however late it is.
CANCELLED_WORK: Final = 0.05
# After the end: for the core, which ends closing by then.
_CORE: Final = 0.125
# After the end: for callbacks that were cancelled. From any time on: for the listener's last
# callbacks, and for the journal's last rows.
CALLBACKS: Final = 0.25
# From any time on: for closing connections, after the tasks that use them, which are cancelled.
_CONNECTIONS: Final = 0.4
CANCELLED_TASKS: Final = 0.25
CONNECTIONS_AFTER_TASKS: Final = 0.15
# After the end: then the process is ended. From any time on: for what the interpreter waits for.
_PROCESS: Final = 0.75
_INTERPRETER: Final = 0.25


class Deadline(NamedTuple):
    """Three instants of one clock, in this order: at ``work`` running handlers are cancelled, at
    ``commits`` partitions without an acknowledged final commit are lost and the group is left, when
    an open transaction is aborted or half of the rest is over, and at ``end`` nothing is waited for
    any more but what must end after it."""

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

    def urgent(self, now: float) -> Deadline:
        """The deadline of a close that does not wait for work: 5 s from now, if that is earlier."""
        return Deadline.after(now, min(URGENT_CLOSE, max(0.0, self.end - now)))

    @property
    def core(self) -> float:
        """Until when the core is waited for, which ends closing at ``end``."""
        return self.end + _CORE

    @property
    def cancelled_callbacks(self) -> float:
        """Until when what closes resources is waited for, after its cancellation."""
        return self.end + CALLBACKS

    def last_callbacks(self, now: float) -> float:
        """Until when the listener's last callbacks, or the journal's last rows, are waited for."""
        return max(self.end, now + CALLBACKS)

    def connections(self, now: float) -> float:
        """Until when connections are closed."""
        return max(self.end, now + _CONNECTIONS)


PASSED: Final = Deadline(0.0, 0.0, 0.0)


def time_for_running(seconds: float) -> float:
    """Of so many seconds until handlers must have ended, those in which none may start."""
    return min(_FOR_RUNNING, seconds / 4)


def until_process_ends(seconds: float) -> float:
    """Seconds until a process is ended, of which ``seconds`` are left until closing ends."""
    return max(_INTERPRETER, seconds + _PROCESS)
