"""Decodes large responses element by element.

kio decodes a message in one call and holds the interpreter lock meanwhile, so the event loop waits
even if another thread decodes. Millions of entities kept at the same time also make each pass of
the garbage collector slow. Therefore an array of structures in a large response is decoded while
it is iterated over, one element at a time.
"""

# Fields of kio's dataclasses are of any type.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast, overload

from asyncrevoke.client.protocol.guard import USED_TAGGED_FIELDS, HostileFrame, Walk, varint, walk

if TYPE_CHECKING:
    from kio.static.protocol import Entity, ResponsePayload


R = TypeVar("R", bound="ResponsePayload")

# (bytes, position, end of each array of structures by its start) -> (value, position after it)
_Read: TypeAlias = Callable[[bytes, int, Mapping[int, int]], tuple[Any, int]]


class Pieces(Sequence[object]):
    """The elements of an array. Each is decoded while iterating, and not kept.

    Iterating raises what kio's decoder raises, and ``HostileFrame`` if the last element does not
    end where the walk of the array did.
    """

    def __init__(
        self, read: _Read, body: bytes, start: int, count: int, ends: Mapping[int, int], end: int
    ) -> None:
        self._read = read
        self._body = body
        self._start = start
        self._count = count
        self._ends = ends
        self._end = end

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[object]:
        read, body, ends, position = self._read, self._body, self._ends, self._start
        for _ in range(self._count):
            element, position = read(body, position, ends)
            yield element
        if position != self._end:
            raise HostileFrame(f"an array ends at byte {position}, and was walked to {self._end}")

    @overload
    def __getitem__(self, index: int) -> object: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[object]: ...
    def __getitem__(self, index: int | slice) -> object:
        if isinstance(index, slice):
            return tuple(self)[index]
        if not 0 <= index < self._count:
            raise IndexError(index)
        return next(islice(self, index, None))


def read_in_pieces(frame: bytes, response_type: type[R]) -> tuple[R, Walk]:
    """Like :func:`read_response`, but arrays of structures are :class:`Pieces`, not tuples.

    Raises ``HostileFrame``, and what kio's decoder raises.
    """
    ends: dict[int, int] = {}
    walked = walk(frame, 0, response_type, response_type.__header_schema__, ends)
    if walked.edits:
        ends = {}
        walk(walked.body, 0, response_type, ends=ends)
    else:
        ends = {start - walked.start: end - walked.start for start, end in ends.items()}
    entity_type: type[Entity] = response_type
    response, end = _entity(entity_type, nullable=False)(walked.body, 0, ends)
    if end != len(walked.body):
        raise HostileFrame(f"the decoder read {end} bytes of {len(walked.body)} that were walked")
    return response, walked


@cache
def _is_flat(entity_type: type[Entity]) -> bool:
    """Whether neither it nor a structure in it has an array of structures."""
    from kio.serial import _introspect as schema

    for field in dataclasses.fields(entity_type):
        kind = schema.classify_field(field)
        if isinstance(kind, schema.EntityTupleField):
            return False
        if isinstance(kind, schema.EntityField) and not _is_flat(kind.type_):
            return False
    return True


@cache
def _entity(entity_type: type[Entity], *, nullable: bool) -> _Read:
    from kio.serial import entity_reader

    if _is_flat(entity_type):
        return _whole(entity_reader(entity_type, True) if nullable else entity_reader(entity_type))
    return _by_fields(entity_type, nullable=nullable)


def _whole(native: Callable[[bytes, int], tuple[Any, int]]) -> _Read:
    """A value that kio decodes in one call."""

    def whole(body: bytes, position: int, _: Mapping[int, int]) -> tuple[Any, int]:
        value, size = native(body, position)
        return value, position + size

    return whole


def _by_fields(entity_type: type[Entity], *, nullable: bool) -> _Read:
    from kio.serial import _introspect as schema
    from kio.serial._parse import get_field_reader
    from kio.serial.readers import read_int8

    flexible = entity_type.__flexible__
    steps: list[tuple[str, _Read]] = []
    tagged: dict[int, tuple[str, _Read]] = {}
    for field in dataclasses.fields(entity_type):
        if (tag := schema.get_field_tag(field)) is not None:
            if field.name in USED_TAGGED_FIELDS:
                reader = get_field_reader(entity_type, field, False, True)
                read = _whole(cast("Callable[[bytes, int], tuple[Any, int]]", reader))
                tagged[tag] = field.name, read
            continue
        kind = schema.classify_field(field)
        if isinstance(kind, schema.EntityTupleField):
            step = _array(kind.type_, flexible=flexible)
        elif isinstance(kind, schema.EntityField):
            step = _entity(kind.type_, nullable=schema.is_optional(field))
        else:
            reader = get_field_reader(entity_type, field, False, False)
            step = _whole(cast("Callable[[bytes, int], tuple[Any, int]]", reader))
        steps.append((field.name, step))

    def by_fields(body: bytes, position: int, ends: Mapping[int, int]) -> tuple[Any, int]:
        if nullable:
            marker, size = read_int8(body, position)
            position += size
            if marker == -1:
                return None, position
        values: dict[str, Any] = {}
        for name, step in steps:
            values[name], position = step(body, position, ends)
        if flexible:
            # The walk has cut all others out, so they keep their defaults.
            count, position = varint(body, position)
            for _ in range(count):
                tag, position = varint(body, position)
                if tag not in tagged:
                    raise HostileFrame(f"tagged field {tag} ends at byte {position}")
                _, position = varint(body, position)
                name, step = tagged[tag]
                values[name], position = step(body, position, ends)
        return entity_type(**values), position

    return by_fields


def _array(element_type: type[Entity], *, flexible: bool) -> _Read:
    from kio.serial.readers import read_compact_array_length, read_legacy_array_length

    element = _entity(element_type, nullable=False)
    length = read_compact_array_length if flexible else read_legacy_array_length

    def array(body: bytes, position: int, ends: Mapping[int, int]) -> tuple[Any, int]:
        count, size = length(body, position)
        start = position + size
        if count is None or count < 0:
            return None, start
        end = ends[position] if count else start
        return Pieces(element, body, start, count, ends, end), end

    return array
