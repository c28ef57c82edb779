"""Schedules: everything that happens in one run, drawn from a seed and written down as data."""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import msgspec
from simulation.members.consumer_style import ConsumerStyle, Progress, WorkTime
from simulation.schedules.transaction_plan import TransactionPlan  # noqa: TC002 - for msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping


class GroupMode(enum.Enum):
    """How the members of the group rebalance."""

    EAGER = "eager"
    COOPERATIVE = "cooperative"
    MIXED = "mixed"
    CONSUMER = "consumer"
    CONVERTED = "converted"


_CLASSIC = (GroupMode.EAGER, GroupMode.COOPERATIVE, GroupMode.MIXED)


class Protocol(enum.Enum):
    """The ``group_protocol`` of a member, in a group that may be converted."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    AUTO = "auto"


class Disturbance(enum.Enum):
    """What may go wrong in a schedule. ``CALM`` is ``NONE`` without what applications may do to
    themselves: no work takes longer than a revoke may, and no loop is left in the midst of it.
    ``MOVES`` is ``CALM`` but for the coordinator, which moves and is killed; ``SILENCE`` is
    ``CALM`` but for connections that die without a word, and slow links."""

    NONE = "none"
    LOSS = "loss"
    FAULTS = "faults"
    CALM = "calm"
    MOVES = "moves"
    SILENCE = "silence"


_DRAWN = (Disturbance.NONE, Disturbance.LOSS, Disturbance.FAULTS)
INEXCUSABLE = (Disturbance.CALM, Disturbance.MOVES, Disturbance.SILENCE)
_UNDISTURBED = (Disturbance.NONE, *INEXCUSABLE)
# With it a batch and a stay away from the iterator are over before the shortest deadline.
_LONGEST_CALM_WORK = 1.0


class IncidentKind(enum.Enum):
    """What an incident is. ``target`` chooses a living member; ``amount`` is mostly seconds."""

    # The life of a group.
    JOIN = "a member joins"
    STOP = "a member stops its loop, and closes"
    LEAVE = "a member leaves its loop, and closes"
    REPLACE = "a member stops, and comes back with the schedule's later options"
    SWITCH = "a member stops, and comes back by the other protocol"
    SUBSCRIBE = "a member subscribes to other topics"
    COMMIT = "a member flushes what counts"
    CANCEL = "a waiting step is cancelled, and taken up again later"
    EXPIRE = "the timeout of a waiting step is over"
    AWAY = "a member stays away from its iterator for a while"
    STYLE = "a member changes between batches, single records and a task group"
    UNSUBSCRIBE = "a member unsubscribes, and subscribes again later"
    ASK = "a member asks for partitions, and where they begin"
    REREAD = "a member seeks back to what it is working on"
    SEEK_TO = "a member seeks to the beginning or the end of what it is working on"
    PAUSE = "a member pauses a partition for a while"
    PARTITIONS = "partitions are added"
    RETENTION = "the oldest records of a partition are deleted"
    RECREATE = "a topic is deleted, and created again"
    # Faults.
    CRASH = "a member dies without a word"
    FREEZE = "the event loop of a member is blocked"
    JUMP = "the clock of a member jumps ahead"
    CUT = "nothing passes between a member and the brokers"
    CUT_COORDINATOR = "nothing passes between a member and the coordinator"
    DROP = "the connections of a member break"
    MOVE = "the coordinator moves, and loads for a while"
    MOVE_AMID = "the coordinator moves in the midst of the next rebalance"
    RESTART = "a broker is killed, and comes back"
    STALL = "a broker reads and answers nothing for a while"
    THROTTLE = "a broker throttles fetches for a while, by a quota"
    LATE_COMMITS = "connections break under commits for a while"
    REJECT_COMMITS = "a topic's commits are rejected for a while"
    MOVE_TRANSACTIONS = "the coordinator of transactions moves"
    FORGET_ID = "a transactional id expires"
    BLACK_HOLE = "nothing passes any more on the connections of a member; new ones work"
    SLOW_LINK = "what a member sends and receives takes up to 2 s more, each way"


CHURN = (
    (IncidentKind.JOIN, 5),
    (IncidentKind.STOP, 3),
    (IncidentKind.LEAVE, 3),
    (IncidentKind.COMMIT, 2),
    (IncidentKind.CANCEL, 2),
    (IncidentKind.EXPIRE, 2),
    (IncidentKind.AWAY, 1),
    (IncidentKind.PARTITIONS, 1),
    (IncidentKind.RETENTION, 1),
    (IncidentKind.SUBSCRIBE, 2),
)
FAULTS = (
    (IncidentKind.CRASH, 3),
    (IncidentKind.FREEZE, 4),
    (IncidentKind.JUMP, 1),
    (IncidentKind.CUT, 2),
    (IncidentKind.CUT_COORDINATOR, 2),
    (IncidentKind.DROP, 4),
    (IncidentKind.MOVE, 3),
    (IncidentKind.RESTART, 2),
    (IncidentKind.STALL, 2),
    (IncidentKind.LATE_COMMITS, 2),
)
_STYLES = (
    IncidentKind.STYLE,
    IncidentKind.STYLE,
    IncidentKind.PAUSE,
    IncidentKind.REREAD,
    IncidentKind.REREAD,
    IncidentKind.SEEK_TO,
    IncidentKind.UNSUBSCRIBE,
    IncidentKind.ASK,
)
_CALM_STYLES = (IncidentKind.STYLE, IncidentKind.PAUSE, IncidentKind.ASK)
_MOVES = (IncidentKind.MOVE, IncidentKind.MOVE_AMID, IncidentKind.MOVE_AMID, IncidentKind.RESTART)
_SILENCE = (IncidentKind.BLACK_HOLE, IncidentKind.BLACK_HOLE, IncidentKind.SLOW_LINK)
_LONGEST: Mapping[IncidentKind, float] = {
    IncidentKind.SLOW_LINK: 2.0,
    IncidentKind.CANCEL: 1.0,
    IncidentKind.AWAY: 2.0,
    IncidentKind.UNSUBSCRIBE: 2.0,
    IncidentKind.PAUSE: 3.0,
    IncidentKind.RECREATE: 3.0,
    IncidentKind.FREEZE: 9.0,
    IncidentKind.JUMP: 9.0,
    IncidentKind.CUT: 9.0,
    IncidentKind.CUT_COORDINATOR: 9.0,
    IncidentKind.MOVE: 2.0,
    IncidentKind.MOVE_AMID: 0.03,
    IncidentKind.RESTART: 4.0,
    IncidentKind.STALL: 5.0,
    IncidentKind.LATE_COMMITS: 3.0,
    IncidentKind.REJECT_COMMITS: 8.0,
}


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that happens at ``at``, in virtual seconds."""

    at: float
    kind: IncidentKind
    target: int = 0
    amount: float = 0.0


