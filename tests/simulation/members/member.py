"""A member: one ``Core``, whose effects are carried out in virtual time.

It takes the place of the asyncio driver. A frozen member (its event loop is blocked) handles no
event until it thaws, and then all of them in order. A crashed member sends nothing more. The
application that polls it is in :mod:`.application`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from simulation.members.heartbeat_thread import SimulatedHeartbeatThread

from asyncrevoke.client.core.io.effects import (
    BackgroundHeartbeat,
    CancelTimer,
    CompleteRequest,
    Compute,
    Computed,
    DecodeBatch,
    DropSilentConnections,
    Effect,
    Emit,
    EnterLifespan,
    Event,
    ExitLifespan,
    LoseLifespan,
    Notify,
    NotifyKind,
    ProbeBroker,
    ResetConnection,
    Send,
    SetTimer,
    StopBackgroundHeartbeat,
    TimerFired,
    TransactionDue,
    WakePoller,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from simulation.cluster.network import Network

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.core import Core
    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.testing.fake_kafka.clock import Alarm, Clock


DECODING = 0.05  # seconds that a large batch takes
COMPUTING = 0.2  # seconds that an assignment takes at the most


class CoreObserver:
    """What follows all events and effects of a core, such as the oracles."""

    def before(self, member: SimulatedMember, event: Event) -> None:
        """The core is about to handle this event."""

    def effect(self, member: SimulatedMember, effect: Effect) -> None:
        """The core has asked for this."""

    def call_ended(self, member: SimulatedMember) -> None:
        """A call into the core has ended, and all its effects were seen."""


@dataclass(slots=True)
class Impairments:
    """What the simulation did to a member, which permits later losses and duplicates."""

    crashed: bool = False
    impaired_until: float = 0.0


class SimulatedMember:
    """``client`` is its number in the simulation: a member that comes back is a new one.

    ``beside``: whether its connections are those of a thread beside the event loop.
    """

    beside = False

    def __init__(
        self,
        clock: Clock,
        network: Network,
        observer: CoreObserver,
        client: int,
        rng: Random,
        config: ConsumerConfig,
        core: Core,
        *,
        has_thread: bool = False,
    ) -> None:
        self.client = client
        self.config = config
        self.rng = rng
        self.core = core
        self.alive = True
        self.health = Impairments()
        self.wake: Callable[[], None] = lambda: None
        self.completed: Callable[[CompleteRequest], None] = lambda _complete: None
        self.transaction_due: Callable[[], None] = lambda: None
        self.partitions_lost: Callable[[frozenset[TopicPartition]], None] = lambda _partitions: None
        self.lifespan_due: Callable[[EnterLifespan | ExitLifespan | LoseLifespan], None] = (
            lambda _event: None
        )
        self._clock = clock
        self._network = network
        self._observer = observer
        self._offset = 0.0
        self._timers: dict[str, tuple[float, Alarm]] = {}
        self._frozen_until = 0.0
        self._backlog: list[Callable[[], None]] = []
        self._woken = False
        self.thread = (
            SimulatedHeartbeatThread(clock, network, self, self.receive) if has_thread else None
        )

    @property
    def now(self) -> float:
        """The member's own clock."""
        return self._clock.now + self._offset

    @property
    def frozen(self) -> bool:
        """Whether its event loop is blocked."""
        return self._clock.now < self._frozen_until

    # --- the core --------------------------------------------------------------------------------

    def receive(self, event: Event) -> None:
        """A response, or a timer, has come."""
        if not self.alive:
            return
        if self._clock.now < self._frozen_until:
            self._backlog.append(lambda: self._handle(event))
        else:
            self._handle(event)

    def _handle(self, event: Event) -> None:
        self._observer.before(self, event)
        self.carry_out(self.core.handle(self.now, event))

    def take_effects(self) -> None:
        """Carry out what a call other than ``handle`` has left."""
        self.carry_out(self.core.take_effects(self.now))

    def carry_out(self, effects: list[Effect]) -> None:
        """Do what the core asks for."""
        if not self.alive:
            return
        observer = self._observer
        # One call's effects happen together: what it reports of partitions is checked first.
        for effect in effects:
            if type(effect) is Notify:
                observer.effect(self, effect)
                if effect.kind is NotifyKind.LOST:
                    self.partitions_lost(effect.partitions)
        for effect in effects:
            if type(effect) is not Notify:
                observer.effect(self, effect)
            kind = type(effect)
            if kind is Send:
                assert isinstance(effect, Send)
                self._network.send(self, effect)
            elif isinstance(effect, (DecodeBatch, Compute)):
                self._run_beside(effect)
            elif kind is WakePoller:
                self._wake_soon()
            elif kind is TransactionDue:
                self.transaction_due()
            elif isinstance(effect, (EnterLifespan, ExitLifespan, LoseLifespan)):
                self.lifespan_due(effect)
            elif isinstance(effect, (ResetConnection, DropSilentConnections, ProbeBroker)):
                self._reconnect(effect)
            elif kind is SetTimer:
                assert isinstance(effect, SetTimer)
                self._set_timer(effect)
            elif kind is CancelTimer:
                assert isinstance(effect, CancelTimer)
                self._cancel_timer(effect.key)
            elif kind is CompleteRequest:
                assert isinstance(effect, CompleteRequest)
                self._complete(effect)
            elif kind is BackgroundHeartbeat and self.thread is not None:
                assert isinstance(effect, BackgroundHeartbeat)
                self.thread.set_heartbeat(effect)
            elif kind is StopBackgroundHeartbeat and self.thread is not None:
                self.thread.set_heartbeat(None)
            else:
                assert isinstance(
                    effect, (Notify, Emit, BackgroundHeartbeat, StopBackgroundHeartbeat)
                )
        observer.call_ended(self)

    def _reconnect(self, effect: ResetConnection | DropSilentConnections | ProbeBroker) -> None:
        if isinstance(effect, ResetConnection):
            self._network.reset(self.client, effect.node, effect.channel)
        elif isinstance(effect, ProbeBroker):
            self._network.probe(self, effect)
        else:
            self._network.drop_silent(self.client, effect)

    def _run_beside(self, effect: DecodeBatch | Compute) -> None:
        if isinstance(effect, DecodeBatch):
            self.later(DECODING, partial(self._end_run, effect))
        else:
            # Between nothing and the longest, and without chance, which others have a share in.
            share = effect.computation_id * 7919 % 101 / 100
            self.later(share * COMPUTING, partial(self._end_run, effect))

    def _end_run(self, effect: DecodeBatch | Compute) -> None:
        ended = effect.run()
        if isinstance(ended, Computed) and isinstance(ended.result, Exception):
            raise ended.result
        self.receive(ended)

    def _complete(self, complete: CompleteRequest) -> None:
        self.later(0.0, lambda: self.completed(complete))

    def _wake_soon(self) -> None:
        if not self._woken:
            self._woken = True
            self.later(0.0, self._wake_now)

    def _wake_now(self) -> None:
        self._woken = False
        self.wake()

    # --- time ------------------------------------------------------------------------------------

    def _set_timer(self, timer: SetTimer) -> None:
        self._cancel_timer(timer.key)
        at = timer.at + timer.spread * self.rng.random()
        self._arm(timer.key, at)

    def _arm(self, key: str, at: float) -> None:
        when = at - self._offset
        if when + self._offset < at:  # rounded: a timer that fires early would be set again at once
            when = math.nextafter(when, math.inf)
        self._timers[key] = (at, self._clock.at(when, lambda: self._fire(key)))

    def _fire(self, key: str) -> None:
        del self._timers[key]
        self.receive(TimerFired(key))

    def _cancel_timer(self, key: str) -> None:
        found = self._timers.pop(key, None)
        if found is not None:
            found[1].cancel()

    def later(self, seconds: float, action: Callable[[], None]) -> Alarm:
        """Let the application do something later, unless it is dead by then."""
        return self._clock.after(seconds, lambda: self._act(action))

    def _act(self, action: Callable[[], None]) -> None:
        if not self.alive:
            return
        if self._clock.now < self._frozen_until:
            self._backlog.append(action)
        else:
            action()

    # --- what befalls it -------------------------------------------------------------------------

    def freeze(self, seconds: float) -> None:
        """Block the event loop for a while."""
        if not self.alive:
            return
        if self.thread is not None and not self.frozen:
            self.thread.blocked()
        self._frozen_until = max(self._frozen_until, self._clock.now + seconds)
        self._clock.at(self._frozen_until, self._thaw)

    def _thaw(self) -> None:
        while self._backlog and self.alive and self._clock.now >= self._frozen_until:
            self._backlog.pop(0)()

    def jump(self, seconds: float) -> None:
        """Let the member's clock jump ahead, as after a suspended machine."""
        self._offset += seconds
        timers, self._timers = self._timers, {}
        for key, (at, alarm) in timers.items():
            alarm.cancel()
            self._arm(key, at)

    def die(self) -> None:
        """End without a word: nothing of it happens any more."""
        self.alive = False
        for _, alarm in self._timers.values():
            alarm.cancel()
        self._timers.clear()
        self._network.disconnect_client(self.client)

    def facts(self) -> Mapping[str, object]:
        """For a failure report."""
        return {
            "client": self.client,
            "alive": self.alive,
            "frozen": self.frozen,
            "timers": {key: round(at - self._offset, 3) for key, (at, _) in self._timers.items()},
            "outstanding": self._network.outstanding(self.client),
            "health": self.core.health(self.now),
        }
