"""Unsubscribing and closing, within their deadlines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.core.io.deadline import Deadline
from asyncrevoke.client.core.io.effects import CompleteRequest

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.commit.committer import Committer
    from asyncrevoke.client.core.fetch.fetcher import Fetcher
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.membership.subscription_state import SubscriptionState
    from asyncrevoke.client.core.partition.assignment import Assignment
    from asyncrevoke.client.core.partition.revocation import Revocation
    from asyncrevoke.client.core.poll.poll import Poller
    from asyncrevoke.client.core.poll.reactions import PollReactions
    from asyncrevoke.client.errors import PartitionsError

_DRAIN_TIMER = "leave-drain"
_COMMIT_TIMER = "leave-commit"
_ABORT_TIMER = "leave-abort"
_CLOSE_TIMER = "close"


class Leaving:
    """The calls that wait until the group is left, and their deadline."""

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        assignment: Assignment,
        revocation: Revocation,
        fetcher: Fetcher,
        subscription_state: SubscriptionState,
        poller: Poller,
        committer: Committer,
        reactions: PollReactions,
    ) -> None:
        self._outbox = outbox
        self._close_timeout = config.close_timeout
        self._assignment = assignment
        self._revocation = revocation
        self._fetcher = fetcher
        self._subscription_state = subscription_state
        self._poller = poller
        self._committer = committer
        self._reactions = reactions
        self._calls: list[int] = []
        self._deadline: Deadline | None = None
        # The first rejected final commit.
        self._rejection: PartitionsError | None = None
        self._done = False
        # Whether closing waits until the fetch sessions have ended.
        self._sessions_ending = False
        self.under_way = False
        # Whether all is lost, and the group is left when no transaction is open any more.
        self.waits_for_abort = False
        self.closing = False
        self.closed = False

    def unsubscribe(self, now: float, call_id: int) -> None:
        """Leave, and complete the call within ``close_timeout``."""
        self._calls.append(call_id)
        self._leave(now, Deadline.after(now, self._close_timeout), wait_for_tasks=True)

    def close(self, now: float, call_id: int, *, graceful: bool, deadline: Deadline | None) -> None:
        """Leave for good, and complete the call by ``deadline`` (None: after ``close_timeout``); at
        once if nothing was joined."""
        self._poller.end()
        if self.closed:
            self._outbox.put(CompleteRequest(call_id))
            return
        self._calls.append(call_id)
        joined = self._subscription_state.started and self._poller.fatal is None
        if joined and not self.closing:
            self._sessions_ending = self._fetcher.end_sessions()
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

    def sessions_ended(self) -> None:
        """All fetch sessions have ended."""
        self._sessions_ending = False
        if self._done and not self.closed:
            self.finish()

    def finish(self) -> None:
        """Closing ends, whether the group was left or not."""
        self.closed = True
        for timer in (_DRAIN_TIMER, _COMMIT_TIMER, _ABORT_TIMER, _CLOSE_TIMER):
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
        self._poller.disable_idle_check()
        self._subscription_state.membership.leave(now, wait_for_tasks=wait_for_tasks)

    def _stop_waiting(self, now: float) -> None:
        self._outbox.emit(log_events.TASKS_STILL_RUN)
        self._poller.disable_idle_check()
        self._subscription_state.membership.leave(now, wait_for_tasks=False)

    def _not_committed(self, now: float) -> None:
        if self.under_way:
            why = "no commit of it was acknowledged within close_timeout"
            self._revocation.lose(now, self._assignment.live(), why)
            # An open transaction is aborted now: until then the next owners cannot fetch offsets.
            end = now if self._deadline is None else self._deadline.end
            self.waits_for_abort = True
            self._outbox.set_timer(_ABORT_TIMER, (now + end) / 2, self._leave_now)
            self._committer.call_without_transaction(now, self._leave_now)

    def _leave_now(self, now: float) -> None:
        self._outbox.cancel_timer(_ABORT_TIMER)
        self.waits_for_abort = False
        if self.under_way:
            self._subscription_state.membership.leave_now(now)

    def _too_long(self, now: float) -> None:
        membership = self._subscription_state.membership
        if not self.closing:
            # The earlier timers may be due at the same time, and not have fired yet.
            self._not_committed(now)
            self._leave_now(now)
            if self.under_way:
                membership.stop_leaving(now)
            return
        self._outbox.emit(log_events.CLOSE_TIMEOUT_EXCEEDED)
        membership.stop_sending()
        self._revocation.lose(now, self._assignment.live(), "closing took too long")
        self.finish()

    def _complete(self) -> None:
        calls, self._calls = self._calls, []
        error, self._rejection = self._rejection, None
        for call_id in calls:
            self._outbox.put(CompleteRequest(call_id, error=error))