@dataclass(frozen=True, slots=True)
class MemberPlan:
    """A member of the beginning: its style and work, and when it joins."""

    at: float
    style: ConsumerStyle
    work_time: WorkTime
    protocol: Protocol | None = None


@dataclass(frozen=True, slots=True)
class Schedule:
    """All that happens in one run. The same schedule always runs in the same way."""

    seed: int
    mode: GroupMode
    disturbance: Disturbance
    brokers: int
    topics: tuple[int, ...]
    duration: float
    members: tuple[MemberPlan, ...]
    incidents: tuple[Incident, ...]
    assignors: tuple[str, ...]
    later_assignors: tuple[str, ...]
    reset: str = "earliest"
    static: bool = False
    loss: float = 0.0
    slow: float = 0.0
    produce_every: float = 0.3
    initial_delay: float = 0.0
    session_timeout: float = 6.0
    rebalance_timeout: float = 8.0
    revoke_timeout: float | None = None
    # What the partitions' lifespans store; None: they have none, and members any style.
    lifespans: Progress | None = None
    # How transactions are written; None: there are none, and members any style.
    transactions: TransactionPlan | None = None

    def without(self, incident: Incident) -> Schedule:
        """The same, but for one incident."""
        left = tuple(other for other in self.incidents if other is not incident)
        return dataclasses.replace(self, incidents=left)

    def as_json(self) -> str:
        """The schedule on a line, to be kept as a test: a seed means another one after each change
        of how schedules are drawn."""
        return msgspec.json.encode(self).decode()

    def describe(self) -> str:
        """The schedule for people."""
        lines = [
            f"seed {self.seed}: {self.mode.value}, {self.disturbance.value}, {self.brokers} "
            f"brokers, topics of {self.topics} partitions, {self.duration:.1f} s, "
            f"assignors {self.assignors}"
            + (f" then {self.later_assignors}" if self.mode is GroupMode.MIXED else "")
            + f", reset {self.reset}"
            + (", static members" if self.static else "")
            + (f", loss {self.loss:.3f}" if self.loss else ""),
        ]
        lines += [
            f"  {plan.at:7.3f}  member: {plan.style.value}, {plan.work_time}"
            for plan in self.members
        ]
        lines += [
            f"  {i.at:7.3f}  {i.kind.value} (target {i.target}, {i.amount:.3f})"
            for i in self.incidents
        ]
        return "\n".join(lines)


