"""The interface to the journal, which records what a consumer does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from asyncrevoke.client.core.io.effects import Emit, Notify
    from asyncrevoke.client.errors import FatalError
    from asyncrevoke.client.model import GroupMetadata, PollResult, Record, TopicPartition
    from asyncrevoke.client.protocol.records import RecordDecoder
    from asyncrevoke.client.runtime.hooks.call_recorder import FailureDecision
    from asyncrevoke.client.runtime.net.requests import Requests


class CoreView(Protocol):
    """The core, as far as the journal asks it. Implemented by :class:`Core`."""

    def group_metadata(self) -> GroupMetadata:
        """The identity of commits now."""
        ...

    def position(self, partition: TopicPartition) -> int | None:
        """The offset of the next record that a poll returns."""
        ...


class FailsConsumer(Protocol):
    """Ends the consumer whose journal cannot be written. Implemented by :class:`Driver`."""

    def fail(self, cause: FatalError) -> None:
        """End the consumer: the next step raises ``cause``. Called on the event loop."""


class HandlerRecorder(Protocol):
    """Records the calls of handlers. Call its methods in the event loop's thread. Implemented by
    :class:`Recorder` of the journal.

    A call of a handler costs one ``handler_started``, and an iteration of the event loop one
    :meth:`loop_turn_began` and one :meth:`loop_turn_ended`. Times are those of the end of the
    iteration, or of the first other entry in it; calls of one that took long began with it.
    """

    # Call it with each record whose handler is called.
    handler_started: Callable[[Record], object]
    # Whether :meth:`record_start` must be awaited before each call of a handler.
    strict: bool

    def handler_registered(self, topic: str, handler: str, order_by: str | None) -> None:
        """A handler was registered for this topic, with this ``order_by``."""

    def watch_completed(self, done: list[Record]) -> None:
        """``done`` collects completed records until :meth:`loop_turn_ended`."""

    def handlers_started(self, records: Sequence[Record]) -> None:
        """Handlers of these were called; those of some records may have started before."""

    async def record_start(self, records: Sequence[Record]) -> None:
        """Record that handlers of these will be called; returns when that is on disk."""

    def loop_turn_began(self) -> None:
        """Handlers may start in this iteration of the event loop."""

    def loop_turn_ended(self, done: Sequence[Record]) -> None:
        """An iteration of the event loop ends, in which handlers have completed these records."""

    def batch_completed(self, records: Sequence[Record]) -> None:
        """Records of a batch are completed."""

    def failure_decided(
        self, record: Record, decision: FailureDecision, error: BaseException
    ) -> None:
        """The handler of a record has failed, and this happens to the record."""

    def handler_cancelled(self, records: Sequence[Record], error: BaseException) -> None:
        """The handler of these was cancelled."""


class LoopRecorder(Protocol):
    """Records what the user's loop is given, and what it completes.

    Implemented by :class:`Recorder`.
    """

    @property
    def behind(self) -> bool:
        """Whether too much is not written yet: then await :meth:`flush` first."""
        ...

    async def flush(self) -> None:
        """Return when all entries are on disk. Raises if they cannot be written.

        If cancelled, only the waiting ends.
        """

    def step_begun(self, *, counts: bool) -> None:
        """The next step starts. ``counts``: delivered records that no task has are completed."""

    def batch_returned(self, batch: PollResult) -> None:
        """A step returns this to the user's loop."""

    def record_submitted(self, record: Record) -> None:
        """A task takes a delivered record."""

    def record_completed(self, record: Record) -> None:
        """A delivered record is completed."""


class SessionRecorder(HandlerRecorder, LoopRecorder, Protocol):
    """Records one session of one consumer. Call its methods in the event loop's thread. Implemented
    by :class:`Recorder` of the journal."""

    def requests(self, requests: Requests) -> Requests:
        """Requests that send a commit only after the entries of its records are on disk."""
        ...

    def decoder(self, decode: RecordDecoder) -> RecordDecoder:
        """A decoder for the core that records which batches were fetched."""
        ...

    def session_opened(self, group: CoreView, consumer: FailsConsumer) -> None:
        """The session begins. ``consumer`` fails, once, if the journal cannot be written."""

    def partitions_changed(self, notify: Notify) -> None:
        """Partitions were assigned, revoked or lost."""

    def core_reported(self, event: Emit) -> None:
        """The core has reported an event."""

    async def aclose(self) -> None:
        """Record the end of the session, and close. Raises if it cannot be written."""


class SessionJournal(Protocol):
    """Records sessions. Implemented by :class:`Journal`."""

    def begin(
        self, facts: Mapping[str, object], *, wall_clock: Callable[[], float] | None
    ) -> SessionRecorder:
        """A consumer is entered. A ``wall_clock`` other than the machine's is for tests: then no
        threads are used, and entries are written at once."""
        ...


def check_journal(given: object) -> SessionJournal | None:
    """The option ``journal`` of a consumer. Raises ConfigError."""
    if given is not None and not hasattr(given, "begin"):
        raise ConfigError(
            f"journal={shown_option(given)}: use journal=Journal(path), from asyncrevoke.journal"
        )
    return cast("SessionJournal | None", given)
