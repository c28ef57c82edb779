"""The values that users and every layer share: partitions, offsets, records, poll results."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, Self

import msgspec


class Value(msgspec.Struct, frozen=True):
    """Base of immutable values that are read by name, inside this package. Creating a class of it
    takes a third of the time of a named tuple's; values that are also unpacked are named tuples."""


class TopicPartition(NamedTuple):
    """One partition of one topic; ``str`` gives ``"orders-3"``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the offset of the *next* record to read, and its metadata."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """An offset found by timestamp; ``timestamp`` is in milliseconds since the epoch."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


class BrokerPattern(NamedTuple):
    """A pattern of topics that the broker resolves, in RE2 syntax; it must match a whole name.

    For ``group_protocol="consumer"``. The broker looks for new topics every 10 s at most, and finds
    those that the principal may describe. Changing the pattern revokes all partitions, in two
    steps, even if the new pattern matches the same topics.
    """

    regex: str


class GroupMetadata(NamedTuple):
    """The identity of this member in its group, which commits carry.

    ``generation`` is the member epoch under KIP-848. Outside a group, the generation is -1 and the
    member id is empty.
    """

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class BlockingRecord(NamedTuple):
    """The oldest record that delays the release of a partition, in a revocation or at closing.

    ``seconds`` is the time since the revocation or closing began, and ``unfinished`` the number of
    records of the partition that are not done, including this one. ``handler`` names the handler,
    or the function of the task that has the record; None if it is unknown, as for the work of a
    loop, or for an ack.
    """

    topic: str
    partition: int
    offset: int
    seconds: float
    unfinished: int
    handler: str | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition whose release the record delays."""
        return TopicPartition(self.topic, self.partition)


class RunningHandler(NamedTuple):
    """A call of a handler that has not ended.

    ``seconds`` is the time since the call was first seen running, at most a second less than it
    has run; ``offset`` is the record's, or the first record's of a batch.
    """

    handler: str
    topic: str
    partition: int
    offset: int
    seconds: float
    max_handler_time: float | None = None


class FailurePause(NamedTuple):
    """A partition that is paused until the handler of a failed record succeeds (``Pause``), or
    until ``resume``.

    ``offset`` is the record's, ``error`` the type and message of its last exception, ``attempts``
    the number of calls so far, and ``probe_after`` the seconds between two attempts; infinite if
    the partition waits for ``resume``.
    """

    topic: str
    partition: int
    offset: int
    handler: str
    error: str
    attempts: int
    probe_after: float


class Outage(NamedTuple):
    """A server that a decoder or an encoder of handlers asks, and that does not respond.

    ``name`` is the name that the application has given it, ``reason`` the last error, ``seconds``
    the time since the first one. Records wait for it, or are retried.
    """

    name: str
    reason: str
    seconds: float


class UnwrittenRecords(NamedTuple):
    """Failed records that are held, because they cannot be written to ``to_topic``.

    ``to_topic`` is a dead letter topic or a retry topic, ``reason`` says why it does not take them.
    ``records`` of them are held now, of these ``partitions``, the first one for ``seconds``. They
    are written as soon as the topic takes them.
    """

    to_topic: str
    reason: str
    records: int
    seconds: float
    partitions: frozenset[TopicPartition]


class TransactionProgress(NamedTuple):
    """Finished records that wait for their transaction (``processing="exactly_once"``).

    ``records`` have finished and are in no committed transaction, with results of ``size`` bytes.
    ``seconds`` is the time since the first transaction began after the last one that was committed;
    None while none is being written.
    """

    records: int
    size: int
    seconds: float | None


class ShareHealth(NamedTuple):
    """The records that a consumer of a share group has acquired.

    ``unstarted`` wait for a call, ``running`` are with handlers, ``waiting`` for their next call or
    to be released. ``oldest`` is the record that was acquired first, with ``oldest_seconds`` since
    then and ``oldest_deliveries``; after 2,000 others, by default, an unfinished one stops its
    partition. ``last_deliveries`` are on the last delivery before the broker archives them, as far
    as the group's limit is known. ``locks_lost`` counts those of the last minute, and
    ``refused_sessions`` (``host:port``) are brokers that accept no further share session. ``lag``
    is that of the whole group, in records that are neither acknowledged nor archived, as its
    coordinator counted them at most 15 s ago; None if it is not known, as before the first
    acknowledgement in a partition.
    """

    unstarted: int
    running: int
    waiting: int
    oldest: tuple[str, int, int] | None
    oldest_seconds: float
    oldest_deliveries: int
    last_deliveries: int
    locks_lost: int
    refused_sessions: tuple[str, ...]
    lag: int | None = None


class Health(NamedTuple):
    """The state of the consumer, for a health check.

    ``state`` is the membership's state in words. ``heartbeat_age`` is the seconds since the
    coordinator last confirmed the membership (None: never), and ``session_timeout`` the age at
    which the group may remove the member: with KIP-848 nine times the interval that the broker
    sends. ``idle_seconds`` is the seconds since the loop body got its last batch (None while it
    waits for one). ``paused_partitions`` were paused by the user or by back-pressure. ``error`` is
    the fatal error, if there is one. ``blocking_records`` has the record that each of the
    ``revoking`` partitions waits for, if there is one.

    ``skipped_completed`` counts the records that were not delivered, because the completion map of
    a commit lists them as completed by a previous owner of their partition. ``running`` has the
    running calls of handlers, the longest first. ``missing_topics`` are subscribed to and do not
    exist; for ``rejected_topics``, brokers reject this consumer's metadata requests.
    ``failure_pauses`` says which failures have paused partitions, and ``unwritten`` has the failed
    records that are held because another topic does not take them.
    ``outages`` are schema registries that do not respond to decoders and encoders.
    ``unreachable_brokers`` (``host:port``) lead a partition and did not respond to the last
    request; if no broker responds, these are the brokers that were tried. ``throttled_brokers`` are
    brokers (``host:port``) that delay requests of this consumer because it exceeds a quota, with
    the seconds that are left (KIP-219); that is not a failure. ``transactions`` is None without
    ``processing="exactly_once"``, and ``share`` in a consumer group.
    """

    state: str
    coordinator: str | None
    heartbeat_age: float | None
    idle_seconds: float | None
    in_flight: int
    assigned: int
    revoking: int
    paused_partitions: frozenset[TopicPartition]
    error: Exception | None = None
    blocking_records: tuple[BlockingRecord, ...] = ()
    skipped_completed: int = 0
    running: tuple[RunningHandler, ...] = ()
    missing_topics: frozenset[str] = frozenset()
    rejected_topics: frozenset[str] = frozenset()
    unreachable_brokers: tuple[str, ...] = ()
    failure_pauses: tuple[FailurePause, ...] = ()
    session_timeout: float = float("inf")
    unwritten: tuple[UnwrittenRecords, ...] = ()
    throttled_brokers: Mapping[str, float] = MappingProxyType({})
    transactions: TransactionProgress | None = None
    share: ShareHealth | None = None
    outages: tuple[Outage, ...] = ()


class ProducerHealth(NamedTuple):
    """The state of a producer.

    ``queued_records`` with ``queued_bytes`` are neither acknowledged nor have failed; further ones
    wait when there are ``buffer_memory`` bytes. ``oldest_seconds`` is how long the first of them
    has been queued, None without one. ``waiting_calls`` wait for their topic or for memory.
    ``failing_seconds`` is the time since requests have failed without a response from any broker in
    between, None if the last one got a response; ``last_failure`` is why the last request failed
    that was sent again, None if none has. ``unreceived_errors`` counts records that have failed and
    whose error no call has received: the next ``flush`` raises it. ``error`` has ended the
    producer. ``missing_topics`` do not exist, and records wait for them, or have waited for them
    within ``request_timeout``.
    """

    queued_records: int
    queued_bytes: int
    buffer_memory: int
    oldest_seconds: float | None
    waiting_calls: int
    failing_seconds: float | None
    last_failure: str | None
    unreceived_errors: int
    error: Exception | None
    missing_topics: frozenset[str] = frozenset()


class Record(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One record, with the attributes of aiokafka's ``ConsumerRecord``.

    ``timestamp`` is in milliseconds since the epoch; ``timestamp_type`` is 0 for the time
    of creation and 1 for the time of appending to the log. With ``value_as="view"`` the value is a
    memoryview.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    # The offset tracker that counts this record. After a loss or a seek, the partition has another
    # one, so a late completion cannot move its commit point.
    tracker_id: int = -1

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that this record was read from."""
        return TopicPartition(self.topic, self.partition)

    @property
    def delivery_count(self) -> int | None:
        """How often a share group has delivered it, this time included; None in other groups.

        It may be lower than that: the leader of a partition stores the count only when the state of
        the record changes, and another leader begins with what is stored.
        """
        return None

    @property
    def acquisition(self) -> int:
        """Which response of a share group has acquired it; for the library."""
        return -1

    @property
    def view(self) -> memoryview | None:
        """The value as a read-only memoryview, without a copy; None for a null value.

        With ``value_as="view"``, the view may keep a fetch response in memory.
        """
        return None if self.value is None else memoryview(self.value)

    @property
    def checksum(self) -> None:
        """Always None: message format v2 has a checksum per batch, and none per record."""
        return None

    @property
    def serialized_key_size(self) -> int:
        """Bytes of the key, -1 for a null key."""
        return -1 if self.key is None else len(self.key)

    @property
    def serialized_value_size(self) -> int:
        """Bytes of the value, -1 for a null value (a tombstone)."""
        return -1 if self.value is None else len(self.value)


