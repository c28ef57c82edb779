"""What the runtime needs of a core, of whichever type its group is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.core.io.deadline import Deadline
    from asyncrevoke.client.core.io.effects import Effect, Event
    from asyncrevoke.client.model import BlockingRecord, GroupMetadata, Health


class DrivenCore(Protocol):
    """Implemented by :class:`asyncrevoke.client.core.core.Core` and
    :class:`asyncrevoke.client.core.share_core.ShareCore`. ``now`` is in seconds."""

    def start(self, now: float, /) -> None:
        """Send the first requests."""

    def handle(self, now: float, event: Event, /) -> list[Effect]:
        """Handle one event, and return all effects since the last call."""
        ...

    def take_effects(self, now: float, /) -> list[Effect]:
        """All effects since the last call, and those of what follows."""
        ...

    @property
    def has_effects(self) -> bool:
        """Whether anything follows from the calls since the last :meth:`take_effects`."""
        ...

    def stop(self, now: float, /) -> None:
        """Return no further records to the application."""

    def close(self, now: float, /, *, graceful: bool, deadline: Deadline) -> int:
        """Leave the group, and complete this call by ``deadline.end``. ``graceful`` waits for the
        application until ``deadline.work``; another call may end that wait."""
        ...

    def listener_called(self, now: float, instance_ids: Sequence[int], /) -> None:
        """The listener has returned for these partition instances, of which ``Notify`` told."""

    def blocking_records(self, now: float, /) -> Sequence[BlockingRecord]:
        """For each partition whose revocation is delayed, the record that it waits for."""
        ...

    def health(self, now: float, /) -> Health:
        """A snapshot of the consumer's state."""
        ...

    def group_metadata(self) -> GroupMetadata:
        """The identity of this member in the group."""
        ...
