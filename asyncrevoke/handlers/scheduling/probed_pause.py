"""A partition that is paused until a failed item succeeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncrevoke.handlers.policy.batch import Item
    from asyncrevoke.handlers.scheduling.partition_lanes import Entry


class ProbedPause:
    """``probe`` is tried again after a while; ``waiting`` have failed, too, and wait for that.

    ``probing``: the next attempt is due, and its end is not known yet. ``by_user``: the user has
    paused the partition as well, so that only the user resumes it.
    """

    __slots__ = ("by_user", "probe", "probing", "waiting")

    def __init__(self, probe: Entry[Item], *, by_user: bool) -> None:
        self.probe = probe
        self.waiting: list[Entry[Item]] = []
        self.probing = False
        self.by_user = by_user

    def is_probe(self, item: Item) -> bool:
        """Whether the pause ends when this item succeeds."""
        return self.probe[1] is item

    def attempt_due(self) -> None:
        """The next attempt may begin."""
        self.probing = True

    def attempt_failed(self) -> None:
        """It has failed."""
        self.probing = False

    def pause_by_user(self) -> None:
        """The user has paused the partition."""
        self.by_user = True
