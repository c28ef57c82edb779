"""The argument of a partition lifespan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NoReturn, cast

from typing_extensions import TypeVar

from asyncrevoke.client.core.partition.completion_map import decode
from asyncrevoke.client.errors import IllegalStateError, PartitionLostError

StateT = TypeVar("StateT", default=object)

if TYPE_CHECKING:
    from asyncrevoke.client.core.io.effects import EnterLifespan
    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.client.runtime.session.session import Session


class AssignedPartition(Generic[StateT]):
    """One assignment of a partition, passed to ``@consumer.partition_lifespan``.

    ``state`` is the object that ``Consumer(resources=...)`` has opened; its type is the
    ``Database`` of ``AssignedPartition[Database]``.
    """

    def __init__(self, due: EnterLifespan, state: object, session: Session) -> None:
        self._partition = due.partition
        self._position = due.position
        self._session = session
        self._entering = True
        self._exiting = False
        self._ended = False
        # Up to where the completion map that was passed to seek() goes.
        self._map_end = 0
        self._is_incomplete = False
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

    def seek(self, offset: int, completion_map: str = "") -> None:
        """Begin at ``offset`` instead of the committed offset, for offsets stored with the state.

        Records after ``offset`` that ``completion_map`` lists are skipped: pass both values of
        :attr:`progress`. Records that a previous owner completed otherwise are not skipped.

        Call it before ``yield``. Raises IllegalStateError after it, PartitionLostError if the
        partition is lost, and ValueError for a negative offset, or for a map that is none of
        ``offset``.
        """
        if offset < 0:
            raise ValueError(f"offset {offset} is negative: the first one of a partition is 0")
        completed = decode(offset, completion_map) if completion_map else None
        if completed is None and completion_map:
            raise ValueError(
                f"the completion map is none of offset {offset}: store and pass both values of "
                "partition.progress together"
            )
        self._check_owned()
        if not self._entering:
            raise IllegalStateError(
                "partition.seek() sets where a partition begins: call it before `yield`, and "
                "consumer.seek() after that"
            )
        if not self._exiting:
            self._session.seek(self._partition, offset, completed)
        self._position = offset
        self._map_end = 0 if completed is None else completed.end

    @property
    def offset_to_commit(self) -> int:
        """The offset before which all records are done, for offsets stored with the state.

        After ``yield`` no handler runs, and the final commit has this offset. If records after it
        are done by then, because one before them has failed or a gap was dropped, this offset does
        not say which records the state contains: it raises PartitionLostError, and unless that is
        caught the partition is lost, without a final commit. :attr:`progress` says it.

        Raises PartitionLostError if the partition is lost.
        """
        self._check_owned()
        offset = self._offset()
        if self._exiting and self._has_completed_beyond(offset):
            self._refuse_offset(f"offset {offset}")
        return offset

    @property
    def progress(self) -> tuple[int, str]:
        """Which records are done, to be stored with the state: :attr:`offset_to_commit`, and a
        completion map of the records done after it, which is empty if there are none.

        The next owner passes both to :meth:`seek`. Before ``yield`` has returned, a record whose
        handler has just ended may be missing. Raises PartitionLostError if the partition is lost,
        or if so many records are done that no map has room for them (65,536 characters).
        """
        self._check_owned()
        offset = self._offset()
        completion_map = self._session.core.completion_map(self._partition)
        if completion_map is None:
            self._refuse_offset("a completion map")
        return offset, completion_map

    @property
    def is_incomplete(self) -> bool:
        """Whether the lifespan was told that it cannot store what is done."""
        return self._is_incomplete

    def _offset(self) -> int:
        offset = self._session.core.offset_to_commit(self._partition)
        return self._position if offset is None else offset

    def _has_completed_beyond(self, offset: int) -> bool:
        return self._map_end > offset or self._session.core.has_completed_beyond(self._partition)

    def _refuse_offset(self, what: str) -> NoReturn:
        self._is_incomplete = True
        raise PartitionLostError(
            [self._partition],
            f"{what} does not say which records of {self._partition} are done, as later ones are: "
            "store both values of partition.progress, and pass them to seek()",
        )

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
