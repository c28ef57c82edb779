"""Effects, which the core asks for, and events, which it handles.

The core never awaits, sleeps, reads a clock or draws a random number. It returns effects for each
event. Who carries them out (the asyncio driver, or a simulation) reports the result of each
``Send``, ``SetTimer``, ``DecodeBatch`` and ``Compute`` with an event.
"""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from asyncrevoke.client.model import Record, TopicPartition, Value
from asyncrevoke.client.printable import host_and_port
from asyncrevoke.client.protocol.records import CorruptBatch, RecordBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from asyncrevoke.client.protocol.messages import Request, Response


class Node(NamedTuple):
    """A broker's address. A negative ``node_id`` is a bootstrap address: -1 the first one."""

    node_id: int
    host: str
    port: int

    @property
    def address(self) -> str:
        """Host and port for messages."""
        return host_and_port(self.host, self.port)


class Channel(enum.Enum):
    """A connection with a purpose. A broker handles one request at a time per connection, so a
    delayed JoinGroup or a long-polling Fetch must not delay a heartbeat or a commit, and a Produce
    that waits for replicas must not delay the abort of its transaction."""

    # Without a call of Python, which Enum.__hash__ would be.
    __hash__ = object.__hash__

    JOIN = "join"
    HEARTBEAT = "heartbeat"
    COMMIT = "commit"
    TRANSACTION = "transaction"
    READ_BACK = "read back"
    FETCH = "fetch"
    FETCH_BUSY = "fetch busy"
    METADATA = "metadata"
    PRODUCE = "produce"
    # The records that it has acquired are released when it closes (KIP-932).
    SHARE = "share"


# --- effects -----------------------------------------------------------------------------------


class Send(Value, frozen=True):
    """Send ``message`` to ``node`` over its ``channel``, connecting if need be. Report
    ``Replied`` or ``Failed`` within ``timeout`` seconds.

    If nothing is received on the connection for ``silence_timeout`` seconds, report
    :class:`ConnectionSilent`; after twice as many, report ``Failed``. Each limit is at least
    two round trips (:mod:`.link_silence`).
    """

    request_id: int
    message: Request
    node: Node
    channel: Channel
    timeout: float
    silence_timeout: float = float("inf")


class ResetConnection(Value, frozen=True):
    """Drop the connection of this channel. Outstanding requests fail with DISCONNECTED, and the
    next ``Send`` opens another."""

    node: Node
    channel: Channel


class ProbeBroker(Value, frozen=True):
    """Find out whether ``node`` responds on a connection of its own, and report
    ``BrokerProbed``. ``silence_timeout``: as in ``Send``."""

    node: Node
    silence_timeout: float


class DropSilentConnections(Value, frozen=True):
    """Drop the connections to ``node`` with a request sent by ``asked_before`` on which nothing was
    received since ``heard_before`` (the core's clock); outstanding requests fail with DISCONNECTED.
    Also drop idle connections to any broker on which nothing was received since then."""

    node: Node
    heard_before: float
    asked_before: float


class SetTimer(Value, frozen=True):
    """Send ``TimerFired(key)`` at time ``at``, or up to ``spread`` seconds later (at random).
    Replaces the timer of this key."""

    key: str
    at: float
    spread: float = 0.0


class CancelTimer(Value, frozen=True):
    """Forget the timer of this key."""

    key: str


class BackgroundHeartbeat(Value, frozen=True):
    """A heartbeat that a thread may send while the event loop is blocked: ``message`` to ``node``
    over its own connection, one at a time and ``interval`` seconds apart. Each is reported by
    ``BackgroundHeartbeatReply``. The next is ``next_message(response)``, a pure function; None ends
    them, and so does a newer ``BackgroundHeartbeat`` or a ``StopBackgroundHeartbeat``."""

    heartbeat_id: int
    message: Request
    node: Node
    interval: float
    timeout: float
    next_message: Callable[[Response], Request | None]


class StopBackgroundHeartbeat(Value, frozen=True):
    """The thread may send no heartbeat until the next ``BackgroundHeartbeat``."""


class DecodeBatch(Value, frozen=True):
    """Decode a large batch in a thread, and report what :meth:`run` returns, a pure
    function."""

    request_id: int
    batch: RecordBatch
    partition: TopicPartition
    tracker_id: int
    from_offset: int

    def run(self) -> BatchDecoded:
        """Decode it, which may take long."""
        try:
            records = self.batch.decode(*self.partition, self.tracker_id, self.from_offset)
        except CorruptBatch as error:
            return BatchDecoded(self.request_id, error)
        return BatchDecoded(self.request_id, records)


class Compute(Value, frozen=True):
    """Call ``work``, a pure function, in a thread, and report what :meth:`run` returns."""

    computation_id: int
    work: Callable[[], object]

    def run(self) -> Computed:
        """Call ``work``, which may take seconds."""
        try:
            return Computed(self.computation_id, self.work())
        except Exception as error:  # noqa: BLE001 - the part that has asked handles it
            return Computed(self.computation_id, error)


