"""The table that a journal is: its columns, and the words in them. Imports nothing.

Every engine that reads journals takes names from here. A row is one fact of one *session*, which is
one consumer from being entered to being closed.
"""

from __future__ import annotations

import enum
from typing import Final, Literal, NamedTuple, TypeAlias

# 2: logs of frames with checksums, and segments that are a chain.
VERSION: Final = 2


class RowKind(enum.StrEnum):
    """What a row says."""

    BEGIN = "BEGIN"  # of the session; ``facts`` has the options of the consumer
    TOPIC = "TOPIC"  # a handler has this topic; ``facts`` has its name and its order
    START = "START"  # a handler is about to be called (``strict`` only)
    ATTEMPT = "ATTEMPT"  # it was called, and this came of it
    COMMIT = "COMMIT"  # an offset, that of the next record to read
    ASSIGN = "ASSIGN"  # the partition is ours from this position on
    REVOKE_BEGIN = "REVOKE_BEGIN"  # the group wants it back
    WITHDRAWN = "WITHDRAWN"  # it stays ours after all
    RELEASED = "RELEASED"  # it was given up, all committed
    LOST = "LOST"  # it was taken away
    FETCHED = "FETCHED"  # a record batch came from the broker, with this checksum
    RESET = "RESET"  # the position was set: by ``seek``, or by ``auto_offset_reset``
    END = "END"  # of the session; nothing comes after it. ``facts`` has the number of its rows


class CallOutcome(enum.StrEnum):
    """What came of an attempt (and of a commit: ok, or unknown)."""

    OK = "ok"
    SKIPPED = "skipped"
    DEAD_LETTERED = "dead_lettered"  # or sent to a retry topic
    DELIVERED = "delivered"  # commit_mode="manual": what was done with it is not known
    RETRIED = "retried"  # another attempt was due
    PAUSED = "paused"
    STOPPED = "stopped"
    GIVEN_UP = "given_up"  # its partition was to go, or the loop was left
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"  # a commit without an answer


# With these a record is done.
TERMINAL: Final = (
    CallOutcome.OK,
    CallOutcome.SKIPPED,
    CallOutcome.DEAD_LETTERED,
    CallOutcome.DELIVERED,
)

# What is written of the content of records: the checksums of the batches that they came in, or
# hashes of each record.
Content: TypeAlias = Literal["batches", "records"]
ColumnType: TypeAlias = Literal["string", "long", "int"]


class Column(NamedTuple):
    """A column; every column but ``session_id``, ``seq``, ``kind`` and ``at_us`` may be null."""

    name: str
    type: ColumnType


COLUMNS: Final = (
    Column("session_id", "string"),
    # Counts the rows of a session from 0, without a gap.
    Column("seq", "long"),
    Column("kind", "string"),
    # Microseconds since the epoch; of an attempt its end. Within a session they only grow.
    Column("at_us", "long"),
    # Of an attempt; of a batch when it came.
    Column("started_us", "long"),
    Column("group", "string"),
    # Of events of the group and of commits: who we were.
    Column("member", "string"),
    Column("generation", "int"),
    Column("topic", "string"),
    Column("partition", "int"),
    # Of a batch the first one that it was written with.
    Column("offset", "long"),
    # xxhash64(key) as Spark has it, null for a null key. Both hashes are always null but in a
    # session whose BEGIN says ``"content": "records"`` (earlier: nothing of it, or true).
    Column("key_hash", "long"),
    # xxhash64(key, value) as Spark has it.
    Column("record_hash", "long"),
    # Counts the calls for the record from 1; null where a loop took the record in a batch, so that
    # nobody knows when the work on it began and ended.
    Column("attempt", "int"),
    Column("outcome", "string"),
    Column("error_type", "string"),
    Column("error", "string"),
    # JSON.
    Column("facts", "string"),
    # Of a batch: the last offset that it was written with, the records that it holds, and the
    # CRC-32C of its header (KIP-98).
    Column("last_offset", "long"),
    Column("records", "int"),
    Column("checksum", "long"),
)

# Offsets of one partition that share a fingerprint.
BUCKET: Final = 32_768
# Of Spark's xxhash64.
HASH_SEED: Final = 42
