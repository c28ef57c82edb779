"""The table of a journal: its columns, and the values of ``kind`` and ``outcome``.

DuckDB, Spark and Arrow use these names. Each row belongs to one *session*: one consumer, from
entering to closing.
"""

from __future__ import annotations

import enum
import json
import math
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeAlias, cast

# Version 2 has logs of frames with checksums, and segments with the digest of the segment before.
VERSION: Final = 2


class RowKind(enum.StrEnum):
    """What a row records."""

    BEGIN = "BEGIN"  # the first row of a session; ``facts`` has the options of the consumer
    TOPIC = "TOPIC"  # a handler reads this topic; ``facts`` has its name and its order
    START = "START"  # a handler is about to be called (``strict`` only)
    ATTEMPT = "ATTEMPT"  # a call of a handler has ended with ``outcome``
    COMMIT = "COMMIT"  # a commit; ``offset`` is that of the next record to read
    ASSIGN = "ASSIGN"  # the partition was assigned; reading begins at ``offset``
    REVOKE_BEGIN = "REVOKE_BEGIN"  # the revocation of the partition has begun
    WITHDRAWN = "WITHDRAWN"  # the revocation was withdrawn: the partition stays assigned
    RELEASED = "RELEASED"  # the partition was released after its final commit
    LOST = "LOST"  # the partition was lost: no final commit was possible
    FETCHED = "FETCHED"  # the broker returned a record batch with this checksum
    RESULT = "RESULT"  # a result of the record was written in a transaction, which may be aborted
    SKIPPED = "SKIPPED"  # ``facts`` has the ranges of the completion map, which were not delivered
    RESET = "RESET"  # the position was set: by ``seek``, or by ``auto_offset_reset``
    # Of a share group. Each is about the offsets from ``offset`` to ``last_offset``.
    ACQUIRED = "ACQUIRED"  # the broker delivered them to this member, under a lock
    ACCEPT = "ACCEPT"  # an acknowledgement: they are processed
    RELEASE = "RELEASE"  # an acknowledgement: deliver them again
    REJECT = "REJECT"  # an acknowledgement: do not deliver them again
    LOCK_LOST = "LOCK_LOST"  # their locks were lost; ``facts`` says why
    END = "END"  # the last row of a session; ``facts`` has the number of rows


class CallOutcome(enum.StrEnum):
    """The outcome of an attempt, of a commit (``ok`` or ``unknown``), or of an acknowledgement
    (``ok``, ``refused`` or ``unknown``)."""

    OK = "ok"
    SKIPPED = "skipped"
    DEAD_LETTERED = "dead_lettered"
    SENT_TO_RETRY_TOPIC = "sent_to_retry_topic"
    DELIVERED = "delivered"  # commit_mode="manual": delivered, and perhaps processed
    RETRIED = "retried"  # another attempt was due
    PAUSED = "paused"
    STOPPED = "stopped"
    GIVEN_UP = "given_up"  # not completed: its partition was revoked, or the loop ended
    CANCELLED = "cancelled"
    RELEASED = "released"  # a share group delivers it again
    REJECTED = "rejected"  # a share group does not deliver it again
    REFUSED = "refused"  # an acknowledgement that the broker has not applied
    UNKNOWN = "unknown"  # a commit or an acknowledgement without a response


# A record with one of these outcomes is completed.
TERMINAL: Final = (
    CallOutcome.OK,
    CallOutcome.SKIPPED,
    CallOutcome.DEAD_LETTERED,
    CallOutcome.SENT_TO_RETRY_TOPIC,
    CallOutcome.DELIVERED,
    CallOutcome.REJECTED,
)

# What a journal stores of keys and values: checksums of record batches, or hashes of records.
Content: TypeAlias = Literal["batches", "records"]
ColumnType: TypeAlias = Literal["string", "long", "int"]


class Column(NamedTuple):
    """A column; every column but ``session_id``, ``seq``, ``kind`` and ``at_us`` may be null."""

    name: str
    type: ColumnType


COLUMNS: Final = (
    Column("session_id", "string"),
    # The number of the row in its session, from 0 without a gap.
    Column("seq", "long"),
    Column("kind", "string"),
    # Microseconds since the epoch, never decreasing within a session. For an attempt, its end.
    Column("at_us", "long"),
    # When an attempt began, a record batch was received, or a commit or acknowledgement was sent.
    Column("started_us", "long"),
    Column("group", "string"),
    # For commits and changes of the assignment: the member id and generation (or member epoch).
    Column("member", "string"),
    Column("generation", "int"),
    Column("topic", "string"),
    Column("partition", "int"),
    # For a record batch: its base offset.
    Column("offset", "long"),
    # xxhash64(key) of Spark; null for a null key. Both hashes are null unless the BEGIN row has
    # ``"content": "records"``.
    Column("key_hash", "long"),
    # xxhash64(key, value) of Spark.
    Column("record_hash", "long"),
    # The number of the call for this record, from 1. Null for records of a loop, for which the
    # begin and end of processing are unknown.
    Column("attempt", "int"),
    Column("outcome", "string"),
    Column("error_type", "string"),
    Column("error", "string"),
    # JSON.
    Column("facts", "string"),
    # For a record batch: its last offset, its number of records, and the CRC-32C in its header. For
    # a result: its own offset (-1: not known) and partition, and the number of the transaction in
    # its session; ``facts`` has its topic. For acquired offsets: the last one, the number of the
    # delivery, and the number after which the group delivers no record again (null: not known). For
    # acknowledgements and lost locks: the last offset; ``error_type`` is the error of the broker.
    Column("last_offset", "long"),
    Column("records", "int"),
    Column("checksum", "long"),
)

# The number of consecutive offsets of a partition that share a fingerprint.
BUCKET: Final = 32_768
# The seed of Spark's xxhash64.
HASH_SEED: Final = 42
# Limit in characters. Decoded JSON takes up to forty times as much memory.
_LONGEST_FACTS = 2**20


def facts_of(text: str | None) -> dict[str, Any]:
    """The facts of a row, which are untrusted. Empty if they are not a JSON object, too long, or
    have a number that is not finite or has more than 64 bits."""
    if text is not None and len(text) > _LONGEST_FACTS:
        return {}
    try:
        found: object = json.loads(
            text or "{}", parse_int=_integer, parse_float=_finite, parse_constant=_no_constant
        )
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _integer(text: str) -> int:
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError("an integer of more than 64 bits")
    return number


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number beyond all floats")
    return number


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
