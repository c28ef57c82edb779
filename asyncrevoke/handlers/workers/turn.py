"""How long the workers run before they yield to the event loop."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncrevoke.client.runtime.session.membership_guard import MembershipGuard

# Seconds that workers together run without yielding to the event loop, if no handler awaits.
_MAX_RUN_WITHOUT_YIELD = 0.004
# Seconds more for workers whose handlers have yielded.
_MAX_YIELDED_EXTENSION = 0.012
_LONGEST_TURN = _MAX_RUN_WITHOUT_YIELD + _MAX_YIELDED_EXTENSION


class TurnReactions(Protocol):
    """Reacts to the begin and the end of a turn. Implemented by :class:`WorkerPool`."""

    def turn_began(self) -> None:
        """Entries may start in this turn of the event loop."""

    def turn_ended(self) -> None:
        """The turn has ended: the event loop runs its other callbacks."""

    def membership_confirmed(self) -> None:
        """The membership is confirmed: entries may start again."""


class Turn:
    """The turn of the event loop in which workers start entries, and when it ends.

    ``ends`` is a time of ``time.monotonic``; before it, workers need not call :meth:`may_start`.
    ``unconfirmed``: no entry starts until the membership is confirmed.
    """

    __slots__ = (
        "_begun",
        "_confirmation",
        "_latest",
        "_may_start_until",
        "_membership",
        "_reactions",
        "ends",
        "number",
        "unconfirmed",
    )

    def __init__(self, membership: MembershipGuard, reactions: TurnReactions) -> None:
        self._membership = membership
        self._reactions = reactions
        # Whether _end() is scheduled.
        self._begun = False
        self.number = 0
        self.ends = 0.0
        self._latest = 0.0
        # By the loop's clock: until then the confirmed membership lets records start.
        self._may_start_until = float("-inf")
        self.unconfirmed = False
        self._confirmation: asyncio.Future[object] | None = None

    def may_start(self, last: int, now: float) -> bool:
        """Whether a worker that last started an entry in turn ``last`` may start one at ``now``.

        Not if the time of the turn is over, or the membership is unconfirmed. A worker whose
        handler has yielded since has more time: when hundreds of handlers end at once, another turn
        of the event loop costs more time than it saves.
        """
        if self._begun:
            return last != self.number and now <= self._latest
        self._begun = True
        self.number += 1
        self._reactions.turn_began()
        now = monotonic()
        self.ends = now + _MAX_RUN_WITHOUT_YIELD
        self._latest = self.ends + _MAX_YIELDED_EXTENSION
        loop = asyncio.get_running_loop()
        loop.call_soon(self._end)
        # Asking once a turn is enough: if the process was frozen, the time of the turn is over.
        if loop.time() > self._may_start_until - _LONGEST_TURN:
            self._ask_membership(now, loop.time())
        return not self.unconfirmed

    def close(self) -> None:
        """Stop waiting for the confirmation of the membership."""
        if self._confirmation is not None:
            self._confirmation.cancel()

    def _ask_membership(self, turn_began: float, now: float) -> None:
        seconds = self._membership.may_begin_for()
        self.unconfirmed = seconds < 0
        self._may_start_until = now + seconds
        # If unconfirmed, the time of the turn is over before an entry starts in it.
        self.ends = min(self.ends, turn_began + seconds)
        self._latest = min(self._latest, turn_began + seconds)
        if self.unconfirmed and self._confirmation is None:
            self._confirmation = self._membership.confirmation()
            self._confirmation.add_done_callback(self._confirmed)

    def _confirmed(self, confirmation: asyncio.Future[object]) -> None:
        self._confirmation = None
        if not confirmation.cancelled() and confirmation.exception() is None:
            self._may_start_until = float("-inf")  # ask again
            self._reactions.membership_confirmed()

    def _end(self) -> None:
        self._begun = False
        self.ends = 0.0
        self._reactions.turn_ended()
