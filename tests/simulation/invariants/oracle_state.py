"""What the oracles share: violations, the state of each member, and what permits duplicates.

The oracles follow every event that enters a core, every effect that leaves it, every poll result,
every record that an application has worked on, and what the coordinator accepts. They keep a state
of their own and never read a core's counters. A duplicate or a lost partition is permitted only if
the simulation impaired that member or the coordinator; this is recorded, with its cause, when it
happens.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec

from asyncrevoke.client.core.io.effects import (
    BackgroundHeartbeat,
    Compute,
    DecodeBatch,
    Effect,
    Notify,
)
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from simulation.brokers.faulty_brokers import FaultyBrokers
    from simulation.cluster.network import Network
    from simulation.members.member import SimulatedMember

    from asyncrevoke.testing.fake_kafka.clock import Clock

_TRACE_LENGTH = 3000
_MANY_LOST = 4


class Digest(Protocol):
    """What ``hashlib.sha256()`` is, as far as it is used here."""

    def update(self, data: bytes, /) -> None:
        """Add these bytes."""
        ...

    def hexdigest(self) -> str:
        """The digest so far."""
        ...


class Violation(Exception):  # noqa: N818 - it is what an oracle reports
    """An invariant does not hold. ``invariant`` is its name in the design, like ``I11``."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant


@dataclass(slots=True, eq=False)
class Holding:
    """One assignment of one partition, from the notice that it is assigned to the one that ends it.

    ``next`` is the offset from which the next record is expected, None before the first one.
    ``covered`` are the offsets that the map beside its committed offset says are done.
    """

    since: float
    from_reset: bool
    next: int | None = None
    tracker_id: int | None = None
    revoking_since: float | None = None
    # The group cannot have revoked it before; the member learned of it, or of a rebalance, then.
    wanted_since: float | None = None
    dropped_since: float | None = None
    announced: bool = False
    may_jump_to: int | None = None
    # The topic that its member knows by that name, and whether that was deleted: another one of
    # its name may be there.
    topic_id: bytes = b""
    former: bool = False
    # The coordinator took it for free when it converted the group, and may have given it away.
    overlooked: bool = False
    covered: frozenset[int] = frozenset()
    paused: bool = False
    # Its member seeks to the end of the log, and does not know yet where that is.
    seeks_end: bool = False
    # Its member has sought back to the beginning, or to the end of a stored state: commits may go
    # back too.
    rewound: bool = False
    # A gap was dropped at a deadline, and its lifespan stores offsets alone.
    state_not_stored: bool = False


@dataclass(slots=True, eq=False)
class MemberView:
    """What the oracles know of one member."""

    member: SimulatedMember
    eager: bool
    held: dict[TopicPartition, Holding] = field(default_factory=dict[TopicPartition, Holding])
    # The newest assignment that the core was given.
    granted: frozenset[TopicPartition] = frozenset()
    # What it was given of topics that were deleted since, of which it may not have heard.
    granted_before: frozenset[TopicPartition] = frozenset()
    generation: int = -1
    # The members of its generation when it received its assignment: with it, a classic leader says
    # whether they read completion maps.
    members: frozenset[int] = frozenset()
    sent: dict[int, tuple[float, Request]] = field(default_factory=dict[int, tuple[float, Request]])
    commit: int | None = None
    # In seconds, and slowly forgotten.
    slowest_commit: float = 0.0
    join: int | None = None
    sync: int | None = None
    confirmed_at: float = 0.0
    # Send time of the last request that was accepted as a member's.
    heard_at: float | None = None
    # Without a response for so long it cannot know whether it is one.
    session: float = math.inf
    unset: set[TopicPartition] = field(default_factory=set[TopicPartition])
    unreported: Counter[TopicPartition] = field(default_factory=Counter[TopicPartition])
    works_on: Callable[[TopicPartition], bool] = lambda _partition: False
    # Whether it waits in a poll, and nothing of the partition is in its hands.
    polls: Callable[[TopicPartition], bool] = lambda _partition: False
    closing: bool = False
    closing_since: float = 0.0
    # When it unsubscribed last, and as which member.
    unsubscribes_since: float = math.inf
    left_as: str = ""
    # The committed offsets that it received last.
    fetched_offsets: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    # The ids of topics that it received last.
    topic_ids: dict[str, bytes] = field(default_factory=dict[str, bytes])
    # The topics of which it received another id than before, be it for a request of its application
    # only, and when it last received the metadata of each topic.
    recreated: set[str] = field(default_factory=set[str])
    described_at: dict[str, float] = field(default_factory=dict[str, float])
    partition_counts: dict[str, int] = field(default_factory=dict[str, int])
    # The same when it had just subscribed to the topic.
    first_counts: dict[str, int] = field(default_factory=dict[str, int])
    # When its subscription, or what it received of topics and partitions, has changed since it last
    # received an assignment.
    changes: list[float] = field(default_factory=list[float])
    # What may be sent for it while it is frozen.
    background_heartbeats: dict[int, Request] = field(default_factory=dict[int, Request])
    # Its consumer has ended with a fatal error, and sends nothing more for its membership.
    failed: bool = False
    # It was frozen as a settled member, whose heartbeat thread has to keep the membership.
    kept: bool = False

    def heard(self, sent_at: float) -> None:
        """A request that was sent then is accepted as a member's."""
        self.heard_at = sent_at if self.heard_at is None else max(self.heard_at, sent_at)

    def deleted(self, topic: str) -> None:
        """A topic is deleted: what the member has of it is nothing any more."""
        for partition, holding in self.held.items():
            holding.former = holding.former or partition.topic == topic
        gone = frozenset(tp for tp in self.granted if tp.topic == topic)
        self.granted, self.granted_before = self.granted - gone, self.granted_before | gone
        self.unset -= {tp for tp in self.unset if tp.topic == topic}