class WakePoller(Value, frozen=True):
    """Call ``poll`` again if one waits."""


class TransactionDue(Value, frozen=True):
    """Begin a transaction, with ``processing="exactly_once"``; see
    :meth:`TransactionalCommitter.begin_transaction`."""


class NotifyKind(enum.Enum):
    """Which callback of a RebalanceListener."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


class Notify(Value, frozen=True):
    """Call the listener, as a notification (KIP-429). ``partitions`` is never empty. Delivery of
    the instances with ``instance_ids`` waits until ``listener_called``. ``released`` are the last
    positions of partitions that are not assigned any more."""

    kind: NotifyKind
    partitions: frozenset[TopicPartition]
    instance_ids: tuple[int, ...] = ()
    released: Mapping[TopicPartition, int | None] = MappingProxyType({})


class EnterLifespan(Value, frozen=True):
    """Enter the lifespan of a partition, which reads from ``position``; report
    ``lifespan_entered``, ``lifespan_exited`` or ``lifespan_failed``."""

    instance_id: int
    partition: TopicPartition
    position: int


class ExitLifespan(Value, frozen=True):
    """Exit this lifespan, or stop entering it; report ``lifespan_exited`` or
    ``lifespan_failed``. Unless ``drained``, handlers of the partition may still run."""

    instance_id: int
    drained: bool


class LoseLifespan(Value, frozen=True):
    """The partition of this lifespan is lost: end it without keeping anything."""

    instance_id: int


class Emit(Value, frozen=True):
    """An event for logs, journal and dashboard; ``level`` is one of ``logging``, in lower case."""

    level: str
    event: str
    fields: dict[str, object]


class CompleteRequest(Value, frozen=True):
    """A call of the user (commit, look-up, unsubscribe, close) has ended. One for each call id."""

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
    | StopBackgroundHeartbeat
    | DecodeBatch
    | Compute
    | WakePoller
    | TransactionDue
    | Notify
    | EnterLifespan
    | ExitLifespan
    | LoseLifespan
    | Emit
    | CompleteRequest
)


# --- events ------------------------------------------------------------------------------------


class FailureKind(enum.Enum):
    """Why a request has no response."""

    UNREACHABLE = "unreachable"  # no connection: the request was never sent
    DISCONNECTED = "disconnected"  # the connection broke: it may or may not have been processed
    TIMEOUT = "timeout"  # no response in time, the connection was dropped: likewise ambiguous
    SILENT = "silent"  # nothing at all was received, the connection was dropped: likewise ambiguous
    MALFORMED = "malformed"  # the response could not be decoded, the connection was dropped
    AUTHENTICATION = "authentication"  # the broker rejected the credentials
    UNSUPPORTED = "unsupported"  # the broker offers no version of this request that is implemented


class Replied(Value, frozen=True):
    """The response to a ``Send``."""

    request_id: int
    message: Response


class Failed(Value, frozen=True):
    """A ``Send`` that got no response; ``detail`` is a sentence for a log line."""

    request_id: int
    kind: FailureKind
    detail: str = ""


class BackgroundHeartbeatReply(Value, frozen=True):
    """The reply to a ``BackgroundHeartbeat`` that was sent at ``sent_at`` (the core's clock), in
    order when the event loop runs again."""

    heartbeat_id: int
    sent_at: float
    reply: Response | Failed


class TimerFired(Value, frozen=True):
    """The timer of ``key`` has expired."""

    key: str


class BatchDecoded(Value, frozen=True):
    """The records of a ``DecodeBatch``, or the error."""

    request_id: int
    records: Sequence[Record] | CorruptBatch


class Computed(Value, frozen=True):
    """What the work of a ``Compute`` has returned, or the exception that it has raised."""

    computation_id: int
    result: object


class ConnectionSilent(Value, frozen=True):
    """A request is outstanding on a connection to ``node``, and nothing was received on it since
    ``since``, for the silence timeout. It stays open for as long again."""

    node: Node
    since: float


class BrokerThrottled(Value, frozen=True):
    """A quota is exceeded: ``node`` has returned this ``throttle_time`` in seconds to ``request``,
    and reads nothing from the connection before it is over (KIP-219)."""

    node: Node
    request: str
    throttle_time: float


class BrokerProbed(Value, frozen=True):
    """The result of a ``ProbeBroker``, on a connection opened at ``begun_at``."""

    node: Node
    begun_at: float
    reachable: bool


class OtherBroker(NamedTuple):
    """The broker at the address of ``node`` has another id now, or is in another cluster, and says
    so when a connection is opened (KIP-1242)."""

    node: Node


# What a connection reports by itself.
ConnectionReport: TypeAlias = ConnectionSilent | BrokerThrottled | OtherBroker

Event: TypeAlias = (
    Replied
    | Failed
    | BackgroundHeartbeatReply
    | TimerFired
    | BatchDecoded
    | Computed
    | ConnectionSilent
    | BrokerThrottled
    | OtherBroker
    | BrokerProbed
)
