"""Connections whose end a broker notices, because share sessions end with them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from simulation.cluster.network import Connection, Network, PendingRequest
from typing_extensions import override

if TYPE_CHECKING:
    from random import Random

    from simulation.share.brokers.share_brokers import ShareBrokers

    from asyncrevoke.testing.fake_kafka.clock import Clock


class ShareNetwork(Network):
    """A broker notices after the time of a packet, later if it is paused or the link is cut, and
    never on a black hole."""

    def __init__(self, clock: Clock, rng: Random, brokers: ShareBrokers) -> None:
        super().__init__(clock, rng, brokers)
        self._brokers = brokers

    @override
    def _process(self, pending: PendingRequest) -> None:
        self._brokers.over = pending.connection
        self._brokers.is_late = False
        super()._process(pending)

    @override
    def _process_ghost(self, pending: PendingRequest) -> None:
        self._brokers.over = pending.connection
        self._brokers.is_late = True
        super()._process_ghost(pending)
        self._brokers.is_late = False

    @override
    def disconnect(self, connection: Connection) -> None:
        was_alive = connection.alive
        super().disconnect(connection)
        if was_alive and not connection.black_hole:
            latency = self._latency(connection.key[0])
            self._clock.after(latency, partial(self._notice, connection))

    def _notice(self, connection: Connection) -> None:
        client, broker, *_ = connection.key
        blocked = max(self._cut_until(client, broker), self._brokers.stalled_until(broker))
        if blocked > self._clock.now:
            self._clock.at(blocked, partial(self._notice, connection))
        elif self._brokers.is_up(broker):
            self._brokers.connection_closed(broker, connection)
