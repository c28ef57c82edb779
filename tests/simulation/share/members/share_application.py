"""An application that calls a handler for each record of a member: what handlers do, and what the
outcome is acknowledged as."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from asyncrevoke.client.core.io.deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from simulation.share.invariants.share_oracle import ShareOracle
    from simulation.share.members.share_member import SimulatedShareMember
    from simulation.share.share_schedule import HandlerPlan

    from asyncrevoke.client.core.share.acquired_records import AcquiredRecord as Acquired

CLOSE_TIMEOUT = 12.0
# Of the acknowledgement of a result or of a dead letter.
_LONGEST_PRODUCE = 0.05


@dataclass(slots=True, eq=False)
class Call:
    """The calls of one record. ``runs``: it has a slot. ``is_over``: it has ended, or is
    cancelled."""

    record: Acquired
    attempts: int = 0
    runs: bool = False
    is_over: bool = False


class ShareApplication:
    """Starts at most ``concurrency`` handlers at a time. A record that waits for its next attempt
    has no slot, and gets one before new records do."""

    def __init__(
        self,
        member: SimulatedShareMember,
        plan: HandlerPlan,
        oracle: ShareOracle,
        rng: Random,
        concurrency: int,
        lock: float,
    ) -> None:
        self.member = member
        self.ending = False
        # For tests: what the handler of a record does, instead of what is drawn.
        self.script: Callable[[Acquired], tuple[str, float]] | None = None
        self._plan = plan
        self._oracle = oracle
        self._rng = rng
        self._concurrency = concurrency
        self._lock = lock
        self._ready: deque[Call] = deque()
        self._calls: dict[tuple[int, int], Call] = {}
        self._running = 0
        member.wake = self.step
        member.closed = self._closed

    def step(self) -> None:
        """Take what the core has, and start what can be."""
        core = self.member.core
        for key in core.take_lost():
            if (call := self._calls.get(key)) is not None:
                self._end(call)
        for record in chain.from_iterable(self.member.call(core.poll)):
            call = Call(record)
            self._calls[record.acquisition, record.offset] = call
            self._ready.append(call)
        self._start()

    def _start(self) -> None:
        while self._ready and self._running < self._concurrency and not self.ending:
            call = self._ready.popleft()
            if not call.is_over:
                self._begin(call)

    def _begin(self, call: Call) -> None:
        if not self.member.call(self.member.core.begin, call.record):
            self._end(call)
            return
        self._running += 1
        call.runs = True
        call.attempts += 1
        self._oracle.started(self.member, call.record)
        what, seconds = self.script(call.record) if self.script else self._draw(call)
        self.member.later(seconds, partial(self._returned, call, what))

    def _draw(self, call: Call) -> tuple[str, float]:
        plan, rng = self._plan, self._rng
        slow = rng.random() < plan.slow
        seconds = rng.random() * (plan.longest if slow else plan.usual)
        draw = rng.random()
        shares = {
            "retry": plan.retried if call.attempts < 3 else 0.0,
            "reject": plan.dead_letter,
            "release later": plan.released,
            "release": plan.cancelled,
        }
        for what, share in shares.items():
            if draw < share:
                return what, seconds
            draw -= share
        return "accept", seconds

    def _returned(self, call: Call, what: str) -> None:
        """The handler has returned, or has raised."""
        if call.is_over:
            return
        core, record = self.member.core, call.record
        match what:
            case "retry":
                self._free_slot(call)
                if self.member.call(core.wait, record):
                    again = partial(self._due, call)
                    self.member.later(self._rng.random() * 1.2 * self._lock, again)
                else:
                    self._end(call)
            case "accept" | "reject":
                produced = partial(self._acknowledge, call, what)
                self.member.later(self._rng.random() * _LONGEST_PRODUCE, produced)
            case "release later":
                after = self._rng.random() * 1.2 * self._lock
                self._oracle.asked(self.member, record, "release", after)
                self.member.call(core.wait, record, release_after=after)
                self._end(call)
            case _:
                self._acknowledge(call, what)

    def _due(self, call: Call) -> None:
        if not call.is_over and not self.ending:
            self._ready.appendleft(call)
            self._start()

    def _acknowledge(self, call: Call, what: str) -> None:
        """Its results, or its dead letter, are acknowledged."""
        if call.is_over:
            return
        core = self.member.core
        function = {"accept": core.accept, "reject": core.reject, "release": core.release}[what]
        self._oracle.asked(self.member, call.record, what, 0.0)
        self._end(call)
        self.member.call(function, call.record)

    def _end(self, call: Call) -> None:
        """The call has ended, or is cancelled."""
        if not call.is_over:
            call.is_over = True
            self._calls.pop((call.record.acquisition, call.record.offset), None)
            self._free_slot(call)

    def _free_slot(self, call: Call) -> None:
        if call.runs:
            call.runs = False
            self._running -= 1
            self._oracle.ended(self.member, call.record)
            self.member.later(0.0, self._start)

    # --- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Close gracefully."""
        if self.ending or not self.member.alive:
            return
        self.ending = True
        if self.member.frozen:
            self.member.later(0.0, self._close)
        else:
            self._close()

    def _close(self) -> None:
        deadline = Deadline.after(self.member.now, CLOSE_TIMEOUT)
        self._oracle.closing(self.member, deadline)
        self.member.call(self.member.core.close, deadline)
        self.member.later(deadline.work - self.member.now, self._cancel)

    def _cancel(self) -> None:
        for call in list(self._calls.values()):
            self._end(call)

    def _closed(self) -> None:
        self._cancel()
        self._oracle.closed(self.member)
        self.member.die()
