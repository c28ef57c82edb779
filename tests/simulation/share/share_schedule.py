"""Schedules of a share group, drawn from a seed: brokers, members, what their handlers do, and what
befalls them."""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from asyncrevoke.client.core.share.acquire_limits import TopicLimits

if TYPE_CHECKING:
    from collections.abc import Sequence


class ShareDisturbance(enum.Enum):
    """What may happen in a schedule."""

    CALM = "calm"
    """Members join and leave gracefully."""
    COORDINATOR = "coordinator"
    """Also, the coordinator moves, and removes members. No lock may be lost by that."""
    FAULTS = "faults"
    """Members, links, brokers, leaders and topics fail."""


# Where no lock may be lost, and each record is delivered to one call at a time.
STRICT = (ShareDisturbance.CALM, ShareDisturbance.COORDINATOR)


class ShareIncidentKind(enum.Enum):
    """What happens at one time. ``client`` chooses among the live members, ``amount`` are
    seconds."""

    JOIN = "another member joins"
    LEAVE = "a member closes"
    GROW = "a topic gets more partitions"
    MOVE_COORDINATOR = "another broker coordinates the group"
    FORGET = "the coordinator removes all members"
    FULL = "the group has no room for some time"
    CRASH = "a member dies, and its successor joins"
    FREEZE = "a member's event loop is blocked"
    JUMP = "a member's clock jumps ahead"
    CUT = "no packet passes between a member and a broker"
    BLACK_HOLE = "a member's connections carry nothing more, without an error"
    DROP = "a member's connections break"
    SLOW_LINK = "a member's packets take long"
    RESTART = "a broker stops, and starts again"
    STALL = "a broker is paused"
    MOVE_LEADER = "another broker leads a partition"
    DELETE = "a topic is deleted"
    RESET = "a tool resets the offsets of a partition"
    EVICT = "a broker forgets a member's session"
    NO_ROOM = "a broker takes no new session for some time"
    ERROR = "a broker responds with an error"
    CORRUPT = "a broker sends damaged batches"
    SHORTER_LOCK = "the group's lock time becomes shorter"


_CALM = (ShareIncidentKind.JOIN, ShareIncidentKind.LEAVE, ShareIncidentKind.GROW)
_COORDINATOR = (
    *_CALM,
    ShareIncidentKind.MOVE_COORDINATOR,
    ShareIncidentKind.FORGET,
    ShareIncidentKind.FULL,
)
_KINDS = {
    ShareDisturbance.CALM: _CALM,
    ShareDisturbance.COORDINATOR: _COORDINATOR,
    ShareDisturbance.FAULTS: tuple(ShareIncidentKind),
}


@dataclass(frozen=True, slots=True)
class ShareIncident:
    """See :class:`ShareIncidentKind`."""

    at: float
    kind: ShareIncidentKind
    client: int
    amount: float


@dataclass(frozen=True, slots=True)
class HandlerPlan:
    """What a member's handlers do. Times are in seconds; the others are shares of the calls, of
    which the rest returns."""

    usual: float
    longest: float
    slow: float
    retried: float = 0.0
    dead_letter: float = 0.0
    released: float = 0.0
    cancelled: float = 0.0


@dataclass(frozen=True, slots=True)
class ShareMemberPlan:
    """One member: when it joins, how many records it may have, and what its handlers do."""

    at: float
    concurrency: int
    max_in_flight: int
    handlers: HandlerPlan