def draw(
    seed: int, mode: GroupMode | None = None, disturbance: Disturbance | None = None
) -> Schedule:
    """The schedule of a seed. Without ``mode`` or ``disturbance``, these are drawn too."""
    rng = Random(f"schedule {seed}")
    drawn_mode = rng.choice((GroupMode.COOPERATIVE, GroupMode.COOPERATIVE, *_CLASSIC))
    # Drawn by itself, so that every seed's schedule is otherwise what it was.
    if Random(f"protocol {seed}").random() < 0.25:
        drawn_mode = GroupMode.CONSUMER
    elif Random(f"conversion {seed}").random() < 0.25:
        drawn_mode = GroupMode.CONVERTED
    drawn_disturbance = rng.choice(_DRAWN)
    mode = mode or drawn_mode
    disturbance = disturbance or drawn_disturbance
    duration = rng.uniform(6.0, 16.0)
    assignors, later = _assignors(mode, rng)
    topics = (rng.randint(1, 6),) if rng.random() < 0.6 else (rng.randint(1, 4), rng.randint(1, 3))
    slow = 6.0 if rng.random() < 0.15 else rng.choice((0.3, 1.5))
    members = tuple(_plan(rng, index, slow) for index in range(rng.randint(2, 4)))
    drawn = Schedule(
        seed=seed,
        mode=mode,
        disturbance=disturbance,
        brokers=rng.choice((1, 2, 3)),
        topics=topics,
        duration=duration,
        members=members,
        incidents=_incidents(rng, mode, disturbance, duration, len(members)),
        assignors=assignors,
        later_assignors=later,
        reset="latest" if rng.random() < 0.2 else "earliest",
        static=rng.random() < 0.12,
        loss=rng.choice((0.01, 0.03)) if disturbance not in _UNDISTURBED else 0.0,
        slow=rng.choice((0.0, 0.1)),
        produce_every=rng.choice((0.15, 0.3, 0.6)),
        initial_delay=rng.choice((0.0, 0.0, 0.5)),
        session_timeout=rng.choice((6.0, 10.0)),
        rebalance_timeout=rng.choice((8.0, 12.0)),
        revoke_timeout=rng.choice((None, None, 4.0)),
    )
    if seed % 5 == 0:
        drawn = _with_unequal_drains(drawn)
    if mode is GroupMode.CONVERTED:
        drawn = _with_conversions(drawn)
    drawn = _with_silence(_with_rejections(_with_moves(_with_new_topics(drawn))))
    drawn = _with_styles(drawn)
    return _calm(drawn) if disturbance in INEXCUSABLE else drawn


def _calm(schedule: Schedule) -> Schedule:
    members = tuple(
        dataclasses.replace(
            member,
            work_time=dataclasses.replace(
                member.work_time, slow=min(member.work_time.slow, _LONGEST_CALM_WORK)
            ),
        )
        for member in schedule.members
    )
    incidents = tuple(
        dataclasses.replace(incident, kind=IncidentKind.STOP)
        if incident.kind is IncidentKind.LEAVE
        else incident
        for incident in schedule.incidents
    )
    return dataclasses.replace(schedule, members=members, incidents=incidents, revoke_timeout=None)


