"""The interfaces to what records a consumer's work: the journal, and recorders of calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias, cast

from asyncrevoke.client.errors import ConfigError, FatalError
from asyncrevoke.client.model import Record, TopicPartition
from asyncrevoke.client.printable import shown_option

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from asyncrevoke.client.core.io.driven_core import DrivenCore
    from asyncrevoke.client.core.io.effects import Emit, Notify
    from asyncrevoke.client.core.share_core import ShareCore
    from asyncrevoke.client.model import GroupMetadata, PollResult
    from asyncrevoke.client.protocol.records import RecordDecoder
    from asyncrevoke.client.runtime.net.requests import Requests

# What happens to a record whose handler has failed.
FailureDecision: TypeAlias = Literal[
    "retried",
    "sent_to_retry_topic",
    "dead_lettered",
    "skipped",
    "released",
    "rejected",
    "paused",
    "stopped",
    "abandoned",
]


class CallRecorder(Protocol):
    """Makes the calls of handlers and records them.

    Implemented by :class:`Calls` of asyncrevoke.testing, in a replay by :class:`ResultRows`.
    """

    def call(
        self,
        name: str,
        function: object,
        records: Sequence[Record],
        attempt: int,
        call: Callable[[], Awaitable[object]],
        /,
    ) -> Awaitable[object]:
        """Make this call of a handler, and record it."""
        ...

    def first_call(
        self, call: Callable[[Record], Awaitable[object]], /
    ) -> Callable[[Record], Awaitable[object]] | None:
        """A faster way than :meth:`call` to make and record the first call for a record, where
        there is no middleware; None if there is none. ``call`` makes the call."""
        ...

    def failure_decided(
        self, record: Record, decision: FailureDecision, error: BaseException, /
    ) -> None:
        """What happens to a record whose handler has failed, or whose value does not decode."""


class WrittenResult(NamedTuple):
    """A result of ``record``, which is in the partition ``to`` at ``offset`` if its transaction is
    committed. ``offset`` is -1 if the broker has not said it."""

    record: Record
    to: TopicPartition
    offset: int


class SessionRecorder(Protocol):
    """Records one session of one consumer. Call its methods in the event loop's thread. Implemented
    by :class:`Recorder` of the journal.

    A call of a handler costs one ``handler_started``, and an iteration of the event loop one
    :meth:`loop_turn_began` and one :meth:`loop_turn_ended`. Times are those of the end of the
    iteration, or of the first other entry in it; calls of one that took long began with it.
    """

    # Call it with each record whose handler is called.
    handler_started: Callable[[Record], object]
    # Whether :meth:`record_start` must be awaited before each call of a handler.
    strict: bool

    def requests(self, requests: Requests) -> Requests:
        """Requests that send a commit only after the entries of its records are on disk."""
        ...

    def share_requests(self, requests: Requests, core: ShareCore) -> Requests:
        """Requests of a share group, which send an acknowledgement only after the entries of its
        records are on disk, and record what brokers deliver and acknowledge."""
        ...

    def decoder(self, decode: RecordDecoder) -> RecordDecoder:
        """A decoder for the core that records which batches were fetched."""
        ...

    def session_opened(
        self,
        core: DrivenCore,
        fail: Callable[[FatalError], object],
        position: Callable[[TopicPartition], int | None] | None = None,
    ) -> None:
        """The session begins. ``fail`` is called on the event loop, once, if the journal cannot be
        written: the next step raises its argument. ``position`` returns the next offset of an
        assigned partition; None: there are no positions."""

    def partitions_changed(self, notify: Notify) -> None:
        """Partitions were assigned, revoked or lost."""

    def core_reported(self, event: Emit) -> None:
        """The core has reported an event."""

    async def aclose(self) -> None:
        """Record the end of the session, and close. Raises if it cannot be written."""

    # --- handlers

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

    # --- transactions

    def results_written(self, results: Sequence[WrittenResult]) -> None:
        """These results are in the open transaction, of which a commit is not requested yet."""

    def transaction_committed(
        self, offsets: Mapping[TopicPartition, int], identity: GroupMetadata
    ) -> None:
        """The transaction is committed, with these offsets of ``identity``."""

    # --- the user's loop

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
