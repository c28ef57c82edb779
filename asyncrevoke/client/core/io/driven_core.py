"""What the runtime needs of a core, of whichever type its group is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.core.io.effects import Effect, Event
    from asyncrevoke.client.model import GroupMetadata


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

    def listener_called(self, now: float, instance_ids: Sequence[int], /) -> None:
        """The listener has returned for these partition instances, of which ``Notify`` told."""

    def group_metadata(self) -> GroupMetadata:
        """The identity of this member in the group."""
        ...