def _with_conversions(schedule: Schedule) -> Schedule:
    """Most members come back by another protocol, some of them twice."""
    rng = Random(f"conversions {schedule.seed}")
    first = rng.choice((*Protocol, Protocol.CLASSIC, Protocol.CLASSIC, None))
    members = tuple(
        dataclasses.replace(member, protocol=first or rng.choice(tuple(Protocol)))
        for member in schedule.members
    )
    drawn = [
        Incident(
            1.0 + rng.random() * (schedule.duration - 2), IncidentKind.SWITCH, rng.randrange(1000)
        )
        for _ in members
        for _ in range(rng.choice((0, 1, 1, 2)))
    ]
    return dataclasses.replace(
        schedule, members=members, incidents=_in_order((*schedule.incidents, *drawn))
    )


def _with_new_topics(schedule: Schedule) -> Schedule:
    """Now and then a topic is deleted and created again, at once or some time later."""
    rng = Random(f"topics {schedule.seed}")
    if rng.random() >= 0.15:
        return schedule
    drawn = [
        _incident(rng, IncidentKind.RECREATE, 1.0, schedule.duration - 2)
        for _ in range(rng.choice((1, 2)))
    ]
    return dataclasses.replace(schedule, incidents=_in_order((*schedule.incidents, *drawn)))


def _with_moves(schedule: Schedule) -> Schedule:
    """Now and then the coordinator moves before what it has agreed on is written."""
    rng = Random(f"moves {schedule.seed}")
    kinds = [IncidentKind.MOVE_AMID for _ in range(rng.choice((0, 0, 0, 0, 0, 1, 2)))]
    if schedule.disturbance is Disturbance.MOVES:
        kinds = rng.choices(_MOVES, k=rng.choice((1, 2, 3)))
    elif schedule.disturbance is not Disturbance.FAULTS:
        return schedule
    drawn = [_incident(rng, kind, 0.5, schedule.duration - 1.5) for kind in kinds]
    return dataclasses.replace(
        schedule,
        brokers=3 if schedule.disturbance is Disturbance.MOVES else schedule.brokers,
        incidents=_in_order((*schedule.incidents, *drawn)),
    )


def _with_styles(schedule: Schedule) -> Schedule:
    """Some loops take single records; and now and then loops change their style, seek and pause."""
    rng = Random(f"styles {schedule.seed}")
    members = tuple(
        dataclasses.replace(member, style=ConsumerStyle.RECORDS)
        if member.style is ConsumerStyle.LOOP and rng.random() < 0.5
        else member
        for member in schedule.members
    )
    kinds: tuple[IncidentKind, ...] = (
        _CALM_STYLES if schedule.disturbance in INEXCUSABLE else _STYLES
    )
    drawn = [
        _incident(rng, rng.choice(kinds), 0.5, schedule.duration - 1.5)
        for _ in range(rng.choice((0, 0, 0, 2, 4)))
    ]
    return dataclasses.replace(
        schedule, members=members, incidents=_in_order((*schedule.incidents, *drawn))
    )


def _with_rejections(schedule: Schedule) -> Schedule:
    """Now and then a topic may not be committed for a while."""
    rng = Random(f"refusals {schedule.seed}")
    if schedule.disturbance is not Disturbance.FAULTS or rng.random() >= 0.2:
        return schedule
    drawn = [
        _incident(rng, IncidentKind.REJECT_COMMITS, 0.5, schedule.duration - 1)
        for _ in range(rng.choice((1, 1, 2)))
    ]
    return dataclasses.replace(schedule, incidents=_in_order((*schedule.incidents, *drawn)))


def _with_silence(schedule: Schedule) -> Schedule:
    """Now and then connections die without a word, or are slow, or those of a slow link die."""
    rng = Random(f"silence {schedule.seed}")
    if schedule.disturbance is Disturbance.SILENCE:
        # Both at once cost more than a session.
        kinds = [rng.choice(_SILENCE)] * rng.choice((1, 2))
    elif schedule.disturbance is Disturbance.FAULTS and rng.random() < 0.25:
        kinds = [rng.choice(_SILENCE)]
    else:
        return schedule
    drawn = [_incident(rng, kind, 0.5, schedule.duration - 1.5) for kind in kinds]
    if schedule.disturbance is Disturbance.FAULTS and rng.random() < 0.5:
        (first,) = drawn
        other = (
            IncidentKind.SLOW_LINK
            if first.kind is IncidentKind.BLACK_HOLE
            else IncidentKind.BLACK_HOLE
        )
        second = _incident(rng, other, first.at, 3.0)
        drawn.append(dataclasses.replace(second, target=first.target))
    incidents = _in_order((*schedule.incidents, *drawn))
    if schedule.disturbance is Disturbance.SILENCE:
        # With shorter ones, round trips of 4 s leave too little of them.
        return dataclasses.replace(
            schedule, incidents=incidents, session_timeout=10.0, rebalance_timeout=25.0
        )
    return dataclasses.replace(schedule, incidents=incidents)


