"""Produce responses about more than was requested: brokers can put millions into one response."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from kio.schema.produce.v8.response import ProduceResponse

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.producing.requests import (
    find_producer_contradiction,
    produce_request,
    produce_response,
)
from asyncrevoke.client.protocol.messages import EntityResponse, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

TP = TopicPartition("t", 0)
REQUEST = produce_request([(TP, bytearray(b"batch"))], 1.0)
(TOPIC,) = produce_response({TP: ErrorCode.none}).responses
(PARTITION,) = TOPIC.partition_responses


class Uniterable(tuple[Any, ...]):
    """An array of a large response: each element is decoded while it is iterated over."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("its elements are decoded")


@pytest.mark.parametrize(
    ("topics", "problem"),
    [
        (Uniterable((TOPIC, TOPIC)), "2 topics, of 1 requested ones"),
        (
            (dataclasses.replace(TOPIC, partition_responses=Uniterable((PARTITION, PARTITION))),),
            "2 partitions, of 1 requested ones",
        ),
    ],
    ids=["topics", "partitions"],
)
def test_unrequested_partitions_are_counted_and_not_decoded(
    topics: tuple[Any, ...], problem: str
) -> None:
    response = EntityResponse(entity=ProduceResponse(responses=topics))
    assert find_producer_contradiction(REQUEST, response) == problem


def test_a_response_to_what_was_requested_is_no_contradiction() -> None:
    response = EntityResponse(entity=produce_response({TP: ErrorCode.none}))
    assert find_producer_contradiction(REQUEST, response) is None
