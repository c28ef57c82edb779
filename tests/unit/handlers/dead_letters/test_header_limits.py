"""What is written of a record that could be read can be read again, however many headers it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from wire.frames.corrupt_records import fetched
from wire.frames.raw_batches import raw_batch, record

from asyncrevoke.client.model import UnreadableRecord
from asyncrevoke.client.protocol.content_limits import MAX_ADDED_HEADERS, MAX_RECORD_HEADERS
from asyncrevoke.client.protocol.records import decode_batches
from asyncrevoke.dead_letters.stored_dead_letter import StoredDeadLetter, read_dead_letter
from asyncrevoke.handlers.dead_letters.dead_letter import HEADERS, DeadLetter
from asyncrevoke.handlers.dead_letters.retry_message import (
    RetryHistory,
    RetryMessage,
    retry_history,
)

if TYPE_CHECKING:
    from asyncrevoke import Record

Headers = list[tuple[str, bytes | None]]
MOST = MAX_RECORD_HEADERS
OWN = ("asyncrevoke-attempts", b"1")
OTHER = ("h", b"")


def read(headers: Headers) -> Record:
    """The record with these headers, as a consumer reads it."""
    data = record(headers=[(name.encode(), value) for name, value in headers])
    (batch,) = decode_batches(fetched(raw_batch(data)), read_committed=False)
    (found,) = batch.decode("orders", 0, 1, 0)
    return found


@pytest.mark.parametrize(
    ("headers", "readable"),
    [
        ([OTHER] * MOST, True),
        ([OTHER] * (MOST + 1), False),
        ([OTHER] * MOST + [OWN], True),
        ([OTHER] * MOST + [OWN] * MAX_ADDED_HEADERS, True),
        ([OTHER] * MOST + [OWN] * (MAX_ADDED_HEADERS + 1), False),
        ([OTHER] * (MOST + 1) + [OWN] * 50, False),
        ([OWN] * (MOST + MAX_ADDED_HEADERS), True),
        ([OWN] * (MOST + MAX_ADDED_HEADERS + 1), False),
        ([("x-asyncrevoke-attempts", b"")] * (MOST + 1), False),
    ],
)
def test_headers_that_the_library_adds_do_not_count_for_the_limit_of_a_record(
    headers: Headers, readable: bool
) -> None:
    found = read(headers)
    if readable:
        assert list(found.headers) == headers
    else:
        assert isinstance(found, UnreadableRecord)
        assert found.detail == "the record has more than 10000 headers"


@pytest.mark.parametrize("name", ["h", "asyncrevoke-attempts"])
@pytest.mark.parametrize("count", [0, MOST - 6, MOST])
def test_dead_letters_and_retries_of_readable_records_can_be_read(count: int, name: str) -> None:
    found = read([(name, b"%d" % number) for number in range(count)])
    retry = RetryMessage(RetryHistory(found, 1, 0), ValueError("no"), 1.0)
    again = retry_history(read(retry.headers))
    assert again is not None
    assert again.record.headers == found.headers
    # A dead letter that fails as a record of its topic, is replayed, and fails again.
    for turn in range(20):
        letter = read_dead_letter(read(DeadLetter(found, ValueError("no"), 1).headers))
        assert isinstance(letter, StoredDeadLetter)
        replayed = read(letter.replay_headers_with_timestamp())
        assert not isinstance(replayed, UnreadableRecord)
        found = replayed if turn % 9 == 0 else letter.record
    others = [header for header in found.headers if header[0] == "h"]
    assert others == ([("h", b"%d" % number) for number in range(count)] if name == "h" else [])


def test_a_tracer_adds_no_header_that_would_make_a_dead_letter_unreadable() -> None:
    trace = [("traceparent", b"1"), ("b3", b"2")]
    for count, traced in ((MOST - 9, True), (MOST - 8, False), (MOST, False)):
        letter = DeadLetter(read([OTHER] * count), ValueError("no"), 1)
        letter.set_headers([*trace, *letter.headers])
        assert (letter.headers[:2] == trace) is traced
        assert len(letter.headers) == count + len(HEADERS) + (2 if traced else 0)
        assert not isinstance(read(letter.headers), UnreadableRecord)
