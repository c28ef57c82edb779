"""What the core asks of the world, and what the world tells it.

The core never awaits, sleeps, reads a clock or draws a random number. It answers each event with
effects; whoever carries them out (the asyncio driver, or a simulation) owes it an answer to each
``Send``, each ``SetTimer``, each ``DecodeBatch`` and each ``Compute``, and nothing else.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from asyncrevoke.model import Record, TopicPartition
from asyncrevoke.protocol.messages import Request, Response
from asyncrevoke.protocol.records import CorruptBatch, RecordBatch


class Node(NamedTuple):
    """A broker's address. A negative ``node_id`` is a bootstrap address: -1 the first one."""

    node_id: int
    host: str
    port: int


class Channel(enum.Enum):
    """A connection with a purpose. A broker answers one request at a time per connection, so a
    parked JoinGroup or a long-polling Fetch must not stand before a heartbeat or a commit, nor a
    Fetch that waits for quiet partitions before one for busy ones."""

    JOIN = "join"
    HEARTBEAT = "heartbeat"
    COMMIT = "commit"
    FETCH = "fetch"
    FETCH_BUSY = "fetch busy"
    METADATA = "metadata"
    PRODUCE = "produce"


# --- effects: core -> world --------------------------------------------------------------------


class Send(NamedTuple):
    """Send ``message`` to ``node`` over its ``channel`` (connecting if need be), and answer with
    ``Replied`` or ``Failed`` for this ``request_id``, after ``timeout`` seconds at the latest, or
    as soon as nothing was received on the connection for twice ``patience`` seconds; after once as
    many with :class:`ConnectionSilent`. Where round trips are longer than half of any of these,
    that bound is two round trips (:mod:`.link_silence`)."""

    request_id: int
    message: Request
    node: Node
    channel: Channel
    timeout: float
    patience: float = float("inf")


class ResetConnection(NamedTuple):
    """Drop the connection of this channel, if there is one; what is outstanding on it is answered
    with ``Failed(..., DISCONNECTED)``, and the next ``Send`` opens another."""

    node: Node
    channel: Channel


class ProbeBroker(NamedTuple):
    """Find out whether ``node`` answers on a connection of its own, and answer with
    ``BrokerProbed``. ``patience``: as that of a ``Send``."""

    node: Node
    patience: float


class DropSilentConnections(NamedTuple):
    """Drop the connections to ``node`` on which something was asked by ``asked_before`` and
    nothing was received since ``heard_before`` (the core's clock), with what is outstanding on
    them, which is answered with ``Failed(..., DISCONNECTED)``; and all, also those to other
    brokers, on which nothing was received since then and nothing is outstanding. The next ``Send``
    opens another."""

    node: Node
    heard_before: float
    asked_before: float


class SetTimer(NamedTuple):
    """Send ``TimerFired(key)`` at time ``at``, or up to ``spread`` seconds later (the world draws
    the jitter). Setting a key again replaces its timer."""

    key: str
    at: float
    spread: float = 0.0


class CancelTimer(NamedTuple):
    """Forget the timer of this key."""

    key: str


class BackgroundHeartbeat(NamedTuple):
    """The heartbeat that a thread may send while the event loop is blocked, so that the group does
    not remove the member: ``message`` to ``node``, over a connection of its own, one at a time and
    ``interval`` seconds apart. Each is answered with ``BackgroundHeartbeatReply``. The one after it
    is ``next_message(response)``, a pure function; None ends them, and so does a newer
    ``BackgroundHeartbeat``. Without a ``message`` none may be sent any more."""

    heartbeat_id: int
    message: Request | None
    node: Node | None
    interval: float
    timeout: float
    next_message: Callable[[Response], Request | None]


class DecodeBatch(NamedTuple):
    """Decode a large batch where that holds nothing else up, and answer with what :meth:`run`
    returns: a pure function, for any thread."""

    request_id: int
    batch: RecordBatch
    partition: TopicPartition
    tracker_id: int
    from_offset: int

    def run(self) -> BatchDecoded:
        """Do it, which may take long."""
        try:
            records = self.batch.decode(*self.partition, self.tracker_id, self.from_offset)
        except CorruptBatch as error:
            return BatchDecoded(self.request_id, error)
        return BatchDecoded(self.request_id, records)


class Compute(NamedTuple):
    """Call ``work``, a pure function for any thread, where that holds nothing else up, and answer
    with what :meth:`run` returns."""

    computation_id: int
    work: Callable[[], object]

    def run(self) -> Computed:
        """Do it, which may take seconds."""
        try:
            return Computed(self.computation_id, self.work())
        except Exception as error:  # noqa: BLE001 - whoever has asked for it says what follows
            return Computed(self.computation_id, error)


