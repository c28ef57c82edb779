"""Brokers that share no version of Produce."""

from __future__ import annotations

from unit.producing.test_producer_core import Setting

from asyncrevoke.core.io.effects import Failed, FailureKind
from asyncrevoke.protocol.messages import ErrorCode


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
