"""No member loops at one instant: neither a timer nor a poll wakes itself."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from simulation.invariants.oracle_state import OracleState, Violation

if TYPE_CHECKING:
    from simulation.members.member import SimulatedMember

# Virtual time stands still while a core works: what repeats itself as often makes no progress.
MOST_FIRINGS = 10
MOST_EMPTY_POLLS = 20


class BusyLoopOracle:
    """Counts, for each member and instant, how often each timer fires and how many polls return
    nothing."""

    def __init__(self, state: OracleState) -> None:
        self._state = state
        self._instants: dict[int, float] = {}
        self._firings: dict[int, Counter[str]] = {}
        self._empty_polls: Counter[int] = Counter()

    def fired(self, member: SimulatedMember, key: str) -> None:
        """A timer of this member has fired."""
        self._begin_instant(member.client)
        firings = self._firings[member.client]
        firings[key] += 1
        if firings[key] > MOST_FIRINGS:
            raise Violation(
                "busy loop",
                f"client {member.client}: timer {key!r} has fired {firings[key]} times at "
                f"{self._state.clock.now!r}, which is {member.now!r} on its own clock",
            )

    def polled_without_result(self, member: SimulatedMember) -> None:
        """A poll of this member has returned nothing."""
        client = member.client
        self._begin_instant(client)
        self._empty_polls[client] += 1
        if self._empty_polls[client] > MOST_EMPTY_POLLS:
            raise Violation(
                "busy loop",
                f"client {client}: {self._empty_polls[client]} polls have returned nothing at "
                f"{self._state.clock.now!r}, which is {member.now!r} on its own clock",
            )

    def _begin_instant(self, client: int) -> None:
        now = self._state.clock.now
        if self._instants.get(client) != now:
            self._instants[client] = now
            self._firings[client] = Counter()
            self._empty_polls[client] = 0
