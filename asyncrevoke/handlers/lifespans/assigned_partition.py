"""The argument of a partition lifespan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, cast

from typing_extensions import TypeVar

from asyncrevoke.errors import IllegalStateError, PartitionLostError

StateT = TypeVar("StateT", default=object)

if TYPE_CHECKING:
    from asyncrevoke.core.io.effects import EnterLifespan
    from asyncrevoke.model import TopicPartition


class PartitionPositions(Protocol):
    """The positions of a consumer's partitions. Implemented by :class:`Session`."""

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Fetch ``partition`` from ``offset`` next."""

    def offset_to_commit(self, partition: TopicPartition) -> int | None:
        """The offset before which all records are done."""
        ...


class AssignedPartition(Generic[StateT]):
    """One assignment of a partition, passed to ``@consumer.partition_lifespan``.

    ``state`` is the object that ``Consumer(resources=...)`` has opened; its type is the
    ``Database`` of ``AssignedPartition[Database]``.
    """

    def __init__(self, due: EnterLifespan, state: object, positions: PartitionPositions) -> None:
        self._partition = due.partition
        self._position = due.position
        self._positions = positions
        self._entering = True
        self._exiting = False
        self._ended = False
        self.state = cast("StateT", state)

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._partition.topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self._partition.partition

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and number."""
        return self._partition

    @property
    def position(self) -> int:
        """The offset of the first record to handle: committed, or set by :meth:`seek`."""
        return self._position

    def seek(self, offset: int) -> None:
        """Begin at ``offset`` instead of the committed offset, for offsets stored with the state.

        Records that a previous owner completed after ``offset`` are then not skipped.

        Call it before ``yield``. Raises IllegalStateError after it, PartitionLostError if the
        partition is lost, and ValueError for a negative offset.
        """
        if offset < 0:
            raise ValueError(f"offset {offset} is negative: the first one of a partition is 0")
        self._check_owned()
        if not self._entering:
            raise IllegalStateError(
                "partition.seek() sets where a partition begins: call it before `yield`, and "
                "consumer.seek() after that"
            )
        if not self._exiting:
            self._positions.seek(self._partition, offset)
        self._position = offset

    @property
    def offset_to_commit(self) -> int:
        """The offset before which all records are done, for offsets stored with the state.

        After ``yield`` no handler runs, and the final commit has this offset. Raises
        PartitionLostError if the partition is lost.
        """
        self._check_owned()
        offset = self._positions.offset_to_commit(self._partition)
        return self._position if offset is None else offset

    def entered(self) -> None:
        """The lifespan has yielded: :meth:`seek` is rejected from now on."""
        self._entering = False

    def exit_requested(self) -> None:
        """The lifespan exits: :meth:`seek` no longer moves the consumer's position."""
        self._exiting = True

    def end(self) -> None:
        """The partition is released or lost."""
        self._ended = True

    def _check_owned(self) -> None:
        if self._ended:
            raise PartitionLostError([self._partition])

    def __repr__(self) -> str:
        return f"<AssignedPartition {self._partition}>"
