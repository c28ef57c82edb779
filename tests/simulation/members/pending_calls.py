"""Calls of one application whose results it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from simulation.members.application_events import ApplicationEvents
    from simulation.members.member import SimulatedMember

    from asyncrevoke.client.core.io.effects import CompleteRequest
    from asyncrevoke.client.model import OffsetAndMetadata, TopicPartition

_EARLIEST, _LATEST = -2, -1


class PendingCalls:
    """Makes calls that complete later, and passes each result to its caller."""

    def __init__(self, member: SimulatedMember, events: ApplicationEvents) -> None:
        self._member = member
        self._events = events
        self._then: dict[int, Callable[[CompleteRequest], None]] = {}
        member.completed = self._completed

    def commit(
        self,
        then: Callable[[CompleteRequest], None],
        unfinished: Mapping[TopicPartition, int] | None,
    ) -> None:
        """Commit what counts: for as long as no coordinator responds. ``unfinished``: see
        :meth:`ApplicationEvents.committing`."""
        call_id = self._member.core.commit(self._member.now)
        self._events.committing(self._member, call_id, unfinished)
        self.expect(call_id, "commit", None, then)

    def commit_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        then: Callable[[CompleteRequest], None],
    ) -> None:
        """Commit these (manual mode)."""
        call_id = self._member.core.commit(self._member.now, offsets)
        self.expect(call_id, "commit", None, then)

    def unsubscribe(self, then: Callable[[CompleteRequest], None]) -> None:
        """Give everything back, and leave the group."""
        call_id = self._member.core.unsubscribe(self._member.now)
        self.expect(call_id, "unsubscribe", self._member.config.close_timeout, then)

    def close(self, then: Callable[[CompleteRequest], None]) -> None:
        """Close the consumer."""
        call_id = self._member.core.close(self._member.now)
        self.expect(call_id, "close", self._member.config.close_timeout, then)

    def await_confirmation(self, then: Callable[[CompleteRequest], None]) -> None:
        """Wait until the membership is confirmed, which may be never."""
        self._then[self._member.core.await_confirmation(self._member.now)] = then
        self._member.take_effects()

    def seek_to(
        self,
        partitions: Sequence[TopicPartition],
        then: Callable[[CompleteRequest], None],
        *,
        to_end: bool,
    ) -> None:
        """Seek to the ends of logs: for as long as no leader responds."""
        core, now = self._member.core, self._member.now
        call_id = core.seek_to(now, partitions, _LATEST if to_end else _EARLIEST)

        def done(complete: CompleteRequest) -> None:
            if complete.error is None:
                self._events.sought_to(self._member, partitions)
            then(complete)

        self.expect(call_id, "seek_to", None, done)

    def committed(self, partitions: Sequence[TopicPartition]) -> None:
        """Ask what the group has committed."""
        asked_at, member = self._member.now, self._member
        call_id = member.core.committed(asked_at, partitions)

        def received(complete: CompleteRequest) -> None:
            if complete.error is None:
                offsets = cast("Mapping[TopicPartition, OffsetAndMetadata | None]", complete.result)
                self._events.committed_offsets_received(member, member.now - asked_at, offsets)

        self.expect(call_id, "committed", member.config.request_timeout, received)

    def look_up(self, topics: tuple[str, ...]) -> None:
        """Ask for partitions, and where they begin."""
        core, now = self._member.core, self._member.now
        bound = self._member.config.request_timeout
        for topic in topics:
            call_id = core.partitions_for_topic(now, topic)
            self.expect(call_id, "partitions_for_topic", bound, _ignore)
        beginnings = dict.fromkeys(sorted(core.assignment.partitions()), _EARLIEST)
        call_id = core.offsets_for_times(now, beginnings)
        self.expect(call_id, "offsets_for_times", bound, _ignore)

    def expect(
        self, call_id: int, call: str, bound: float | None, then: Callable[[CompleteRequest], None]
    ) -> None:
        """Call ``then`` with the result of a call, which takes ``bound`` seconds at most."""
        self._then[call_id] = then
        self._events.requested(self._member, call_id, call, bound)
        self._member.take_effects()

    def _completed(self, complete: CompleteRequest) -> None:
        then = self._then.pop(complete.call_id, None)
        if then is not None:
            then(complete)


def _ignore(_complete: CompleteRequest) -> None:
    """A lookup may fail while brokers do not respond; the application does not use its result."""