class RecordOfCopy(Record, frozen=True, gc=False, eq=False):
    """A record with ``value_as="view"`` whose value is small: a copy, and each read of ``value``
    creates a memoryview of it.

    The garbage collector tracks memoryviews: to keep one for each record takes longer.
    """

    # Type checkers reject a property in place of a field.
    if not TYPE_CHECKING:

        @property
        def value(self) -> memoryview | None:
            """The value as a memoryview; None for a null value."""
            value = super().value
            return None if value is None else memoryview(value)


class UnreadableRecord(Record, frozen=True, gc=False, eq=False):
    """Replaces a record that cannot be read, or all records of a batch before ``next_offset``.

    It has no key and no value. Handlers never receive it; their failure policy decides about it.
    """

    next_offset: int = -1
    detail: str = ""


class _Acquired:
    """What each record has that a share group has acquired."""

    __slots__ = ()

    # Numbers the responses with acquired records: two deliveries of one offset have two locks. The
    # tracker id is the same for all records, because no offset of a share group is tracked.
    response: int
    deliveries: int

    @property
    def acquisition(self) -> int:
        """Which response of the share group has acquired it; for the library."""
        return self.response

    @property
    def delivery_count(self) -> int:
        """How often the share group has delivered it, this time included."""
        return self.deliveries


