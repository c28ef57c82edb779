"""Records of a retry topic, which anybody may write who may write to that topic.

An input is a record of message format v2, in a batch of its own. What is promised: its past is read
or is none, and what is read of it can be written to a retry topic or a dead letter topic, and read
again.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, ClassVar

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from wire.frames.corrupt_records import fetched
from wire.frames.raw_batches import Header, raw_batch, record
from wire.frames.response_frames import damage

from asyncrevoke.client.config.topics import is_legal_topic
from asyncrevoke.client.model import UnreadableRecord
from asyncrevoke.client.protocol.records import CorruptBatch, decode_batches
from asyncrevoke.handlers.dead_letters.dead_letter import MAX_COUNT, DeadLetter
from asyncrevoke.handlers.dead_letters.retry_message import (
    _HEADERS,
    RetryHistory,
    RetryMessage,
    due_time_ms,
    retry_history,
)

if TYPE_CHECKING:
    import random

    from asyncrevoke.client.model import Record

_VALUES = (
    None,
    b"",
    b"0",
    b"-1",
    b"-",
    b"--1",
    b"1_0",
    b" 1",
    b"1.5",
    b"1e9",
    b"nan",
    b"9" * 10,
    b"9" * 18,
    b"9" * 19,
    b"-" + b"9" * 19,
    b"9" * 20,
    b"9" * 5000,
    "٣".encode(),
    b"orders",
    b"%d" % MAX_COUNT,
    b"%d" % (MAX_COUNT + 1),
    b"orders\x1b[2J",
    b"a\nb",
    b"\xff",
    "ä".encode(),
    b"x" * 300,
)
_SOUND = (b"orders", b"3", b"42", b"1700000000000", b"ValueError", b"no", b"2", b"1", b"170000000")


class RetryHeaders:
    """What a record of a retry topic says of itself."""

    name: ClassVar[str] = "retry_headers"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def generate(self, random: random.Random) -> bytes:
        """The headers that are written there, some of them changed, missing, twice or damaged."""
        headers: list[Header] = [
            (name.encode(), value) for name, value in zip(_HEADERS, _SOUND, strict=True)
        ]
        for _ in range(random.choice((0, 1, 1, 2, 4))):
            at = random.randrange(len(headers))
            name, _ = headers[at]
            headers[at] = (name, random.choice((*_VALUES, random.randbytes(5))))
        how = random.randrange(12)
        if how == 0:
            del headers[random.randrange(len(headers))]
        elif how == 1:
            headers.insert(random.randrange(len(headers)), random.choice(headers))
        elif how == 2:
            random.shuffle(headers)
        own: list[Header] = [(b"trace", b"1")] * random.choice((0, 0, 1, 9))
        data = record(headers=own + headers)
        return damage(data, random) if random.random() < 0.1 else data

    def check(self, data: bytes) -> None:
        """Read its past, and write it on."""
        (batch,) = decode_batches(fetched(raw_batch(data)), read_committed=False)
        try:
            (read,) = batch.decode("orders.retry", 0, 1, 0)
        except CorruptBatch:
            self.counts["unreadable"] += 1
            return
        if isinstance(read, UnreadableRecord):
            self.counts["unreadable"] += 1
            return
        assert math.isfinite(due_time_ms(read))
        found = retry_history(read)
        if found is None:
            self.counts["none"] += 1
            found = RetryHistory(read, 0, 0)
        else:
            self.counts["pasts"] += 1
            assert found.calls >= 0
            assert found.retry_topic_reads >= 0
            assert found.record.offset >= 0
            assert found.record.partition >= 0
        self._write(DeadLetter(found.record, ValueError("no"), found.calls + 1))
        written = self._write(RetryMessage(found, ValueError("no"), 1.0))
        again = retry_history(written)
        assert again is not None
        reads = min(found.retry_topic_reads + 1, MAX_COUNT)
        assert (again.calls, again.retry_topic_reads) == (found.calls, reads)
        assert is_legal_topic(again.record.topic)
        assert again.record.headers == found.record.headers
        assert (again.record.topic, again.record.offset) == (
            found.record.topic,
            found.record.offset,
        )

    def _write(self, letter: DeadLetter) -> Record:
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 2**20)
        assert builder.append(0, 1, letter.key, letter.value, letter.headers) is not None
        (batch,) = decode_batches(fetched(bytes(builder.build())), read_committed=False)
        (written,) = batch.decode("orders.retry", 0, 1, 0)
        return written
