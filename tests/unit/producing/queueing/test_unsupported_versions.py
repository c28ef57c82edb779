"""Brokers that share no version of a request, or reject the credentials."""

from __future__ import annotations

import pytest
from unit.producing.test_producer_core import Setting

from asyncrevoke.client.core.io.effects import Failed, FailureKind, Node
from asyncrevoke.client.producing.producer_core import ProducerCore
from asyncrevoke.client.protocol.messages import ErrorCode


def test_a_broker_that_shares_no_version_of_produce_fails_records_at_once() -> None:
    setting = Setting()
    setting.append(b"1", partition=0)
    setting.append(b"2", partition=1)
    setting.start()
    first, second = setting.core.requests(setting.now)
    why = "broker 0 at a:1: the broker offers Produce 0 to 6, and version 7 or 8 is needed"
    setting.core.response_received(setting.now, first, Failed(0, FailureKind.UNSUPPORTED, why))
    assert setting.sink.failed == [(b"1", f"not published to t: {why}")]
    setting.respond(second, ErrorCode.none)
    assert setting.sink.acknowledged == [b"2"], "the other broker offers it"
    # The broker may have been upgraded.
    setting.append(b"3", partition=0)
    setting.respond(setting.sent(), ErrorCode.none)
    assert setting.sink.acknowledged == [b"2", b"3"]
    assert setting.core.queued_bytes == 0


@pytest.mark.parametrize("kind", [FailureKind.UNSUPPORTED, FailureKind.AUTHENTICATION])
def test_a_result_whose_metadata_no_retry_can_get_fails_at_once(kind: FailureKind) -> None:
    core = ProducerCore(
        [Node(-1, "boot", 1)],
        request_timeout=10,
        delivery_timeout=30,
        metadata_max_age=300,
        compression=0,
        memory=1 << 20,
        idempotent=True,
    )
    core.topics.want(0.0, "t")
    (asks,) = core.requests(0.0)
    assert core.why_not("t", in_time=True) is None
    core.response_received(0.1, asks, Failed(0, kind, "boot:1 rejected the authentication"))
    error = core.why_not("t", in_time=True, others_wait=True)
    assert str(error) == "not published to t: boot:1 rejected the authentication"
    # The next record tries again.
    (again,) = core.requests(5.0)
    assert core.why_not("t", in_time=True) is None
    core.response_received(5.1, again, Failed(0, FailureKind.UNREACHABLE, "refused"))
    assert core.why_not("t", in_time=True) is None
