"""A handler's result with options (key, headers, partition, timestamp or topic), and encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeAlias

from typing_extensions import TypeVar

if TYPE_CHECKING:
    from asyncrevoke.client.model import Record

ValueT = TypeVar("ValueT", default=object)
Headers: TypeAlias = Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | str | None]]


class SameKey:
    """The default key of a message: the key of the record that the handler received."""

    def __repr__(self) -> str:
        return "SAME_KEY"


SAME_KEY: Final = SameKey()


class Message(Generic[ValueT]):
    """A result that a handler returns instead of a plain value, to change the defaults.

    ``key`` is bytes, text (encoded as UTF-8) or None; by default the key of the record. ``headers``
    are added to the trace context of the record, and replace it if they have a ``traceparent``.
    Without ``partition``, the key decides as in Java's producer. ``timestamp`` is in milliseconds
    since the epoch, by default the current time. ``topic`` replaces ``publish_to``.
    ``Message(None, key=...)`` publishes a tombstone.
    """

    __slots__ = ("headers", "key", "partition", "timestamp", "topic", "value")

    def __init__(
        self,
        value: ValueT,
        *,
        key: bytes | str | SameKey | None = SAME_KEY,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
        topic: str | None = None,
    ) -> None:
        self.value = value
        self.key = key
        self.headers = headers
        self.partition = partition
        self.timestamp = timestamp
        self.topic = topic


class Published(NamedTuple):
    """The position of a written record. ``offset`` is -1 if the broker has not said it, as for a
    record that was sent again and that it has written before."""

    topic: str
    partition: int
    offset: int


class PublishedRecord(NamedTuple):
    """A record to write. ``partition`` and ``timestamp`` are None for those that the producer
    chooses when the transaction is written."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int | None


# What producers take. A plain tuple is made in a fraction of the time.
RecordFields: TypeAlias = tuple[
    str, int | None, bytes | None, bytes | None, list[tuple[str, bytes | None]], int | None
]
# A result, and the record that it is of, if that was given.
ResultOfRecord: TypeAlias = "tuple[PublishedRecord, Record | None]"