class WakePoller(NamedTuple):
    """Something may be there for a waiting poll: call ``poll`` again."""


class NotifyKind(enum.Enum):
    """Which callback of a RebalanceListener."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


class Notify(NamedTuple):
    """Call the listener, as a notification (KIP-429). ``partitions`` is never empty. Delivery of
    the instances with ``instance_ids`` waits until ``listener_called``."""

    kind: NotifyKind
    partitions: frozenset[TopicPartition]
    instance_ids: tuple[int, ...] = ()


class EnterLifespan(NamedTuple):
    """Enter the lifespan of a partition, which reads from ``position``; answer with
    ``lifespan_entered``, ``lifespan_exited`` or ``lifespan_failed``."""

    instance_id: int
    partition: TopicPartition
    position: int


class ExitLifespan(NamedTuple):
    """Exit this lifespan, or stop entering it; answer with ``lifespan_exited`` or
    ``lifespan_failed``. Unless ``drained``, handlers of the partition may still run."""

    instance_id: int
    drained: bool


class LoseLifespan(NamedTuple):
    """The partition of this lifespan is lost: end it without keeping anything."""

    instance_id: int


class Emit(NamedTuple):
    """An event for logs, journal and dashboard; ``level`` is one of ``logging``, in lower case."""

    level: str
    event: str
    fields: dict[str, object]


class CompleteRequest(NamedTuple):
    """A call of the user (commit, look-up, unsubscribe, close) has ended: one for each number that
    the core has given to a call."""

    call_id: int
    result: object = None
    error: Exception | None = None


Effect: TypeAlias = (
    Send
    | ResetConnection
    | ProbeBroker
    | DropSilentConnections
    | SetTimer
    | CancelTimer
    | BackgroundHeartbeat
    | DecodeBatch
    | Compute
    | WakePoller
    | Notify
    | EnterLifespan
    | ExitLifespan
    | LoseLifespan
    | Emit
    | CompleteRequest
)


# --- events: world -> core ---------------------------------------------------------------------


class FailureKind(enum.Enum):
    """Why a request has no response."""

    UNREACHABLE = "unreachable"  # no connection: the request was never sent
    DISCONNECTED = "disconnected"  # the connection broke: it may or may not have been processed
    TIMEOUT = "timeout"  # no answer in time, the connection was dropped: likewise ambiguous
    SILENT = "silent"  # nothing at all was received, the connection was dropped: likewise ambiguous
    MALFORMED = "malformed"  # the answer could not be decoded, the connection was dropped
    AUTHENTICATION = "authentication"  # the broker refused our credentials
    UNSUPPORTED = "unsupported"  # the broker offers no version of this request that we speak


class Replied(NamedTuple):
    """The response to a ``Send``."""

    request_id: int
    message: Response


class Failed(NamedTuple):
    """A ``Send`` that got no response; ``detail`` is a sentence for a log line."""

    request_id: int
    kind: FailureKind
    detail: str = ""


class BackgroundHeartbeatReply(NamedTuple):
    """The reply to a ``BackgroundHeartbeat`` that was sent at ``sent_at`` (the core's clock);
    reported in order when the event loop runs again."""

    heartbeat_id: int
    sent_at: float
    reply: Response | Failed


class TimerFired(NamedTuple):
    """The time of ``SetTimer(key, ...)`` has come."""

    key: str


class BatchDecoded(NamedTuple):
    """The records of a ``DecodeBatch``, or why there are none."""

    request_id: int
    records: list[Record] | CorruptBatch


class Computed(NamedTuple):
    """What the work of a ``Compute`` has returned, or the exception that it has raised."""

    computation_id: int
    result: object


class ConnectionSilent(NamedTuple):
    """Something is asked on a connection to ``node``, and nothing was received on it since
    ``since``, for the patience. It stays open for as long again: an answer may be late."""

    node: Node
    since: float


class BrokerProbed(NamedTuple):
    """Whether a broker has answered on a connection that was opened at ``begun_at`` for a
    ``ProbeBroker``."""

    node: Node
    begun_at: float
    answered: bool


Event: TypeAlias = (
    Replied
    | Failed
    | BackgroundHeartbeatReply
    | TimerFired
    | BatchDecoded
    | Computed
    | ConnectionSilent
    | BrokerProbed
)