@dataclass(frozen=True, slots=True)
class ShareSchedule:
    """One run. ``slow`` is the share of slow packets, ``loss`` that of lost requests."""

    seed: int
    disturbance: ShareDisturbance
    brokers: int
    topics: tuple[int, ...]
    duration: float
    members: tuple[ShareMemberPlan, ...]
    incidents: tuple[ShareIncident, ...]
    lock: float
    delivery_limit: int
    locks: int
    renews: bool
    from_earliest: bool
    fails_whole: bool
    session_timeout: float
    produce_every: float
    slow: float = 0.0
    loss: float = 0.0

    @property
    def topic_limits(self) -> dict[str, TopicLimits]:
        """Of two topics, the second one has a limit in half of the schedules."""
        one = {1: TopicLimits(slots=1), 3: TopicLimits(most_unstarted=1)}.get(self.seed % 4)
        return {"b": one} if one is not None and len(self.topics) > 1 else {}

    def describe(self) -> str:
        """The schedule for people."""
        head = (
            f"seed {self.seed}: {self.disturbance.value}, {self.brokers} brokers, "
            f"topics of {self.topics} partitions, lock {self.lock:g} s, "
            f"limit {self.delivery_limit}, {self.locks} locks, renews {self.renews}, "
            f"earliest {self.from_earliest}, fails whole {self.fails_whole}, "
            f"loss {self.loss:g}, slow {self.slow:g}"
        )
        return "\n  ".join(
            [
                head,
                *(str(member) for member in self.members),
                *(
                    f"{incident.at:.3f} {incident.kind.name} {incident.client} "
                    f"{incident.amount:.3f}"
                    for incident in self.incidents
                ),
            ]
        )

    def smaller(self) -> Sequence[ShareSchedule]:
        """The same with one thing less, each."""
        found = [
            dataclasses.replace(
                self, incidents=tuple(i for i in self.incidents if i is not incident)
            )
            for incident in self.incidents
        ]
        if self.loss:
            found.append(dataclasses.replace(self, loss=0.0))
        if self.slow:
            found.append(dataclasses.replace(self, slow=0.0))
        found += [
            dataclasses.replace(self, members=self.members[:n] + self.members[n + 1 :])
            for n in range(1, len(self.members))
        ]
        return found


def draw_share(seed: int, disturbance: ShareDisturbance | None = None) -> ShareSchedule:
    """The schedule of a seed."""
    rng = Random(f"share {seed}")
    kinds = (*STRICT, ShareDisturbance.FAULTS, ShareDisturbance.FAULTS)
    drawn = rng.choice(kinds)
    disturbance = disturbance or drawn
    faults = disturbance is ShareDisturbance.FAULTS
    lock = rng.choice((4.0, 6.0, 10.0))
    duration = rng.uniform(4.0, 10.0)
    members = tuple(
        _draw_member(rng, lock, faults=faults, at=rng.uniform(0.0, 3.0) * (number > 0))
        for number in range(rng.randint(1, 3))
    )
    return ShareSchedule(
        seed=seed,
        disturbance=disturbance,
        brokers=rng.randint(1, 3),
        topics=rng.choice(((1,), (2,), (3,), (1, 2))),
        duration=duration,
        members=members,
        incidents=_draw_incidents(rng, disturbance, duration, lock),
        lock=lock,
        delivery_limit=rng.choice((5, 5, 10, 3)),
        locks=rng.choice((2000, 2000, 30)),
        renews=not faults or rng.random() < 0.9,
        from_earliest=rng.random() < 0.6,
        fails_whole=rng.random() < 0.5,
        session_timeout=rng.choice((9.0, 12.0)),
        produce_every=rng.choice((0.2, 0.6, 1.5)),
        slow=rng.choice((0.0, 0.3)),
        loss=rng.choice((0.0, 0.0, 0.01, 0.05)) if faults else 0.0,
    )


def _draw_member(rng: Random, lock: float, *, faults: bool, at: float) -> ShareMemberPlan:
    concurrency = rng.choice((1, 3, 8, 20))
    handlers = HandlerPlan(
        usual=rng.choice((0.0, 0.01, 0.3)),
        longest=rng.choice((1.0, 1.0, 1.6 * lock)),
        slow=rng.choice((0.0, 0.02, 0.1)),
        retried=rng.choice((0.0, 0.1)),
        dead_letter=rng.choice((0.0, 0.05)),
        released=rng.choice((0.0, 0.05)),
        cancelled=rng.choice((0.0, 0.02)) if faults else 0.0,
    )
    return ShareMemberPlan(at, concurrency, concurrency * rng.choice((1, 2, 3)), handlers)


def _draw_incidents(
    rng: Random, disturbance: ShareDisturbance, duration: float, lock: float
) -> tuple[ShareIncident, ...]:
    kinds = _KINDS[disturbance]
    incidents = [
        ShareIncident(
            rng.uniform(0.5, duration),
            rng.choice(kinds),
            rng.randrange(10),
            rng.choice((0.2, 2.0, 0.7 * lock, 1.3 * lock)) * rng.uniform(0.5, 1.0),
        )
        for _ in range(rng.randint(0, 6 if disturbance is ShareDisturbance.FAULTS else 4))
    ]
    return tuple(sorted(incidents, key=lambda incident: incident.at))
