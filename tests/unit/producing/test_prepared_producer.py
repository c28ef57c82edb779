"""A producer that has what the first record needs before there is a record."""

from __future__ import annotations

import pytest

from asyncrevoke.client.core.io.effects import Failed, FailureKind, Node
from asyncrevoke.client.errors import PublishError
from asyncrevoke.client.producing.producer_core import ProducerCore
from asyncrevoke.client.producing.requests import InitProducerIdRequest
from asyncrevoke.client.protocol.messages import MetadataRequest


def core() -> ProducerCore:
    return ProducerCore(
        [Node(-1, "boot", 1)],
        request_timeout=10,
        delivery_timeout=30,
        metadata_max_age=300,
        compression=0,
        memory=1 << 20,
    )


def test_preparing_requests_metadata_and_a_producer_id() -> None:
    producer = core()
    producer.prepare(0.0, "results")
    requested = [type(request.message) for request in producer.requests(0.0)]
    assert requested == [MetadataRequest, InitProducerIdRequest]
    assert producer.requests(0.0) == []
    assert producer.next_at(0.0) == float("inf")


def test_preparing_goes_on_when_requests_have_failed() -> None:
    producer = core()
    producer.prepare(0.0, "results")
    for request in producer.requests(0.0):
        producer.response_received(0.0, request, Failed(0, FailureKind.UNREACHABLE))
    due = producer.next_at(0.0)
    assert 0.0 < due < 1.0
    requested = {type(request.message) for request in producer.requests(1.0)}
    assert requested == {MetadataRequest, InitProducerIdRequest}


def test_a_name_that_no_topic_can_have_is_not_prepared() -> None:
    producer = core()
    with pytest.raises(PublishError):
        producer.prepare(0.0, "no topic")
    assert producer.requests(0.0) == []
