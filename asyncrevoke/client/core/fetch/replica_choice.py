"""Which broker a partition is fetched from: its leader, or a preferred read replica (KIP-392)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.backoff import Backoff

if TYPE_CHECKING:
    from asyncrevoke.client.core.io.effects import Node
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata

_FIRST_BACKOFF = 0.1
_LONGEST_BACKOFF = 10.0
# Attempts to read from a replica may take at most this share of the time.
_SHARE_OF_ATTEMPTS = 0.1
_NONE = -1


class ReplicaChoice:
    """The choice for one partition.

    A leader responds to a request with a rack by naming its preferred replica, without records. If
    that replica cannot be used, the leader is asked without a rack for a while, and gives records.
    """

    def __init__(self) -> None:
        self._preferred = _NONE
        # When the leader is asked again which replica it prefers.
        self._lease_until = 0.0
        # Until when the leader is asked without a rack.
        self._leader_until = 0.0
        self._backoff = Backoff(_FIRST_BACKOFF, _LONGEST_BACKOFF)

    def prefer(self, replica: int, until: float) -> None:
        """Fetch from this replica ``until`` then, while the metadata lists it."""
        self._preferred = replica
        self._lease_until = until

    def fall_back(self, now: float, *, attempt: float = 0.0, awaited: int = _NONE) -> bool:
        """Fetch from the leader for a while, longer each time: reading from a replica failed, after
        ``attempt`` seconds. Use the ``awaited`` replica as soon as the metadata lists it. False if
        a former while is not over: the leader redirects a request without a rack."""
        is_new = now >= self._leader_until
        if is_new or attempt:
            seconds = max(self._backoff.failed(), attempt / _SHARE_OF_ATTEMPTS)
            self._leader_until = now + seconds
        self._preferred = awaited
        self._lease_until = self._leader_until
        return is_new

    def served(self, node_id: int) -> bool:
        """This broker has sent records; whether it is the preferred replica."""
        if self._preferred != node_id:
            return False
        self._backoff.succeeded()
        return True

    def needs_leader(self, now: float) -> bool:
        """Whether the leader must be asked without a rack."""
        return now < self._leader_until

    def node(self, now: float, leader: Node, cluster: ClusterMetadata) -> Node:
        """The broker to fetch from."""
        if self._preferred == _NONE:
            return leader
        if now >= self._lease_until:
            self._preferred = _NONE
            return leader
        return cluster.brokers.node(self._preferred) or leader
