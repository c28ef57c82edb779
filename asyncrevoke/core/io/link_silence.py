"""How long a connection may stay silent before it is taken for dead, by what was observed of it.

A broker that vanishes, or a firewall that drops packets, closes no connection. So a connection on
which something was asked and nothing at all was received for the *patience* (a third of the
session) is dropped. A request that the broker may hold before it answers has that time on top.
On a link with longer round trips the patience is two of them: or each connection would be dropped
before its first answer, for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.protocol.messages import (
    FetchRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)

if TYPE_CHECKING:
    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.protocol.messages import Request

# A broker waits so long for the replicas of a commit (its offsets.commit.timeout.ms), and answers.
_LONGEST_COMMIT = 5.0
_FOREVER = float("inf")
_ROUND_TRIPS = 2
# Of each new answer in the round trip that is expected.
_WEIGHT = 0.25


def patience_of(config: ConsumerConfig) -> float:
    """Seconds that a connection may be silent while something is asked, unless the group has told
    another session than ``config``."""
    return min(config.request_timeout, config.session_timeout / 3)


def may_hold(message: Request) -> float:
    """Seconds that a broker that is alive may take before it answers this request."""
    if isinstance(message, FetchRequest):
        return message.max_wait
    if isinstance(message, (JoinGroupRequest, SyncGroupRequest)):
        # Until all members have joined; whether the broker lives, other connections tell.
        return _FOREVER
    return _LONGEST_COMMIT if isinstance(message, OffsetCommitRequest) else 0.0


class RoundTripTime:
    """The round trips of one connection. ``opening``: the seconds that it took to open it, which
    was one round trip at least."""

    def __init__(self, opening: float = 0.0) -> None:
        self._round_trip = opening

    def answered(self, seconds: float) -> None:
        """A request that nothing stood before was answered after so many seconds."""
        self._round_trip += (seconds - self._round_trip) * _WEIGHT

    def patience(self, least: float) -> float:
        """``least`` seconds, or two round trips if those are longer."""
        return max(least, _ROUND_TRIPS * self._round_trip)


class ConnectTimes:
    """How long connections to one broker took to open, and how long the next may take."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._failures = 0

    def limit(self, patience: float, longest: float) -> float:
        """Seconds for the next attempt, at most ``longest``: twice as many after each that was not
        done in time, because opening takes several round trips."""
        seconds = max(patience, _ROUND_TRIPS * self._seconds)
        return min(longest, seconds * 2.0 ** min(self._failures, 16))

    def opened(self, seconds: float) -> None:
        """An attempt took so many seconds."""
        self._seconds = seconds
        self._failures = 0

    def timed_out(self) -> None:
        """An attempt was not done in time."""
        self._failures += 1