def _in_order(incidents: tuple[Incident, ...]) -> tuple[Incident, ...]:
    return tuple(sorted(incidents, key=lambda incident: incident.at))


def _with_unequal_drains(schedule: Schedule) -> Schedule:
    """Many partitions, some of which are at slow work when they have to go."""
    rng = Random(f"drains {schedule.seed}")
    slow, share = rng.choice((2.5, 4.0, 6.0)), rng.choice((0.1, 0.2))
    members = tuple(
        dataclasses.replace(member, work_time=WorkTime(0.03, slow, share))
        for member in schedule.members
    )
    topics = (rng.randint(8, 14),) if len(schedule.topics) == 1 else (rng.randint(5, 9), 3)
    return dataclasses.replace(schedule, topics=topics, members=members)


def _plan(rng: Random, index: int, slow: float) -> MemberPlan:
    at = rng.random() * 0.5 if index == 0 or rng.random() < 0.5 else rng.random() * 4
    return MemberPlan(at, draw_style(rng), WorkTime(0.03, slow, rng.choice((0.0, 0.02, 0.1))))


def draw_style(rng: Random) -> ConsumerStyle:
    """How a member uses its consumer."""
    return rng.choice(
        (
            ConsumerStyle.LOOP,
            ConsumerStyle.LOOP,
            ConsumerStyle.TASKS,
            ConsumerStyle.TASKS,
            ConsumerStyle.GROUP,
            ConsumerStyle.ACK,
            ConsumerStyle.MANUAL,
        )
    )


def _assignors(mode: GroupMode, rng: Random) -> tuple[tuple[str, ...], tuple[str, ...]]:
    both = ("range", "cooperative-sticky")
    match mode:
        case GroupMode.EAGER:
            only = rng.choice((("range",), ("roundrobin",)))
            return only, only
        case GroupMode.COOPERATIVE | GroupMode.CONSUMER:
            return ("cooperative-sticky",), ("cooperative-sticky",)
        case GroupMode.CONVERTED:
            names = rng.choice((("cooperative-sticky",), ("cooperative-sticky",), ("range",), both))
            return names, names
        case GroupMode.MIXED:
            return rng.choice(((("range",), both), (both, ("cooperative-sticky",))))


def _incidents(
    rng: Random, mode: GroupMode, disturbance: Disturbance, duration: float, members: int
) -> tuple[Incident, ...]:
    kinds = [_weighted(rng, CHURN) for _ in range(rng.randint(1, 6))]
    if disturbance is Disturbance.FAULTS:
        kinds += [_weighted(rng, FAULTS) for _ in range(rng.randint(1, 4))]
    # Sometimes all of it comes at once, so that rebalances overlap.
    crowd = 2.5 if rng.random() < 0.35 else duration - 1
    begin = 0.5 + rng.random() * (duration - 1 - crowd)
    drawn = [_incident(rng, kind, begin, crowd) for kind in kinds]
    if mode is GroupMode.MIXED:
        drawn += [
            Incident(2.0 + rng.random() * (duration - 3), IncidentKind.REPLACE, target)
            for target in range(members)
        ]
    return _in_order(tuple(drawn))


def _weighted(rng: Random, kinds: tuple[tuple[IncidentKind, int], ...]) -> IncidentKind:
    return rng.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]


def _incident(rng: Random, kind: IncidentKind, begin: float, seconds: float) -> Incident:
    at = begin + rng.random() * seconds
    amount = rng.random() ** 2 * _LONGEST.get(kind, 1.0)
    return Incident(at, kind, rng.randrange(1000), amount)