class ShareRecord(_Acquired, Record, frozen=True, gc=False, eq=False):
    """A record that a share group has acquired."""

    response: int = -1
    deliveries: int = 1


class UnreadableShareRecord(_Acquired, UnreadableRecord, frozen=True, gc=False, eq=False):
    """An acquired record that cannot be read."""

    response: int = -1
    deliveries: int = 1


_OF_RECORDS: Final = frozenset(name for name in dir(Record) if not name.startswith("_"))

if TYPE_CHECKING:
    # Type checkers infer the types of unpacked names only from a tuple.
    class _Unpacks(tuple[Sequence[Record], frozenset[TopicPartition], frozenset[TopicPartition]]):
        __slots__ = ()

        def __new__(
            cls,
            slices: Mapping[TopicPartition, Sequence[Record]],
            to_be_revoked: frozenset[TopicPartition] = frozenset(),
            lost: frozenset[TopicPartition] = frozenset(),
        ) -> Self: ...

else:

    class _Unpacks:
        __slots__ = ()

        def __iter__(self) -> Iterator[object]:
            yield _UnpackedRecords(self.records)
            yield self.to_be_revoked
            yield self.lost

        def __getattr__(self, name: str) -> object:
            if name in _OF_RECORDS:
                raise AttributeError(
                    f"a batch has no {name!r}, its records have: use `for record in "
                    "batch.records`, or `async for record in consumer.records()` for one record "
                    "after another"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    class _UnpackedRecords(list):
        """The records of a batch as its first part. A loop over the batch itself gets them, too."""

        __slots__ = ()

        def __getattr__(self, name: str) -> object:
            if name in _OF_RECORDS:
                raise AttributeError(
                    f"a list of records has no {name!r}: `for record in batch` gives the parts of "
                    "the batch, which are records, to_be_revoked and lost; use `for record in "
                    "batch.records`"
                )
            raise AttributeError(f"'list' object has no attribute {name!r}")


class PollResult(_Unpacks):
    """The result of one step of the iterator (KIP-983, variant 1).

    ``records`` is a sequence of :class:`Record`. ``to_be_revoked`` has the partitions whose
    revocation completes at the next step unless it is delayed, and ``lost`` those that were lost
    since the last step. It unpacks as ``records, to_be_revoked, lost``, but is not a tuple.
    """

    __slots__ = ("_records", "_slices", "lost", "to_be_revoked")

    def __init__(
        self,
        slices: Mapping[TopicPartition, Sequence[Record]],
        to_be_revoked: frozenset[TopicPartition] = frozenset(),
        lost: frozenset[TopicPartition] = frozenset(),
    ) -> None:
        self._slices = slices
        self._records: Sequence[Record] | None = None
        self.to_be_revoked = to_be_revoked
        self.lost = lost

    @property
    def records(self) -> Sequence[Record]:
        """All records, grouped by partition and in offset order."""
        if self._records is None:
            parts = list(self._slices.values())
            self._records = parts[0] if len(parts) == 1 else list(chain.from_iterable(parts))
        return self._records

    def by_partition(self) -> Mapping[TopicPartition, Sequence[Record]]:
        """The same records grouped by partition, in offset order, without copying."""
        return self._slices

    def __len__(self) -> NoReturn:
        raise TypeError(
            "a PollResult has no length: use len(batch.records), batch.to_be_revoked or batch.lost"
        )

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "a PollResult is neither true nor false: test batch.records, to_be_revoked or lost"
        )

    def __repr__(self) -> str:
        return (
            f"PollResult(records=<{len(self.records)}>, "
            f"to_be_revoked={sorted(self.to_be_revoked)}, lost={sorted(self.lost)})"
        )
