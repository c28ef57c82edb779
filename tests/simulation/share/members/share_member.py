"""A member: one ``ShareCore``, whose effects are carried out in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simulation.members.driven_member import DrivenMember
from typing_extensions import override

from asyncrevoke.client.core.io.effects import (
    CancelTimer,
    CompleteRequest,
    DropSilentConnections,
    Effect,
    Emit,
    Event,
    Failed,
    ProbeBroker,
    Replied,
    ResetConnection,
    Send,
    SetTimer,
    WakePoller,
)
from asyncrevoke.client.core.share_core import ShareCore

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from simulation.cluster.network import Network
    from simulation.share.invariants.share_oracle import ShareOracle

    from asyncrevoke.testing.fake_kafka.clock import Clock


class SimulatedShareMember(DrivenMember[ShareCore]):
    """``closed`` is called when the core has closed."""

    def __init__(
        self,
        clock: Clock,
        network: Network,
        oracle: ShareOracle,
        client: int,
        rng: Random,
        core: ShareCore,
    ) -> None:
        super().__init__(clock, network, client, rng, core)
        self.closed: Callable[[], None] = lambda: None
        self._oracle = oracle
        oracle.admit(self)

    @property
    def member_id(self) -> str:
        """What the brokers know it by."""
        return self.core.membership.member_id

    @override
    def _handle(self, event: Event) -> None:
        if isinstance(event, (Replied, Failed)):
            self._oracle.received(self, event)
        super()._handle(event)

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a method of the core, and carry out what follows."""
        result = function(self.now, *args, **kwargs)
        self.take_effects()
        return result

    @override
    def carry_out(self, effects: list[Effect]) -> None:
        if not self.alive:
            return
        for effect in effects:
            self._oracle.effect(self, effect)
            match effect:
                case Send():
                    self._network.send(self, effect)
                case SetTimer():
                    self._set_timer(effect)
                case CancelTimer():
                    self._cancel_timer(effect.key)
                case WakePoller():
                    self._wake_soon()
                case ResetConnection() | DropSilentConnections() | ProbeBroker():
                    self._reconnect(effect)
                case CompleteRequest():
                    self.later(0.0, self.closed)
                case _:
                    assert isinstance(effect, Emit), effect
        self._oracle.handled(self)
