"""Unsubscribing and closing, within their deadlines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.core.io.deadline import Deadline
from asyncrevoke.client.core.io.effects import CompleteRequest

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.poll.reactions import PollReactions
    from asyncrevoke.client.errors import PartitionsError

_DRAIN_TIMER = "leave-drain"
_COMMIT_TIMER = "leave-commit"
_CLOSE_TIMER = "close"


class Leaving:
    """The calls that wait until the group is left, and their deadline."""

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        reactions: PollReactions,
    ) -> None:
        self._outbox = outbox
        self._close_timeout = config.close_timeout
        self._reactions = reactions
        self._calls: list[int] = []
        self._deadline: Deadline | None = None
        # The first rejected final commit.
        self._rejection: PartitionsError | None = None
        self._done = False
        # Whether closing waits until the fetch sessions have ended.
        self._sessions_ending = False
        self.under_way = False
        self.closing = False
        self.closed = False

    def unsubscribe(self, now: float, call_id: int) -> None:
        """Leave, and complete the call within ``close_timeout``."""
        self._calls.append(call_id)
        self._leave(now, Deadline.after(now, self._close_timeout), wait_for_tasks=True)

    def close(
        self, now: float, call_id: int, *, graceful: bool, joined: bool, deadline: Deadline | None
    ) -> None:
        """Leave for good, and complete the call by ``deadline`` (None: after ``close_timeout``); at
        once if nothing was ``joined``."""
        if self.closed:
            self._outbox.put(CompleteRequest(call_id))
            return
        self._calls.append(call_id)
        self.closing = True
        self._outbox.wake()
        if joined:
            deadline = deadline or Deadline.after(now, self._close_timeout)
            self._leave(now, deadline, wait_for_tasks=graceful)
        else:
            self.finish()

    def commit_rejected(self, error: PartitionsError) -> None:
        """A final commit was rejected: the waiting calls raise its error."""
        if self.under_way and self._rejection is None:
            self._rejection = error

    def left(self) -> None:
        """The group was left, with everything released or lost."""
        self._outbox.cancel_timer(_DRAIN_TIMER)
        self._outbox.cancel_timer(_COMMIT_TIMER)
        self.under_way = False
        if not self.closing:
            self._outbox.cancel_timer(_CLOSE_TIMER)
            self._deadline = None
            self._complete()
        elif self._sessions_ending:
            self._done = True
        else:
            self.finish()

    def set_sessions_ending(self, ending: bool) -> None:
        """Whether closing waits for :meth:`sessions_ended`."""
        self._sessions_ending = ending

    def sessions_ended(self) -> None:
        """All fetch sessions have ended."""
        self._sessions_ending = False
        if self._done and not self.closed:
            self.finish()

    def finish(self) -> None:
        """Closing ends, whether the group was left or not."""
        self.closed = True
        for timer in (_DRAIN_TIMER, _COMMIT_TIMER, _CLOSE_TIMER):
            self._outbox.cancel_timer(timer)
        self._reactions.closing_ended()
        self._complete()

    def _leave(self, now: float, deadline: Deadline, *, wait_for_tasks: bool) -> None:
        # Closing while the consumer unsubscribes: the earlier deadline applies.
        if self._deadline is None or deadline.end < self._deadline.end:
            self._deadline = deadline
            self._outbox.set_timer(_COMMIT_TIMER, deadline.commits, self._not_committed)
            self._outbox.set_timer(_CLOSE_TIMER, deadline.end, self._too_long)
        if wait_for_tasks:
            self._outbox.set_timer(_DRAIN_TIMER, self._deadline.work, self._stop_waiting)
        else:
            self._outbox.cancel_timer(_DRAIN_TIMER)
        self.under_way = True
        self._reactions.start_leaving(now, wait_for_tasks)

    def _stop_waiting(self, now: float) -> None:
        self._outbox.emit(log_events.TASKS_STILL_RUN)
        self._reactions.start_leaving(now, False)

    def _not_committed(self, now: float) -> None:
        # The loss of what was not committed is logged.
        if self.under_way:
            self._reactions.leave_uncommitted(now)

    def _too_long(self, now: float) -> None:
        if not self.closing:
            # The earlier timers may be due at the same time, and not have fired yet.
            self._reactions.leave_uncommitted(now)
            if self.under_way:
                self._reactions.stop_leaving(now)
            return
        self._outbox.emit(log_events.CLOSE_TIMEOUT_EXCEEDED)
        self._reactions.close_timed_out(now)
        self.finish()

    def _complete(self) -> None:
        calls, self._calls = self._calls, []
        error, self._rejection = self._rejection, None
        for call_id in calls:
            self._outbox.put(CompleteRequest(call_id, error=error))
