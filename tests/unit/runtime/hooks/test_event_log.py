"""Events become log lines, in the application's way if it has one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import structlog

from asyncrevoke.client.core.io.effects import Emit
from asyncrevoke.client.errors import DecodeError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.runtime.hooks.event_log import EventLog

if TYPE_CHECKING:
    from collections.abc import Iterator

ORDERS = TopicPartition("orders", 0)
LOST = Emit("warning", "partitions lost", {"partitions": {ORDERS}, "seconds": 1.5, "why": "a b"})


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    structlog.reset_defaults()
    with caplog.at_level(logging.DEBUG, "asyncrevoke"):
        yield
    structlog.reset_defaults()


def test_an_event_is_one_line_with_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    EventLog(group="billing").emit(LOST)
    (line,) = caplog.records
    assert (
        line.getMessage()
        == "partitions lost group=billing partitions=orders-0 seconds=1.500 why='a b'"
    )
    assert (line.levelno, line.name) == (logging.WARNING, "asyncrevoke")


def test_the_group_of_a_line_is_printable(caplog: pytest.LogCaptureFixture) -> None:
    log = EventLog(group="billing\x1b[31m")
    for written in (log, log.of_application()):
        written.emit(LOST)
    assert [record.getMessage() for record in caplog.records] == [
        "partitions lost group=billing\\x1b[31m partitions=orders-0 seconds=1.500 why='a b'"
    ] * 2


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_an_event_keeps_its_level(caplog: pytest.LogCaptureFixture, level: str) -> None:
    EventLog().emit(Emit(level, "assigned", {}))
    assert caplog.records[0].levelname == level.upper()


def test_an_error_brings_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    EventLog().write("error", "consumer failed", {"exc_info": ZeroDivisionError("a bug")})
    assert "ZeroDivisionError: a bug" in caplog.text


def test_a_value_that_does_not_decode_is_one_line_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    try:
        raise DecodeError(ORDERS, 3, "the value does not decode as Order: $.id: missing")
    except DecodeError as error:
        EventLog().write("warning", "handler failed; record skipped", {"exc_info": error})
    (line,) = caplog.records
    assert line.exc_info is None
    assert line.getMessage() == (
        "handler failed; record skipped error='orders-0 at offset 3: the value does not decode as "
        "Order: $.id: missing'"
    )


def test_percent_signs_in_fields_are_no_placeholders(caplog: pytest.LogCaptureFixture) -> None:
    EventLog().write("info", "100% %s", {"topic": "%d"})
    assert caplog.records[0].getMessage() == "100% %s topic=%d"


def test_structlog_is_left_unconfigured() -> None:
    EventLog().emit(LOST)
    assert not structlog.is_configured()


def test_a_configured_applications_processors_are_used(caplog: pytest.LogCaptureFixture) -> None:
    structlog.configure(processors=[structlog.processors.JSONRenderer(sort_keys=True)])
    EventLog(group="billing").emit(LOST)
    assert caplog.records[0].getMessage() == (
        '{"event": "partitions lost", "group": "billing", "partitions": ["orders-0"], '
        '"seconds": 1.5, "why": "a b"}'
    )


def test_a_processor_may_drop_an_event(caplog: pytest.LogCaptureFixture) -> None:
    def drop(*_: object) -> dict[str, object]:
        raise structlog.DropEvent

    structlog.configure(processors=[drop])
    EventLog().emit(LOST)
    assert caplog.records == []


def test_a_processor_that_fails_is_reported_and_does_no_harm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> dict[str, object]:
        raise ZeroDivisionError

    structlog.configure(processors=[fail])
    EventLog().emit(LOST)
    assert (
        "structlog processor failed; event logged without it event='partitions lost'" in caplog.text
    )
    assert "ZeroDivisionError" in caplog.text


class UndecidedError(Exception):
    def __bool__(self) -> bool:
        raise RuntimeError("neither")


def test_an_exception_that_breaks_its_own_traceback_is_logged_without_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    try:
        raise UndecidedError
    except UndecidedError as error:  # a later error has it as its context
        EventLog().write("error", "handler failed", {"offset": 7, "exc_info": error})
    assert (
        "event='handler failed' fields={'offset': 7, 'exc_info': 'UndecidedError'}"
        in caplog.records[-1].getMessage()
    )
