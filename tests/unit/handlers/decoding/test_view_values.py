"""Values that are memoryviews, decoded by the annotation of a handler's parameter."""

from __future__ import annotations

from typing import cast

import pytest

from asyncrevoke import Consumer, Record
from asyncrevoke.client.errors import DecodeError
from asyncrevoke.handlers.dead_letters.dead_letter import DeadLetter
from asyncrevoke.handlers.decoding.decoders import decoder_for
from asyncrevoke.testing import TestConsumer


def record(value: bytes | memoryview | None) -> Record:
    return Record("scans", 0, 5, 1000, 0, None, cast("bytes", value))


@pytest.mark.parametrize("value", [b'{"id": 1}', memoryview(b'{"id": 1}')])
@pytest.mark.parametrize(
    ("annotation", "decoded"),
    [(bytes, b'{"id": 1}'), (str, '{"id": 1}'), (dict[str, int], {"id": 1})],
)
def test_views_and_bytes_decode_the_same(
    value: bytes | memoryview, annotation: object, decoded: object
) -> None:
    found = decoder_for(annotation, "value")(record(value))
    assert found == decoded
    assert type(found) is type(decoded)


@pytest.mark.parametrize("value", [b"scan", memoryview(b"scan")])
def test_a_memoryview_is_of_the_value_itself(value: bytes | memoryview) -> None:
    found = decoder_for(memoryview, "value")(record(value))
    assert isinstance(found, memoryview)
    assert found.obj is (value.obj if isinstance(value, memoryview) else value)


def test_a_null_value_needs_an_optional_memoryview() -> None:
    assert decoder_for(memoryview | None, "value")(record(None)) is None
    with pytest.raises(DecodeError, match=r"annotate `memoryview \| None`"):
        decoder_for(memoryview, "value")(record(None))


async def test_handlers_get_what_they_are_annotated_with() -> None:
    consumer = Consumer(group_id="scans", value_as="view")
    given: list[object] = []

    @consumer.handler("views")
    async def take_view(value: memoryview) -> None:
        given.append(value)

    @consumer.handler("bytes")
    async def take_bytes(value: bytes) -> None:
        given.append(value)

    async with TestConsumer(consumer) as t:
        await t.publish("views", b"scan")
        await t.publish("bytes", b"scan")
    assert [type(given_item) for given_item in given] == [memoryview, bytes]


def test_a_dead_letter_has_a_copy_of_the_value() -> None:
    letter = DeadLetter(record(memoryview(b"scan")), ValueError(), 1)
    assert letter.value == b"scan"
    assert type(letter.value) is bytes
