"""How long a connection may be silent before its broker is probed, and before it is dropped.

A broker that vanishes, or a firewall that drops packets, closes no connection. So if nothing is
received for the *silence timeout*, a third of the session timeout, while a request is outstanding,
the connection is reported silent and its broker is probed over another one. After twice that time
the request fails and the connection is dropped. The time that a broker may hold the request is
added. On a slow link the silence timeout is two round trips, so that the first response can arrive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.protocol.messages import (
    FetchRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.protocol.messages import Request

# A broker waits so long for the replicas of a commit (offsets.commit.timeout.ms).
_LONGEST_COMMIT = 5.0
_FOREVER = float("inf")
_ROUND_TRIPS = 2
# The weight of each new response in the average.
_WEIGHT = 0.25


def silence_timeout_of(config: ConsumerConfig) -> float:
    """The silence timeout in seconds, unless the coordinator grants another session timeout."""
    return min(config.request_timeout, config.session_timeout / 3)


def may_hold(message: Request) -> float:
    """Seconds that a broker that is alive may take before it responds to this request."""
    if isinstance(message, FetchRequest):
        return message.max_wait
    if isinstance(message, (JoinGroupRequest, SyncGroupRequest)):
        # Until all members have joined. Other connections show whether the broker lives.
        return _FOREVER
    return _LONGEST_COMMIT if isinstance(message, OffsetCommitRequest) else 0.0


class RoundTripTime:
    """The round trip time of one connection. ``opening`` it took so many seconds."""

    def __init__(self, opening: float = 0.0) -> None:
        self._round_trip = opening

    def response_took(self, seconds: float) -> None:
        """The response to a request on an idle connection came after so many seconds."""
        self._round_trip += (seconds - self._round_trip) * _WEIGHT

    def silence_timeout(self, least: float) -> float:
        """``least`` seconds, or two round trips if those are longer."""
        return max(least, _ROUND_TRIPS * self._round_trip)


class ConnectTimes:
    """How long connections to one broker took to open, and how long the next may take."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._failures = 0

    def limit(self, silence_timeout: float, longest: float) -> float:
        """Seconds for the next attempt, at most ``longest``; doubled after each timeout, because
        opening takes several round trips."""
        seconds = max(silence_timeout, _ROUND_TRIPS * self._seconds)
        return min(longest, seconds * 2.0 ** min(self._failures, 16))

    def opened(self, seconds: float) -> None:
        """An attempt took so many seconds."""
        self._seconds = seconds
        self._failures = 0

    def timed_out(self) -> None:
        """An attempt timed out."""
        self._failures += 1
