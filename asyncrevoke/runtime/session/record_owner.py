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

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """These are read elsewhere now: of records from before, none that has not begun is to."""
        ...


@runtime_checkable
class Queueing(Workers, Protocol):
    """Who has records that the user's code has not been called with yet, as handlers do."""

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin with no record of these until they are resumed."""
        ...

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on with them."""
        ...

    def leave(self, partitions: Iterable[TopicPartition]) -> None:
        """These are given up: begin with no further record, and hold those that run."""
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
