"""Oracle over the states of partitions, I21: what a lifespan has stored and what is handled again
are the same set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.invariants.oracle_state import MemberView, OracleState, Violation, name

from asyncrevoke.client.core.partition.completion_map import decode

if TYPE_CHECKING:
    from simulation.invariants.records.delivery_oracles import DeliveryOracles
    from simulation.members.lifespans import StoredState

    from asyncrevoke.client.model import Record, TopicPartition


class LifespanOracle:
    """Compares the records that a state contains with what is stored beside it, and with what the
    next owner, who seeks there, handles."""

    def __init__(self, state: OracleState, deliveries: DeliveryOracles) -> None:
        self._state = state
        self._deliveries = deliveries
        # Of which clients' partitions gaps were dropped at a deadline.
        self._dropped: set[tuple[int, TopicPartition]] = set()

    def loaded(self, view: MemberView, partition: TopicPartition, state: StoredState) -> None:
        """A lifespan seeks to the end of a state: delivery goes on there, and commits may go back
        there too, if what was handled since is lost."""
        self._dropped.discard((view.member.client, partition))
        holding = view.held.get(partition)
        log = self._state.brokers.topics.log(partition)
        committed = self._state.brokers.group.offsets.get(partition)
        if holding is None or holding.former or log is None:
            return
        holding.next, holding.tracker_id = state.offset, None
        if state.offset < log.start:
            holding.may_jump_to = log.start
        if committed is not None and state.offset < committed.offset:
            holding.rewound = True
        holding.covered = self._done(partition, state) - frozenset(range(state.offset))
        self._state.counts["states loaded"] += 1
        self._state.counts["skipped by states"] += len(holding.covered)

    def added(self, view: MemberView, record: Record, *, known: bool) -> None:
        """A record was handled."""
        if known:
            raise Violation(
                "I21",
                f"client {view.member.client} has handled {name(record.topic_partition)} offset "
                f"{record.offset}, which the state that it has loaded contains",
            )

    def gap_dropped(self, view: MemberView, partition: TopicPartition) -> None:
        """Records were dropped since the deadline of a revocation is near."""
        self._dropped.add((view.member.client, partition))

    def not_stored(self, view: MemberView, partition: TopicPartition) -> None:
        """An offset alone does not say what a state contains: the partition is lost."""
        client = view.member.client
        if (client, partition) not in self._dropped:
            raise Violation(
                "I21",
                f"client {client} cannot store the state of {name(partition)} with an offset, and "
                "no gap was dropped at a deadline",
            )
        self._state.counts["states not stored"] += 1
        holding = view.held.get(partition)
        if holding is not None:
            holding.state_not_stored = True

    def stored(
        self, view: MemberView, partition: TopicPartition, state: StoredState, *, sole: bool
    ) -> None:
        """A lifespan has stored its state, and where the next one begins."""
        client = view.member.client
        # Of two members that cannot know of each other, each stores what it has handled.
        if not sole and partition not in self._deliveries.shared:
            raise Violation(
                "I21",
                f"client {client} has stored the state of {name(partition)} over one that it has "
                "not loaded",
            )
        done = self._done(partition, state)
        contained = state.records & self._needed(partition, state)
        if skipped := sorted(done - contained):
            raise Violation(
                "I21",
                f"client {client} has stored a state of {name(partition)} that does not contain "
                f"{skipped}, which are done by {state.offset} and its map",
            )
        if again := sorted(contained - done):
            raise Violation(
                "I21",
                f"client {client} has stored a state of {name(partition)} that contains {again}, "
                f"which are to be handled again by {state.offset} and its map",
            )
        self._state.counts["states stored"] += 1
        self._state.counts["states stored with a map"] += bool(state.completion_map)

    def _needed(self, partition: TopicPartition, state: StoredState) -> frozenset[int]:
        """The records that are in the log, and that somebody has to handle."""
        log = self._state.brokers.topics.log(partition)
        if log is None:
            return frozenset()
        first = max(state.first, log.start, self._deliveries.of(partition).skipped)
        return frozenset(offset for offset in log.offsets if offset >= first)

    def _done(self, partition: TopicPartition, state: StoredState) -> frozenset[int]:
        """Those of them that are done by the stored progress."""
        found = decode(state.offset, state.completion_map) if state.completion_map else None
        runs = ((0, state.offset), *(() if found is None else found.runs))
        needed = self._needed(partition, state)
        return frozenset(
            offset for offset in needed if any(first <= offset < end for first, end in runs)
        )
