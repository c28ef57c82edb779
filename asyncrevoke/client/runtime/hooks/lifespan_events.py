"""Passes what is due for the lifespans of partitions to whoever runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from asyncrevoke.client.core.io.effects import EnterLifespan, ExitLifespan, LoseLifespan
    from asyncrevoke.client.model import TopicPartition

    LifespanEvent: TypeAlias = EnterLifespan | ExitLifespan | LoseLifespan


class RunsLifespans(Protocol):
    """Enters and exits lifespans, in tasks of its own.

    Implemented by :class:`PartitionLifespans`.
    """

    def lifespan_due(self, event: LifespanEvent) -> None:
        """A lifespan is to be entered or exited, or is lost. Returns at once."""

    def state_of(self, partition: TopicPartition) -> object:
        """What the lifespan of a partition has yielded; None if it is not entered."""
        ...


class LifespanEvents:
    """Keeps events in order until the application's handlers run the lifespans."""

    def __init__(self) -> None:
        self._kept: list[LifespanEvent] = []
        self._runner: RunsLifespans | None = None

    def lifespan_due(self, event: LifespanEvent) -> None:
        """A lifespan is to be entered or exited, or is lost."""
        if self._runner is None:
            self._kept.append(event)
        else:
            self._runner.lifespan_due(event)

    def run_by(self, runner: RunsLifespans) -> None:
        """From now on ``runner`` gets the events, those that were kept first."""
        self._runner = runner
        kept, self._kept = self._kept, []
        for event in kept:
            runner.lifespan_due(event)

    def state_of(self, partition: TopicPartition) -> object:
        """What the lifespan of a partition has yielded; None if it is not entered."""
        return None if self._runner is None else self._runner.state_of(partition)
