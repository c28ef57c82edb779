"""What a consumer logs: to whom it belongs, how often, and in whose way."""

from __future__ import annotations

import io
import json
import logging
import logging.config
import traceback
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from logging_state import restored_logging

from asyncrevoke import Consumer, Retry
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.runtime.hooks.application_traceback import application_traceback
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def clean_logging() -> Iterator[None]:
    with restored_logging():
        yield


def billing() -> Consumer:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders", retry=Retry(attempts=2, backoff=1), on_error="skip")
    async def bill(order: bytes) -> None:
        if order == b"bad":
            raise ValueError("no such account")

    return consumer


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_in_steady_state_nothing_is_said_at_info(
    protocol: Any, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = Consumer(group_id="billing", group_protocol=protocol)
    handled = 0

    @consumer.handler("orders")
    async def bill(order: bytes) -> None:
        nonlocal handled
        handled += 1

    async with TestConsumer(consumer) as t:
        await t.advance(60)
        with caplog.at_level(logging.INFO):
            caplog.clear()
            for number in range(100):
                await t.publish("orders", b"order %d" % number)
                await t.advance(10)
            assert handled == 100
            assert caplog.messages == []
        with caplog.at_level(logging.DEBUG):
            await t.publish("orders", b"order")
            await t.advance(5)
            assert any(line.startswith("committed") for line in caplog.messages)


async def test_each_step_of_a_rebalance_is_logged_with_group_member_and_partition(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with TestConsumer(billing()) as t:
        with caplog.at_level(logging.DEBUG):
            caplog.clear()
            await t.revoke(("orders", 0))
            await t.advance(1)
            member = t._session.core.group_metadata().member_id
            assert member
            for event in "revocation requested", "revocation announced", "released":
                (line,) = [message for message in caplog.messages if message.startswith(event)]
                assert "orders-0" in line
                assert "group=billing" in line
                assert f"member={member}" in line


async def test_the_revocation_of_two_partitions_is_announced_in_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with TestConsumer(billing()) as t:
        with caplog.at_level(logging.DEBUG):
            await t.revoke(("orders", 0), ("orders", 1))
            await t.advance(1)
        (line,) = [
            message for message in caplog.messages if message.startswith("revocation announced")
        ]
        assert "partitions=orders-0,orders-1" in line


async def test_a_failed_handler_is_logged_with_its_record(caplog: pytest.LogCaptureFixture) -> None:
    async with TestConsumer(billing()) as t:
        await t.publish("orders", b"bad", partition=2)
        await t.advance(5)
    lines = [message for message in caplog.messages if message.startswith("handler failed")]
    assert len(lines) == 2
    for line in lines:
        assert "partition=orders-2" in line
        assert "offset=0" in line
        assert "member=" not in line


def parse(order: bytes) -> None:
    raise ValueError(order)


def start_of_traceback(caplog: pytest.LogCaptureFixture, event: str) -> str:
    """The first frame of the traceback that this event has."""
    (record,) = (each for each in caplog.records if each.getMessage().startswith(event))
    assert record.exc_info is not None
    frame, *_ = traceback.extract_tb(record.exc_info[2])
    return frame.name


@pytest.mark.parametrize("where", ["loop", "thread", "batch"])
async def test_the_traceback_of_a_failed_handler_begins_at_the_applications_code(
    caplog: pytest.LogCaptureFixture, where: str
) -> None:
    consumer = Consumer(group_id="billing")
    if where == "thread":

        @consumer.handler("orders", on_error="skip", run_in="thread")
        def bill_in_thread(order: bytes) -> None:
            parse(order)
    elif where == "batch":

        @consumer.handler("orders", on_error="skip", batch=True)
        async def bill_in_batch(orders: list[bytes]) -> None:
            parse(orders[0])
    else:

        @consumer.handler("orders", on_error="skip")
        async def bill_in_loop(order: bytes) -> None:
            parse(order)

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"bad")
        await t.until(lambda: "handler failed; record" in caplog.text)
    assert start_of_traceback(caplog, "handler failed; record") == f"bill_in_{where}"
    record = next(each for each in caplog.records if each.exc_info)
    assert "member=" not in record.getMessage()


def test_a_traceback_without_code_of_the_application_stays_whole() -> None:
    with pytest.raises(ConfigError) as raised:
        Consumer(group_id="")
    trace = raised.value.__traceback__
    assert trace is not None
    inside = raised.value.with_traceback(trace.tb_next)
    assert application_traceback(inside) is trace.tb_next


def test_a_logged_exception_keeps_its_traceback() -> None:
    with pytest.raises(ValueError, match="bad") as raised:
        parse(b"bad")
    whole = raised.value.__traceback__
    EventLog().of_application().write("error", "handler failed", {"exc_info": raised.value})
    assert raised.value.__traceback__ is whole


@pytest.mark.usefixtures("clean_logging")
async def test_lines_go_where_the_applications_logging_configuration_says() -> None:
    stream = io.StringIO()
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": True,  # its default, with loggers of ours there before
            "formatters": {"line": {"format": "%(levelname)s|%(name)s|%(message)s"}},
            "handlers": {
                "here": {"class": "logging.StreamHandler", "stream": stream, "formatter": "line"}
            },
            "root": {"level": "INFO", "handlers": ["here"]},
            "loggers": {"asyncrevoke": {"level": "INFO"}},
        }
    )
    async with TestConsumer(billing()):
        pass
    lines = stream.getvalue().splitlines()
    assert any(line.startswith("INFO|asyncrevoke|assigned group=billing") for line in lines)


@pytest.mark.usefixtures("clean_logging")
async def test_lines_have_the_applications_structlog_processors() -> None:
    stream = io.StringIO()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_log_level,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    handler = logging.StreamHandler(stream)
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel("INFO")
    async with TestConsumer(billing()):
        pass
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    (assigned,) = [line for line in lines if line["event"] == "assigned"]
    assert assigned["group"] == "billing"
    assert assigned["level"] == "info"
    assert assigned["partitions"] == [f"orders-{number}" for number in range(4)]
