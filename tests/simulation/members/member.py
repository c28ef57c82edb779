"""A member: one ``Core``, whose effects are carried out in virtual time.

It takes the place of the asyncio driver. A frozen member (its event loop is blocked) handles no
event until it thaws, and then all of them in order. A crashed member sends nothing more. The
application that polls it is in :mod:`.application`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from simulation.members.driven_member import DrivenMember
from simulation.members.heartbeat_thread import SimulatedHeartbeatThread
from typing_extensions import override

from asyncrevoke.client.core.core import Core
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
    TransactionDue,
    WakePoller,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from simulation.cluster.network import Network

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.testing.fake_kafka.clock import Clock


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


class SimulatedMember(DrivenMember[Core]):
    """A member of a consumer group."""

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
        super().__init__(clock, network, client, rng, core)
        self.config = config
        self.health = Impairments()
        self.completed: Callable[[CompleteRequest], None] = lambda _complete: None
        self.transaction_due: Callable[[], None] = lambda: None
        self.partitions_lost: Callable[[frozenset[TopicPartition]], None] = lambda _partitions: None
        self.lifespan_due: Callable[[EnterLifespan | ExitLifespan | LoseLifespan], None] = (
            lambda _event: None
        )
        self._observer = observer
        self.thread = (
            SimulatedHeartbeatThread(clock, network, self, self.receive) if has_thread else None
        )

    @override
    def _handle(self, event: Event) -> None:
        self._observer.before(self, event)
        super()._handle(event)

    @override
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

    @override
    def freeze(self, seconds: float) -> None:
        """Block the event loop for a while."""
        if self.alive and self.thread is not None and not self.frozen:
            self.thread.blocked()
        super().freeze(seconds)

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
