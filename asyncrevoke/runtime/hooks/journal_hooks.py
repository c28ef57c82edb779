"""Who writes down what a consumer does, so that it can be proved afterwards what was done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from asyncrevoke.core.io.effects import Emit, Notify
    from asyncrevoke.errors import FatalError
    from asyncrevoke.model import GroupMetadata, PollResult, Record, TopicPartition
    from asyncrevoke.protocol.records import RecordDecoder
    from asyncrevoke.runtime.hooks.call_recorder import Decision
    from asyncrevoke.runtime.net.requests import Requests


class Group(Protocol):
    """What is known of the membership."""

    def group_metadata(self) -> GroupMetadata:
        """The identity that commits are stamped with now."""
        ...

    def position(self, partition: TopicPartition) -> int | None:
        """The offset of the next record that a poll returns."""
        ...


class Witness(Protocol):
    """Writes down one session of one consumer. All methods belong to the event loop's thread.

    Handlers cost it one ``began`` per call and one :meth:`turn` per turn of the loop; times are
    those of the end of that turn, or of whatever else is written down in it.
    """

    # To be called with each record whose handler is called.
    began: Callable[[Record], object]
    # Whether calls are to be made through :meth:`start`.
    strict: bool

    @property
    def behind(self) -> bool:
        """Whether more waits to be written than should: then :meth:`flush` first."""
        ...

    def requests(self, requests: Requests) -> Requests:
        """The same requests, but that no commit is sent before what it covers is on disk."""
        ...

    def decoder(self, decode: RecordDecoder) -> RecordDecoder:
        """What the core is to decode answers with, so that it is known what has come."""
        ...

    def opened(self, group: Group, on_error: Callable[[FatalError], None]) -> None:
        """The session begins; ``on_error`` is told once of what cannot be written."""
        ...

    def ordered(self, topic: str, handler: str, order_by: str | None) -> None:
        """A handler has this topic: ``"key"``, ``"partition"``, None, or another order."""
        ...

    # --- handlers --------------------------------------------------------------------------------

    def watch(self, done: list[Record]) -> None:
        """Somebody collects here the records whose handlers end well, until :meth:`turn`."""
        ...

    def again(self, records: Sequence[Record]) -> None:
        """Like ``began``, for records that may be under way already: those go on."""
        ...

    async def start(self, records: Sequence[Record]) -> None:
        """Handlers of these are about to be called; returns when that is on disk."""
        ...

    def turn(self, done: Sequence[Record]) -> None:
        """A turn of the loop ends; the handlers of these records have ended in it, and well."""
        ...

    def ended(self, records: Sequence[Record]) -> None:
        """Records of a batch are done."""
        ...

    def decided(self, record: Record, decision: Decision, error: BaseException) -> None:
        """A record's call has failed, and this becomes of it."""
        ...

    def cancelled(self, records: Sequence[Record], error: BaseException) -> None:
        """The call of these was cancelled."""
        ...

    # --- iteration -------------------------------------------------------------------------------

    def delivered(self, batch: PollResult) -> None:
        """A step returns this to the user's own loop."""
        ...

    def asked(self, *, counts: bool) -> None:
        """The next step starts. ``counts``: what was delivered and not named since is done."""
        ...

    def submitted(self, record: Record) -> None:
        """A task takes a delivered record over."""
        ...

    def completed(self, record: Record) -> None:
        """A delivered record is done."""
        ...

    # --- the group -------------------------------------------------------------------------------

    def notified(self, notify: Notify) -> None:
        """Partitions were assigned, released or lost."""
        ...

    def happened(self, event: Emit) -> None:
        """An event of the core."""
        ...

    # --- the disk --------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Return when all that was written so far is on disk; raise if it cannot be.

        If cancelled, only the waiting ends.
        """
        ...

    async def aclose(self) -> None:
        """The session has ended: write that, and close. Raises what cannot be written."""
        ...


class Journal(Protocol):
    """Where sessions are written down."""

    def begin(
        self, facts: Mapping[str, object], *, wall_clock: Callable[[], float] | None
    ) -> Witness:
        """A consumer is entered. With a ``wall_clock`` time is not the machine's, and threads
        would not keep to it: everything is written at once."""
        ...
