"""Each call of an application completes once, within the documented time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from simulation.invariants.oracle_state import OracleState, Violation

if TYPE_CHECKING:
    from simulation.members.member import SimulatedMember

# How late the result may be, in seconds.
_SLACK = 0.5
_LOOK_UPS = ("partitions_for_topic", "offsets_for_times", "committed")


@dataclass(slots=True)
class _Waiting:
    member: SimulatedMember
    call: str
    since: float
    # None: for as long as no broker responds.
    bound: float | None
    frozen_before: float


class CallOracle:
    """Follows each call of an application to its result."""

    def __init__(self, state: OracleState) -> None:
        self._state = state
        self._waiting: dict[tuple[int, int], _Waiting] = {}
        self._completed: set[tuple[int, int]] = set()

    def asked(self, member: SimulatedMember, call_id: int, call: str, bound: float | None) -> None:
        """A call was made that is to be completed within ``bound`` seconds."""
        key, clock = (member.client, call_id), self._state.clock
        if key in self._completed:
            return
        self._waiting[key] = _Waiting(member, call, clock.now, bound, self._frozen(member))
        if bound is not None:
            clock.after(bound + _SLACK, partial(self._look, key))

    def completed(self, client: int, call_id: int) -> None:
        """A core has completed a call."""
        key = client, call_id
        if key in self._completed:
            raise Violation("calls", f"client {client}: call {call_id} is completed twice")
        self._completed.add(key)
        self._waiting.pop(key, None)

    def is_looking_up(self, client: int) -> bool:
        """Whether a member waits for facts of the cluster that it has asked for."""
        return any(
            of == client and waiting.call in _LOOK_UPS for (of, _), waiting in self._waiting.items()
        )

    def incomplete(self) -> list[str]:
        """What living members wait for."""
        return [
            f"client {waiting.member.client} waits for {waiting.call} since {waiting.since:.3f}"
            for waiting in self._waiting.values()
            if waiting.member.alive
        ]

    def _frozen(self, member: SimulatedMember) -> float:
        return self._state.client_frozen.get(member.client, 0.0)

    def _look(self, key: tuple[int, int]) -> None:
        waiting = self._waiting.get(key)
        if waiting is None or waiting.bound is None or not waiting.member.alive:
            return
        # A blocked event loop completes nothing.
        frozen = self._frozen(waiting.member) - waiting.frozen_before
        left = waiting.since + waiting.bound + frozen + _SLACK - self._state.clock.now
        if left > 0:
            self._state.clock.after(left, partial(self._look, key))
            return
        raise Violation(
            "time bound",
            f"client {waiting.member.client} waits for {waiting.call} since {waiting.since:.3f}, "
            f"which takes {waiting.bound:g} s at most",
        )
