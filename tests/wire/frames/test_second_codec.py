"""kafka-python's codec and ours: random legal messages of each version, and damaged ones."""

# pyright: reportUnknownArgumentType=false
from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING, Any

import pytest
from kio.schema.consumer_protocol_assignment.v3 import data as assignment3
from kio.schema.consumer_protocol_subscription.v0 import data as subscription0
from kio.schema.consumer_protocol_subscription.v1 import data as subscription1
from kio.schema.consumer_protocol_subscription.v2 import data as subscription2
from kio.schema.consumer_protocol_subscription.v3 import data as subscription3
from wire.frames import response_frames as frames
from wire.frames import second_codec
from wire.frames.entity_requests import ENTITY_REQUESTS

from asyncrevoke.client.protocol import codec, guard

if TYPE_CHECKING:
    from kio.static.protocol import Entity, ResponsePayload

    from asyncrevoke.client.protocol.messages import Request

LEGAL = 30
DAMAGED = 100


def responses() -> list[type[ResponsePayload]]:
    """All that the consumer, its producer and the commands decode."""
    kinds: list[type[Request]] = [*codec.REQUESTS, *ENTITY_REQUESTS]
    return [
        codec._dialect(kind, version).response_type
        for kind in kinds
        for version in codec.versions(kind)
    ]


MEMBER_DATA: list[type[Entity]] = [
    subscription0.ConsumerProtocolSubscription,
    subscription1.ConsumerProtocolSubscription,
    subscription2.ConsumerProtocolSubscription,
    subscription3.ConsumerProtocolSubscription,
    assignment3.ConsumerProtocolAssignment,
]


def without_tagged_fields(entity: Any, kept: frozenset[str] = frozenset()) -> Any:
    """The same with the values that absent tagged fields stand for, all but ``kept``."""

    def bare(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(bare, value))
        return without_tagged_fields(value, kept) if dataclasses.is_dataclass(value) else value

    return type(entity)(
        **{
            field.name: bare(getattr(entity, field.name))
            for field in dataclasses.fields(entity)
            if "tag" not in field.metadata or field.name in kept
        }
    )


def named(entity_type: type[Entity]) -> str:
    return f"{entity_type.__name__} v{entity_type.__version__}"


@pytest.mark.parametrize("response_type", responses(), ids=named)
def test_kafka_python_and_this_codec_read_the_same_values(
    response_type: type[ResponsePayload],
) -> None:
    rng = random.Random(named(response_type))
    flexible = response_type.__header_schema__.__flexible__
    header = frames.header(flexible=flexible)
    for _ in range(LEGAL):
        sent = frames.sample(response_type, rng)
        expected = without_tagged_fields(sent, guard.USED_TAGGED_FIELDS)
        untagged = without_tagged_fields(sent)
        # What kio writes, kafka-python reads, and so do we.
        frame = header + frames.body(sent)
        decoded, walked = guard.read_response(frame, response_type)
        assert decoded == expected
        body = second_codec.after_header(frame, flexible=flexible)
        theirs, end = second_codec.decode(response_type, body)
        assert end == len(body)
        assert second_codec.differences(decoded, theirs) == []
        # And the other way round.
        written = second_codec.encode(sent)
        assert written == walked.body or untagged != expected
        assert guard.read_response(header + written, response_type)[0] == untagged


@pytest.mark.parametrize("response_type", responses(), ids=named)
def test_what_is_accepted_of_damaged_bytes_kafka_python_reads_in_the_same_way(
    response_type: type[ResponsePayload],
) -> None:
    rng = random.Random(f"damaged {named(response_type)}")
    header = frames.header(flexible=response_type.__header_schema__.__flexible__)
    accepted = 0
    for _ in range(DAMAGED):
        body = frames.body(frames.sample(response_type, rng))
        frame = header + body
        frame = frame[:4] + frames.damage(frame[4:], rng)
        try:
            decoded, walked = guard.read_response(frame, response_type)
        except guard.HostileFrame:
            continue
        accepted += 1
        second_codec.check(decoded, walked)
    assert accepted > DAMAGED // 50


@pytest.mark.parametrize("entity_type", MEMBER_DATA, ids=named)
def test_member_data_is_read_as_kafka_python_reads_it(entity_type: type[Entity]) -> None:
    rng = random.Random(named(entity_type))
    for _ in range(LEGAL):
        sent = frames.sample(entity_type, rng)
        data = second_codec.encode(sent)
        assert data == frames.body(sent)
        damaged = frames.damage(data, rng)
        for given in (data, damaged):
            try:
                decoded, walked = guard.read_entity(given, 0, entity_type)
            except guard.HostileFrame:
                assert given is damaged
                continue
            second_codec.check(decoded, walked)
