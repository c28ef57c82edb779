"""The partition lifespans of one application, and where all applications store what they keep.

A state contains the records that were handled with it. A lifespan loads the state that was stored
last, seeks to where that ends, and stores it when it exits; a lost one stores nothing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from simulation.members.consumer_style import Progress

from asyncrevoke.client.core.io.effects import EnterLifespan, LoseLifespan
from asyncrevoke.client.errors import PartitionLostError
from asyncrevoke.handlers.lifespans.assigned_partition import AssignedPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulation.brokers.faulty_brokers import SimulatedGroup
    from simulation.members.application_events import ApplicationEvents
    from simulation.members.member import SimulatedMember

    from asyncrevoke.client.core.core import Core
    from asyncrevoke.client.core.io.effects import ExitLifespan
    from asyncrevoke.client.core.partition.completion_map import CompletionMap
    from asyncrevoke.client.model import Record, TopicPartition
    from asyncrevoke.client.runtime.session.session import Session

# Seconds that loading and storing a state take at the most, and after which what the group has
# rejected is tried again.
_LONGEST = 0.3
_AGAIN = 0.05


class StoredState(NamedTuple):
    """``records`` are the offsets that it contains, of those from ``first`` on; ``offset`` and
    ``completion_map`` say the same."""

    first: int
    records: frozenset[int]
    offset: int
    completion_map: str


class StateStore:
    """The state of each partition, written in transactions of the group's members (KIP-447): only
    a member whose commit the coordinator would accept can write."""

    def __init__(self, group: SimulatedGroup) -> None:
        self._group = group
        self._states: dict[TopicPartition, StoredState] = {}

    def load(self, partition: TopicPartition) -> StoredState | None:
        """The state that was stored last."""
        return self._states.get(partition)

    def store(self, member: SimulatedMember, partition: TopicPartition, state: StoredState) -> bool:
        """Store a state; False if the member is fenced, or does not know its generation yet."""
        accepted = self._group.accepts(member.client, member.core.group_metadata())
        if accepted:
            self._states[partition] = state
        return accepted


class _Lifespan:
    """``loaded`` is None until the state is loaded, ``exiting`` once the lifespan has to exit."""

    def __init__(self, instance_id: int, partition: AssignedPartition[object]) -> None:
        self.instance_id = instance_id
        self.partition = partition
        self.loaded: StoredState | None = None
        self.exiting = False
        self.records = set[int]()


class SimulatedLifespans:
    """Enters, exits and loses the lifespans of one member, as ``PartitionLifespans`` does."""

    def __init__(
        self,
        member: SimulatedMember,
        events: ApplicationEvents,
        store: StateStore,
        progress: Progress,
    ) -> None:
        self._member = member
        self._events = events
        self._store = store
        self._progress = progress
        self._lifespans: dict[TopicPartition, _Lifespan] = {}
        member.core.assignment.lifespans.enter_lifespans()
        member.lifespan_due = self._due

    @property
    def core(self) -> Core:
        """The core that lifespans ask for what is to be committed."""
        return self._member.core

    def has(self, partition: TopicPartition) -> bool:
        """Whether the lifespan of a partition is being entered or exited."""
        lifespan = self._lifespans.get(partition)
        return lifespan is not None and (lifespan.exiting or lifespan.loaded is None)

    def handled(self, record: Record) -> None:
        """A handler has ended, and the state of its partition contains this record from now on."""
        lifespan = self._lifespans.get(record.topic_partition)
        if lifespan is not None and self._member.core.owns(record):
            known = record.offset in lifespan.records
            lifespan.records.add(record.offset)
            self._events.added_to_state(self._member, record, known=known)

    # --- what the core asks for ------------------------------------------------------------------

    def _due(self, event: EnterLifespan | ExitLifespan | LoseLifespan) -> None:
        if isinstance(event, EnterLifespan):
            partition: AssignedPartition[object] = AssignedPartition(
                event, None, cast("Session", self)
            )
            entering = _Lifespan(event.instance_id, partition)
            self._lifespans[event.partition] = entering
            self._later(entering, self._load)
            return
        known = self._lifespans.values()
        lifespan = next(
            (candidate for candidate in known if candidate.instance_id == event.instance_id), None
        )
        if lifespan is None:
            return
        if isinstance(event, LoseLifespan):
            lifespan.partition.end()
            del self._lifespans[lifespan.partition.topic_partition]
            return
        lifespan.exiting = True
        lifespan.partition.exit_requested()
        self._later(lifespan, self._exited if lifespan.loaded is None else self._exit, 0.0)

    def _later(
        self, lifespan: _Lifespan, act: Callable[[_Lifespan], None], seconds: float | None = None
    ) -> None:
        """Let a lifespan go on, unless it is lost by then."""
        if seconds is None:
            seconds = self._member.rng.random() * _LONGEST

        def go_on() -> None:
            if self._lifespans.get(lifespan.partition.topic_partition) is lifespan:
                act(lifespan)
                self._member.take_effects()

        self._member.later(seconds, go_on)

    # --- a lifespan ------------------------------------------------------------------------------

    def _load(self, lifespan: _Lifespan) -> None:
        if lifespan.exiting:
            return
        member, partition = self._member, lifespan.partition.topic_partition
        stored = self._store.load(partition)
        if stored is None:
            position = lifespan.partition.position
            stored = StoredState(position, frozenset(), position, "")
            if not self._store.store(member, partition, stored):
                self._later(lifespan, self._load, _AGAIN)
                return
        else:
            self._events.state_loaded(member, partition, stored)
            lifespan.partition.seek(stored.offset, stored.completion_map)
        lifespan.loaded = stored
        lifespan.records |= stored.records
        lifespan.partition.entered()
        member.core.lifespan_entered(member.now, lifespan.instance_id)

    def _exit(self, lifespan: _Lifespan) -> None:
        assert lifespan.loaded is not None
        try:
            if self._progress is Progress.MAP:
                offset, completion_map = lifespan.partition.progress
            else:
                offset, completion_map = lifespan.partition.offset_to_commit, ""
        except PartitionLostError as error:
            member, partition = self._member, lifespan.partition.topic_partition
            self._events.state_not_stored(member, partition)
            member.core.lifespan_failed(member.now, lifespan.instance_id, str(error))
            return
        records = frozenset(lifespan.records)
        state = StoredState(lifespan.loaded.first, records, offset, completion_map)
        self._later(lifespan, partial(self._store_state, state))

    def _store_state(self, state: StoredState, lifespan: _Lifespan) -> None:
        partition = lifespan.partition.topic_partition
        before = self._store.load(partition)
        if not self._store.store(self._member, partition, state):
            self._later(lifespan, partial(self._store_state, state), _AGAIN)
            return
        sole = before is lifespan.loaded
        self._events.state_stored(self._member, partition, state, sole=sole)
        self._exited(lifespan)

    def _exited(self, lifespan: _Lifespan) -> None:
        lifespan.partition.end()
        del self._lifespans[lifespan.partition.topic_partition]
        self._member.core.lifespan_exited(self._member.now, lifespan.instance_id)

    # --- Session ---------------------------------------------------------------------------------

    def seek(
        self, partition: TopicPartition, offset: int, completed: CompletionMap | None = None
    ) -> None:
        """Fetch from ``offset`` next, without records that are ``completed``."""
        self._member.core.seek(self._member.now, partition, offset, completed)
