"""One version of one request."""

from __future__ import annotations

from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol, TypeVar, cast

import msgspec

from asyncrevoke.client.model import TopicPartition, Value
from asyncrevoke.client.protocol.guard import varint_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kio.static.primitive import i16, i32Timedelta
    from kio.static.protocol import Entity, ResponsePayload

    from asyncrevoke.client.protocol.messages import Request, Response

    class RequestEntity(Entity, Protocol):
        """A request of kio."""

        __api_key__: ClassVar[i16]

    _Request = TypeVar("_Request", bound=Request)
    _ResponseEntity = TypeVar("_ResponseEntity", bound=ResponsePayload)


LONGEST_THROTTLE_TIME: Final = 3600.0


class _OfPartition(Protocol):
    @property
    def partition(self) -> TopicPartition: ...


_Entry = TypeVar("_Entry", bound=_OfPartition)


class Dialect(Value, frozen=True):
    """Encodes a request in one version, and decodes the response.

    ``build`` and ``read`` are for one type of message, the key of this dialect in ``codec``.
    """

    api_key: int
    version: int
    flexible: bool
    response_type: type[ResponsePayload]
    build: Callable[[Request], RequestEntity]
    # Responses that identify topics by id are decoded with their request, which has the names.
    read: Callable[[Entity, Request | None], Response]
    # The fast path without kio, for the frequent cases.
    shortcut: Shortcut | None = None


class Shortcut(Value, frozen=True):
    """Encodes a request, and decodes the response at an offset in a frame. Both return None for
    what only kio handles."""

    write: Callable[[Request], bytes | None]
    read: Callable[[bytes | memoryview, int, Request | None], Response | None]


def with_writer(dialect: Dialect, write: Callable[[_Request], bytes | None]) -> Dialect:
    """The dialect with a fast path for requests only."""
    return with_shortcut(dialect, write, _read_by_kio)


def _read_by_kio(_frame: bytes | memoryview, _offset: int, _request: Request | None) -> None:
    """Leave the response to kio."""


def with_shortcut(
    dialect: Dialect,
    write: Callable[[_Request], bytes | None],
    read: Callable[[bytes | memoryview, int, _Request | None], Response | None],
) -> Dialect:
    """The dialect with a shortcut."""
    return msgspec.structs.replace(
        dialect,
        shortcut=Shortcut(
            cast("Callable[[Request], bytes | None]", write),
            cast("Callable[[bytes | memoryview, int, Request | None], Response | None]", read),
        ),
    )


class SchemaModules(NamedTuple):
    """kio's modules of one version: their classes have the same names in all versions."""

    request: Any
    response: Any


def schema(name: str, version: int) -> SchemaModules:
    """The modules of this version of a request. Only versions in use are imported."""
    module = f"kio.schema.{name}.v{version}"
    return SchemaModules(import_module(f"{module}.request"), import_module(f"{module}.response"))


def make(
    request_type: type[RequestEntity],
    build: Callable[[_Request], object],
    response_type: type[_ResponseEntity],
    read: Callable[[_ResponseEntity], Response],
) -> Dialect:
    """Make a dialect. ``build`` makes a ``request_type`` of a message."""

    def read_alone(entity: _ResponseEntity, _request: _Request | None) -> Response:
        return read(entity)

    return make_by_id(request_type, build, response_type, read_alone)


def make_by_id(
    request_type: type[RequestEntity],
    build: Callable[[_Request], object],
    response_type: type[_ResponseEntity],
    read: Callable[[_ResponseEntity, _Request | None], Response],
) -> Dialect:
    """Like :func:`make`, for a version that identifies topics by id only."""
    return Dialect(
        api_key=request_type.__api_key__,
        version=request_type.__version__,
        flexible=request_type.__flexible__,
        response_type=cast("type[ResponsePayload]", response_type),
        build=cast("Callable[[Request], RequestEntity]", build),
        read=cast("Callable[[Entity, Request | None], Response]", read),
    )


def compact_string(text: str | None) -> bytes:
    """A compact nullable string."""
    if text is None:
        return varint_bytes(0)
    data = text.encode()
    return varint_bytes(len(data) + 1) + data


def duration(seconds: float) -> i32Timedelta:
    """Seconds as kio's type, at most 2**31 - 1 milliseconds."""
    return cast("i32Timedelta", timedelta(milliseconds=min(round(seconds * 1000), 2**31 - 1)))


def throttle_time(milliseconds: int) -> float:
    """A broker's throttle time in seconds. One that is negative is none, and a quota of more than
    an hour at once is not believed."""
    return min(max(milliseconds, 0) / 1000, LONGEST_THROTTLE_TIME)


def throttle_time_of(entity: object) -> float:
    """The throttle time of a decoded response in seconds; 0 if it has none."""
    throttled = getattr(entity, "throttle_time", None)
    if not isinstance(throttled, timedelta):
        return 0.0
    return throttle_time(throttled // timedelta(milliseconds=1))


def by_topic(entries: Iterable[_Entry]) -> dict[str, list[_Entry]]:
    """Entries grouped by topic, in the order of each topic's first entry."""
    topics: dict[str, list[_Entry]] = {}
    for entry in entries:
        topics.setdefault(entry.partition.topic, []).append(entry)
    return topics
