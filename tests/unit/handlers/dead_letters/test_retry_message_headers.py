"""Headers of retry messages: written, read, and not believed beyond their limits."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.handlers.dead_letters.failing_handler import LATER, FailingHandler

from asyncrevoke import (
    Record,
    Retry,
)
from asyncrevoke.handlers.dead_letters.retry_message import (
    RetryHistory,
    RetryMessage,
    due_time_ms,
    retry_history,
)

FIRST = Record("orders", 3, 42, 1234, 0, b"k", None)


async def test_a_retry_message_names_its_origin_its_error_and_its_due_time() -> None:
    failing = FailingHandler(9, retry=Retry(attempts=1), retry_topic=LATER)
    async with failing.running() as t:
        before = time.time()
        await t.publish("orders", "bad", key="a", headers={"trace": "1"}, timestamp=1234)
        await t.advance(60)
        first, second = t.records("orders.retry")
        assert (first.key, first.value, second.value) == (b"a", b"bad", b"bad")
        assert abs(first.timestamp / 1000 - before) < 10, "not 1234: brokers delete by it"
        named = dict(first.headers)
        due = float(named.pop("asyncrevoke-due") or 0) / 1000
        assert abs(due - (first.timestamp / 1000 + 60)) < 1
        assert named == {
            "trace": b"1",
            "asyncrevoke-origin-topic": b"orders",
            "asyncrevoke-origin-partition": b"0",
            "asyncrevoke-origin-offset": b"0",
            "asyncrevoke-origin-timestamp": b"1234",
            "asyncrevoke-error-type": b"ConnectionError",
            "asyncrevoke-error-message": b"no 1",
            "asyncrevoke-attempts": b"1",
            "asyncrevoke-delayed-attempt": b"1",
        }
        again = dict(second.headers)
        assert again["asyncrevoke-origin-topic"] == b"orders"
        assert again["asyncrevoke-attempts"] == b"2"
        assert again["asyncrevoke-delayed-attempt"] == b"2"
        assert len(second.headers) == len(first.headers), "they do not pile up"


async def test_a_record_that_another_program_wrote_to_a_retry_topic_is_handled_at_once() -> None:
    failing = FailingHandler(1, retry_topic=LATER)
    async with failing.running() as t:
        await t.publish("orders.retry", "foreign", key="a")
        assert failing.keys == [("orders.retry", 0, 0)]
        await t.advance(60)
        assert failing.keys == [("orders.retry", 0, 0)] * 2
        assert failing.attempts[-1] == (60, 2)


@pytest.mark.parametrize("due", ["", "soon", "-", "9" * 40, "\u0664", "1e300", None])
async def test_an_invalid_due_time_delays_no_record(due: str | None) -> None:
    failing = FailingHandler(0, retry_topic=LATER)
    async with failing.running() as t:
        await t.publish("orders.retry", "x", headers={"asyncrevoke-due": due})
        await t.advance(0)
        assert len(failing.calls) == 1


async def test_a_due_time_far_ahead_delays_its_partition_by_one_delay_at_most() -> None:
    failing = FailingHandler(0, retry_topic=LATER)
    async with failing.running() as t:
        hour_ahead = str(int((time.time() + 3600) * 1000))
        for _ in range(3):
            await t.publish("orders.retry", "x", headers={"asyncrevoke-due": hour_ahead})
        await t.publish("orders.retry", "y", headers={"asyncrevoke-due": "0"})
        await t.advance(59.9)
        assert not failing.calls
        await t.advance(0.2)
        assert len(failing.calls) == 4


NAMES = [
    name for name, _ in RetryMessage(RetryHistory(FIRST, 3, 1), ValueError("boom"), 2.0).headers
]


VALUES = st.none() | st.binary(max_size=25) | st.integers().map(lambda number: b"%d" % number)


@given(
    st.lists(st.tuples(st.sampled_from(NAMES), VALUES)), st.lists(VALUES, min_size=9, max_size=9)
)
def test_any_headers_of_a_retry_topic_are_read(
    some: list[tuple[str, bytes | None]], values: list[bytes | None]
) -> None:
    for headers in (some, [*some, *zip(NAMES, values, strict=True)]):
        record = Record("orders.retry", 0, 7, 0, 0, b"k", b"v", tuple(headers))
        past = retry_history(record)
        assert past is None or (past.record.key, past.record.value) == (b"k", b"v")
        assert due_time_ms(record) <= 1e19  # a float of 19 digits


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("asyncrevoke-origin-timestamp", b"9" * 19),
        ("asyncrevoke-origin-timestamp", b"-2"),
        ("asyncrevoke-origin-offset", b"-1"),
        ("asyncrevoke-origin-offset", b"9" * 19),
        ("asyncrevoke-origin-partition", b"-1"),
        ("asyncrevoke-origin-partition", b"2147483648"),
        ("asyncrevoke-attempts", b"-1"),
        ("asyncrevoke-delayed-attempt", b"-999999999999"),
    ],
)
def test_headers_with_numbers_beyond_kafkas_fields_are_ignored(name: str, value: bytes) -> None:
    headers = dict(RetryMessage(RetryHistory(FIRST, 3, 1), ValueError("boom"), 2.5).headers)
    assert name in headers
    headers[name] = value
    record = Record("orders.retry", 0, 7, 0, 0, b"k", b"v", tuple(headers.items()))
    assert retry_history(record) is None


def test_the_history_of_a_written_retry_message_is_read_again() -> None:
    past = RetryHistory(FIRST, 3, 1)
    written = RetryMessage(past, ValueError("boom"), 2.5)
    record = Record("orders.retry", 0, 7, 0, 0, written.key, written.value, tuple(written.headers))
    again = retry_history(record)
    assert again is not None
    assert (again.calls, again.retry_topic_reads, due_time_ms(record)) == (3, 2, 2500)
    for name in ("topic", "partition", "offset", "timestamp", "key", "value", "headers"):
        assert getattr(again.record, name) == getattr(FIRST, name), name
