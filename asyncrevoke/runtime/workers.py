"""Who works on the records of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.model import PollResult, TopicPartition


class Workers(Protocol):
    """Who runs tasks on records, and is told early that their partitions are gone."""

    def lose(self, partitions: Iterable[TopicPartition]) -> None:
        """Nothing of these is to run any more."""
        ...


@runtime_checkable
class Observer(Workers, Protocol):
    """Who also sees what each step returns, before the user does."""

    def observe(self, batch: PollResult) -> None:
        """A step is about to return this."""
        ...


@runtime_checkable
class Naming(Protocol):
    """Who knows what has a record."""

    def name_of(self, partition: TopicPartition, offset: int) -> str | None:
        """The handler or function that has it, None if it is not known."""
        ...
