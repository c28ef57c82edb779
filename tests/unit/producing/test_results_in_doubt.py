"""Results of which it is unknown whether they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.producing.test_producer_core import Setting, Sink, sequence

from asyncrevoke.client.core.io.effects import Failed, FailureKind
from asyncrevoke.client.errors import PublishError
from asyncrevoke.client.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence


class SinkOfErrors(Sink):
    def __init__(self) -> None:
        super().__init__()
        self.errors: list[Exception] = []

    def results_failed(self, tokens: Sequence[object], error: Exception, /) -> None:
        super().results_failed(tokens, error)
        self.errors.append(error)


def test_an_unknown_server_error_leaves_open_whether_the_batch_is_written() -> None:
    """Else the next batch has its sequence number, and a broker that wrote it drops the next."""
    setting = Setting()
    sink = setting.sink = SinkOfErrors()
    assert setting.append(b"0")
    setting.start()
    first = setting.sent()
    assert sequence(first) == (77, 0, 0)
    setting.respond(first, ErrorCode.unknown_server_error)
    (failure,) = sink.errors
    assert isinstance(failure, PublishError)
    assert failure.in_doubt
    assert "unknown_server_error" in str(failure)
    assert setting.append(b"1")
    assert sequence(setting.sent()) == (77, 1, 0)


@pytest.mark.parametrize(
    "error", [ErrorCode.unknown_producer_id, ErrorCode.out_of_order_sequence_number]
)
def test_a_batch_that_may_be_written_stays_in_doubt_when_the_broker_knows_another_sequence(
    error: ErrorCode,
) -> None:
    setting = Setting()
    sink = setting.sink = SinkOfErrors()
    assert setting.append(b"0")
    setting.start()
    lost = setting.sent()
    setting.core.response_received(setting.now, lost, Failed(0, FailureKind.TIMEOUT, "no response"))
    setting.now = 1
    setting.respond(setting.sent(), error)
    setting.now = 2
    setting.respond(setting.sent(), ErrorCode.topic_authorization_failed)
    (failure,) = sink.errors
    assert isinstance(failure, PublishError)
    assert failure.in_doubt