class OracleState:
    """What the oracles know of the run, as far as they share it.

    What the simulation did to a client permits other members to repeat the records that the client
    was given until then, or is given while it cannot know. ``evicted``: the clients that the
    coordinator has removed or forgotten, and that have not joined again.
    """

    def __init__(self, clock: Clock, brokers: FaultyBrokers, network: Network) -> None:
        self.clock = clock
        self.brokers = brokers
        self.network = network
        self.views: dict[int, MemberView] = {}
        # Who has which partition: the other side of what each view holds.
        self.holders: dict[TopicPartition, list[MemberView]] = {}
        self._permitted: dict[int, list[tuple[float, str]]] = {}
        self.evicted: set[int] = set()
        self._members: dict[int, frozenset[int]] = {}
        self._overdue: dict[tuple[int, TopicPartition], list[tuple[float, str]]] = {}
        self.counts: Counter[str] = Counter()
        self.duplicates: Counter[str] = Counter()
        # Until when brokers, or a client's way to them, were disturbed.
        self.disturbed_until = 0.0
        self.client_disturbed_until: dict[int, float] = {}
        # Whether requests may be lost at any time.
        self.lossy = False
        # Nothing happens that permits a loss or a duplicate.
        self.strict = False
        # Each partition has a lifespan, so that a state says what is done, and not the group.
        self.stores_states = False
        # Why any record may be handled again, if it may.
        self.permits_repeats: str | None = None
        # Whether the offset of a partition is committed, and its marker not written yet.
        self.is_decided: Callable[[TopicPartition], bool] = lambda _partition: False
        # When requests of each client were lost.
        self.lost_requests: dict[int, list[float]] = {}
        # For how long each client was frozen altogether.
        self.client_frozen: dict[int, float] = {}
        # How far the clock of each client has jumped ahead.
        self.client_jumped: dict[int, float] = {}
        # A digest of everything that left a core, if one is wanted (I15).
        self.digest: Digest | None = None
        self.trace: deque[tuple[float, int, object]] = deque(maxlen=_TRACE_LENGTH)

    def assigned(self, generation: int, clients: Iterable[int]) -> None:
        """A generation of these clients has its assignment. A coordinator that was loaded may give
        its number to one of others."""
        self._members[generation] = frozenset(clients)

    def members_of(self, generation: int) -> frozenset[int]:
        """The clients that are assigned with this generation, or have received this epoch."""
        if generation in self._members:
            return self._members[generation]
        views = self.views.items()
        return frozenset(client for client, view in views if view.generation == generation)

    def permit_duplicates(self, client: int, cause: str) -> None:
        """From now on other members may repeat the records that this client was given until now."""
        self._permitted.setdefault(client, []).append((self.clock.now, cause))

    def permit_overdue_duplicates(self, client: int, partition: TopicPartition) -> None:
        """The same, of one partition that it did not give back in time."""
        self.permit_partition_duplicates(
            client, partition, "a revoke was not finished before its deadline"
        )

    def permit_partition_duplicates(
        self, client: int, partition: TopicPartition, cause: str
    ) -> None:
        """The same, of one partition."""
        self._overdue.setdefault((client, partition), []).append((self.clock.now, cause))

    def permitted_duplicate(
        self, client: int, partition: TopicPartition, given_at: float
    ) -> str | None:
        """Why others may repeat what this client was given of a partition; None if not."""
        if self.strict:
            return None
        known = self._permitted.get(client, []) + self._overdue.get((client, partition), [])
        unaware = client in self.evicted
        return next((cause for at, cause in known if unaware or at >= given_at), None)

    def disturbed(self, client: int, within: float) -> bool:
        """Whether the client, or a broker, was disturbed during the last ``within`` seconds."""
        last = max(self.disturbed_until, self.client_disturbed_until.get(client, 0.0))
        return last > 0 and self.clock.now <= last + within

    def hampered(self, client: int, since: float) -> bool:
        """Whether so many requests of this client were lost that it may have had no time left."""
        return sum(at >= since for at in self.lost_requests.get(client, ())) >= _MANY_LOST

    def fold(self, client: int, effect: Effect) -> None:
        """Add an effect to the digest, in a form that depends neither on the order of sets nor on
        where in memory a function lies."""
        if self.digest is not None:
            form: object = effect
            if isinstance(effect, Notify):
                form = (effect.kind, sorted(effect.partitions))
            elif isinstance(effect, BackgroundHeartbeat):
                form = msgspec.structs.astuple(effect)[:-1]
            elif isinstance(effect, DecodeBatch):
                form = (effect.partition, effect.batch.base_offset, effect.from_offset)
            elif isinstance(effect, Compute):
                # Its result is in what is sent afterwards.
                form = effect.computation_id
            self.digest.update(f"{self.clock.now!r} {client} {form!r}\n".encode())

    def note(self, client: int, what: object) -> None:
        """Write into the trace that a failure prints."""
        self.trace.append((self.clock.now, client, what))


def name(partition: TopicPartition) -> str:
    """A partition, for people."""
    return f"{partition.topic}-{partition.partition}"
