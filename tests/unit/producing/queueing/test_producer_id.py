"""Writing to brokers that give no producer id."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import pytest
from kio.schema.init_producer_id.v3.response import InitProducerIdResponse
from kio.schema.types import ProducerId
from kio.static.primitive import i16, i32Timedelta
from unit.producing.test_producer_core import E, Setting, sequence, values

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.io.effects import Failed, FailureKind
from asyncrevoke.client.producing.requests import InitProducerIdRequest
from asyncrevoke.client.protocol.messages import EntityResponse

if TYPE_CHECKING:
    from asyncrevoke.client.producing.requests import Outgoing
    from asyncrevoke.client.protocol.messages import ErrorCode


def asks_for_producer_id(setting: Setting) -> Outgoing:
    (outgoing,) = setting.core.requests(setting.now)
    assert isinstance(outgoing.message, InitProducerIdRequest)
    return outgoing


def test_without_idempotence_batches_have_no_producer_id_and_one_is_in_flight() -> None:
    setting = Setting(idempotent=False)
    assert setting.append(b"1")
    first = setting.sent()
    assert sequence(first) == (-1, -1, -1)
    assert setting.append(b"2")
    assert not setting.core.requests(setting.now), "the second batch waits for the first"
    setting.respond(first, E.none)
    second = setting.sent()
    assert (sequence(second), values(second)) == ((-1, -1, -1), [b"2"])
    setting.respond(second, E.none)
    assert setting.sink.acknowledged == [b"1", b"2"]


@pytest.mark.parametrize("error", [E.out_of_order_sequence_number, E.invalid_producer_epoch])
def test_errors_about_sequences_change_nothing_without_idempotence(error: ErrorCode) -> None:
    setting = Setting(idempotent=False)
    assert setting.append(b"1")
    setting.respond(setting.sent(), error)
    setting.now += 5
    again = setting.sent()
    assert (sequence(again), values(again)) == ((-1, -1, -1), [b"1"])


def test_a_broker_that_does_not_offer_init_producer_id_fails_records_with_the_option() -> None:
    setting = Setting()
    assert setting.append(b"1")
    refused = Failed(0, FailureKind.UNSUPPORTED, "h:1: the broker does not offer InitProducerId")
    setting.core.response_received(setting.now, asks_for_producer_id(setting), refused)
    ((token, error),) = setting.sink.failed
    assert token == b"1"
    assert "does not offer InitProducerId" in error
    assert "Consumer(idempotent=False)" in error
    assert "written twice" in error
    assert setting.core.queued_bytes == 0


@pytest.mark.parametrize("error", [E.cluster_authorization_failed, E.unsupported_version])
def test_a_denied_producer_id_fails_records_with_the_option_and_is_requested_again(
    error: ErrorCode,
) -> None:
    setting = Setting()
    assert setting.append(b"1")
    denied = InitProducerIdResponse(
        throttle_time=i32Timedelta.parse(datetime.timedelta(0)),
        error_code=error,
        producer_id=ProducerId(-1),
        producer_epoch=i16(-1),
    )
    setting.reply(asks_for_producer_id(setting), EntityResponse(entity=denied))
    ((_, text),) = setting.sink.failed
    assert "Consumer(idempotent=False)" in text
    setting.now += 5
    assert setting.append(b"2")
    setting.start()
    setting.respond(setting.sent(), E.none)
    assert setting.sink.acknowledged == [b"2"], "the permission was granted"


def test_the_option_is_a_flag_and_idempotence_is_the_default() -> None:
    assert ConsumerConfig().idempotent is True
    assert ConsumerConfig(idempotent=False).idempotent is False
