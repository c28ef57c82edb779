"""Callbacks for everything that an application of the simulation does or receives."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from simulation.members.lifespans import StoredState
    from simulation.members.member import SimulatedMember

    from asyncrevoke.client.model import OffsetAndMetadata, PollResult, Record, TopicPartition


class ApplicationEvents:
    """What follows an application, such as the oracles; each method is an event."""

    def asked(self, member: SimulatedMember) -> None:
        """A step begins: the last batch counts."""

    def polled_without_result(self, member: SimulatedMember) -> None:
        """A poll has returned nothing: the step continues."""

    def returned(self, member: SimulatedMember, result: PollResult) -> None:
        """The step has returned this."""

    def began(self, member: SimulatedMember) -> None:
        """A record of an earlier poll begins, or is delivered, only now."""

    def subscribed(self, member: SimulatedMember) -> None:
        """It has subscribed to other topics."""

    def delayed(
        self, member: SimulatedMember, wanted: frozenset[TopicPartition], ours: bool
    ) -> None:
        """``delay_revoke(wanted)`` has returned ``ours``."""

    def dropped(
        self, member: SimulatedMember, partition: TopicPartition, offset: int, gaps: frozenset[int]
    ) -> None:
        """Records after ``offset``, and ``gaps`` before it, were dropped without being started."""

    def requested(
        self, member: SimulatedMember, call_id: int, call: str, bound: float | None
    ) -> None:
        """It waits for the result of a call, for ``bound`` seconds at most."""

    def committing(
        self, member: SimulatedMember, call_id: int, unfinished: Mapping[TopicPartition, int] | None
    ) -> None:
        """The application asks to commit what it has done; ``unfinished`` is the first record of a
        partition that it has not done. None: it cannot know what counts."""

    def changed_style(self, member: SimulatedMember, tracked: bool) -> None:
        """From the next step on it takes records in another way; ``tracked``: in a task group."""

    def unsubscribing(self, member: SimulatedMember) -> None:
        """It unsubscribes."""

    def unsubscribed(self, member: SimulatedMember) -> None:
        """It has unsubscribed, and left the group."""

    def sought(self, member: SimulatedMember, partition: TopicPartition, offset: int) -> None:
        """It has sought back to the first record that it was given and had not worked on."""

    def seeking_to(self, member: SimulatedMember, partition: TopicPartition, to_end: bool) -> None:
        """It is about to seek to an end of a partition, which is looked up."""

    def sought_to(self, member: SimulatedMember, partitions: Sequence[TopicPartition]) -> None:
        """The ends of these that it wanted were found."""

    def committed_offsets_received(
        self,
        member: SimulatedMember,
        seconds: float,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | None],
    ) -> None:
        """It requested committed offsets so many seconds ago and received these."""

    def paused(self, member: SimulatedMember, partition: TopicPartition, on: bool) -> None:
        """It has paused a partition, or resumed it."""

    def state_loaded(
        self, member: SimulatedMember, partition: TopicPartition, state: StoredState
    ) -> None:
        """A lifespan has loaded the state of its partition, and is about to seek to its end."""

    def added_to_state(self, member: SimulatedMember, record: Record, *, known: bool) -> None:
        """A record was handled; ``known``: the state of its partition had contained it before."""

    def state_stored(
        self, member: SimulatedMember, partition: TopicPartition, state: StoredState, *, sole: bool
    ) -> None:
        """A lifespan has stored its state; ``sole``: in place of the one that it had loaded."""

    def gap_dropped(self, member: SimulatedMember, partition: TopicPartition) -> None:
        """The deadline of a revocation is near: records of a gap are dropped unstarted."""

    def state_not_stored(self, member: SimulatedMember, partition: TopicPartition) -> None:
        """A lifespan stores an offset alone, which does not say what its state contains."""

    def done(self, member: SimulatedMember, record: Record) -> None:
        """The application has worked on a record, whatever the library then makes of it."""

    def failed(self, member: SimulatedMember, error: Exception) -> None:
        """A step, or a request of the application, has raised this."""

    def closing(self, member: SimulatedMember) -> None:
        """The application is about to close its consumer."""

    def left_uncounted(self, member: SimulatedMember) -> None:
        """The application left the loop with work that does not count: it will come again."""

    def acknowledged_too_late(self, member: SimulatedMember, partition: TopicPartition) -> None:
        """It has stopped, and the partition was released before it acknowledged a record of it."""

    def closed(self, member: SimulatedMember) -> None:
        """The consumer has closed."""
