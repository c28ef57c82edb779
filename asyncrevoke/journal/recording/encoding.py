"""Encodes entries as batches of rows, and batches as frames of a log, in the order of the entries.

Repeated values of a batch (kind, topic, outcome, times) are written once.
"""

from __future__ import annotations

import json
import struct
from array import array
from itertools import chain, groupby, repeat
from typing import TYPE_CHECKING, cast

from asyncrevoke.client.printable import error_text
from asyncrevoke.journal.format.columns import (
    ColumnArrays,
    RowBatch,
    Runs,
    little,
    plain,
    put_plain,
    runs,
)
from asyncrevoke.journal.format.frames import Frame, frames
from asyncrevoke.journal.format.hashing import (
    key_hashes,
    numbers_of,
    plain_hashes,
    record_hashes,
    signed_key_hashes,
)
from asyncrevoke.journal.format.schema import HASH_SEED, CallOutcome, RowKind
from asyncrevoke.journal.recording.entries import (
    Attempts,
    EncodedRows,
    Entry,
    Fact,
    LoopTurn,
    Packed,
    Queue,
    ReceivedBatches,
    Results,
    Starts,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from asyncrevoke.client.model import Record

# Rows of attempts in a batch, at least. Larger batches hold the interpreter lock longer.
_ENOUGH = 2048
_ENOUGH_PACKED = 16_384
_LONGEST_ERROR = 1024


def encode(entries: Sequence[Entry], seq: int, *, hashed: bool = True) -> Iterator[Frame]:
    """Encode these entries. The first row has the number ``seq``."""
    for some in _together(entries):
        first = some[0]
        if isinstance(first, Attempts):
            rows, columns = _attempts(cast("list[Attempts]", some), hashed)
        elif isinstance(first, Starts):
            rows, columns = _starts(cast("list[Starts]", some), hashed)
        elif isinstance(first, Packed):
            rows, columns = _packed_attempts(cast("list[Packed]", some), hashed)
        elif isinstance(first, Results):
            rows, columns = _results(cast("list[Results]", some))
        elif isinstance(first, ReceivedBatches):
            rows, columns = _received_batches(cast("list[ReceivedBatches]", some))
        else:
            rows, columns = _facts(cast("list[Fact]", some))
        yield from frames(RowBatch(seq, rows, columns))
        seq += rows


def encode_last(queue: Queue, *, hashed: bool) -> None:
    """Encode the entries at the end of the queue. The thread that appends them calls this while the
    records are in the processor's cache; another thread may take from the other end meanwhile."""
    taken: list[tuple[int, Entry]] = []
    while True:
        try:
            item = queue.pop()
        except IndexError:
            break
        if isinstance(item[1], EncodedRows):
            queue.append(item)
            break
        taken.append(cast("tuple[int, Entry]", item))
    if taken:
        taken.reverse()
        seq = taken[0][0]
        entries = [entry for _, entry in taken]
        queue.append((seq, EncodedRows(list(encode(entries, seq, hashed=hashed)))))


def pack(
    records: Sequence[Record], turns: Sequence[LoopTurn], *, hashed: bool, one_topic: bool
) -> Packed | None:
    """Successful first attempts as columns. None if they are of several topics, or a key or value
    is null. ``one_topic``: all records are known to be of one topic."""
    rows = len(records)
    topic = records[0].topic
    if not one_topic and [record.topic for record in records].count(topic) != rows:
        return None
    key_column = hashes = b""
    if hashed:
        found = _hashes_of(records)
        if found is None:
            return None
        key_column, hashes = found
    return Packed(
        rows,
        topic,
        turns,
        array("i", [record.partition for record in records]),
        array("q", [record.offset for record in records]),
        key_column,
        hashes,
    )


def _hashes_of(records: Sequence[Record]) -> tuple[bytes, bytes] | None:
    """The hashes of the keys, empty if all keys are null, and of the records."""
    rows = len(records)
    keys = [record.key for record in records]
    of_keys: Iterable[int] = repeat(HASH_SEED)
    key_column = b""
    if keys[0] is not None:
        found = key_hashes(keys)
        if found is None:
            return None
        of_keys, key_column = found, struct.pack(f"<{rows}Q", *found)
    elif keys.count(None) != rows:
        return None
    hashes = plain_hashes([record.value for record in records], of_keys)
    return None if hashes is None else (key_column, hashes)


def _alike(entry: Entry) -> object:
    """Entries with the same result may share a batch. In packed entries all keys are null, or
    none."""
    return (Packed, not entry.key_hashes) if isinstance(entry, Packed) else type(entry)


def _together(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    for kind, group in groupby(entries, _alike):
        if kind is Fact or kind is ReceivedBatches or kind is Results:
            yield list(group)
            continue
        some: list[Entry] = []
        rows = 0
        enough = _ENOUGH if kind is Attempts else _ENOUGH_PACKED
        for entry in group:
            some.append(entry)
            rows += rows_of(entry)
            if rows >= enough:
                yield some
                some, rows = [], 0
        if some:
            yield some


def rows_of(entry: Entry) -> int:
    """The number of rows of an entry."""
    if isinstance(entry, Packed):
        return entry.rows
    if isinstance(entry, ReceivedBatches):
        return len(entry.batches)
    if isinstance(entry, Results):
        return len(entry.results)
    return len(entry.records) if isinstance(entry, (Attempts, Starts)) else 1


def _packed_attempts(entries: list[Packed], hashed: bool) -> tuple[int, ColumnArrays]:
    sizes = [entry.rows for entry in entries]
    rows = sum(sizes)
    turns = list(chain.from_iterable([entry.turns for entry in entries]))
    columns = ColumnArrays(
        {
            "partition": b"".join([little(entry.partitions) for entry in entries]),
            "offset": b"".join([little(entry.offsets) for entry in entries]),
        },
        {
            "at_us": runs([turn.at for turn in turns], [turn.rows for turn in turns]),
            "kind": ([RowKind.ATTEMPT.value], [rows]),
            "topic": runs([entry.topic for entry in entries], sizes),
            "attempt": ([1], [rows]),
            "outcome": ([CallOutcome.OK.value], [rows]),
        },
    )
    _put_started(columns, turns)
    if hashed:
        hashes = b"".join([entry.record_hashes for entry in entries])
        columns.plain["record_hash"] = little(numbers_of(hashes))
        if entries[0].key_hashes:
            columns.plain["key_hash"] = b"".join([entry.key_hashes for entry in entries])
    return rows, columns


def _put_started(columns: ColumnArrays, turns: Sequence[LoopTurn]) -> None:
    times = [_one_time(turn.started) for turn in turns]
    if None not in times:
        columns.runs["started_us"] = runs(times, [turn.rows for turn in turns])
        return
    started = array("q")
    for rows, began, _ in turns:
        started += array("q", [began]) * rows if isinstance(began, int) else array("q", began)
    columns.plain["started_us"] = little(started)


def _one_time(started: int | Sequence[int]) -> int | None:
    """The common start of all calls, or None."""
    if isinstance(started, int):
        return started
    return started[0] if started.count(started[0]) == len(started) else None


def _attempts(entries: list[Attempts], hashed: bool) -> tuple[int, ColumnArrays]:
    sizes, columns = _of_records(entries, RowKind.ATTEMPT, hashed)
    columns.runs["outcome"] = runs([entry.outcome.value for entry in entries], sizes)
    if any(entry.attempt is not None for entry in entries):
        columns.runs["attempt"] = runs([entry.attempt for entry in entries], sizes)
    turns = [LoopTurn(len(entry.records), entry.started, entry.at) for entry in entries]
    _put_started(columns, turns)
    errors = [entry.error for entry in entries]
    if any(error is not None for error in errors):
        columns.runs["error_type"] = runs([_type_of(error) for error in errors], sizes)
        columns.runs["error"] = runs([_text_of(error) for error in errors], sizes)
    return sum(sizes), columns


def _starts(entries: list[Starts], hashed: bool) -> tuple[int, ColumnArrays]:
    sizes, columns = _of_records(entries, RowKind.START, hashed)
    return sum(sizes), columns


def _of_records(
    entries: list[Attempts] | list[Starts], kind: RowKind, hashed: bool
) -> tuple[list[int], ColumnArrays]:
    """The number of records of each entry, and the columns that attempts and starts have."""
    sizes = [len(entry.records) for entry in entries]
    records = list(chain.from_iterable([entry.records for entry in entries]))
    columns = ColumnArrays(
        {
            "partition": plain("partition", [record.partition for record in records]),
            "offset": plain("offset", [record.offset for record in records]),
        },
        {
            "kind": ([kind.value], [len(records)]),
            "topic": _topics([record.topic for record in records]),
            "at_us": runs([entry.at for entry in entries], sizes),
        },
    )
    if hashed:
        keys = [record.key for record in records]
        of_keys = key_hashes(keys)
        values = [record.value for record in records]
        columns.plain["record_hash"] = little(record_hashes(keys, values, of_keys))
        if of_keys is None:
            put_plain(columns, "key_hash", signed_key_hashes(keys))
        else:
            columns.plain["key_hash"] = plain("key_hash", of_keys, unsigned=True)
    return sizes, columns


def _received_batches(entries: list[ReceivedBatches]) -> tuple[int, ColumnArrays]:
    sizes = [len(entry.batches) for entry in entries]
    batches = list(chain.from_iterable([entry.batches for entry in entries]))
    ones = [1] * len(batches)
    columns = ColumnArrays(
        {
            "partition": plain("partition", [batch.partition for batch in batches]),
            "offset": plain("offset", [batch.first for batch in batches]),
            "last_offset": plain("last_offset", [batch.last for batch in batches]),
            "records": plain("records", [batch.records for batch in batches]),
            "checksum": plain("checksum", [batch.checksum for batch in batches]),
        },
        {
            "kind": ([RowKind.FETCHED.value], [len(batches)]),
            "topic": _topics([batch.topic for batch in batches]),
            "at_us": runs([entry.at for entry in entries], sizes),
            "started_us": runs([batch.came for batch in batches], ones),
        },
    )
    return len(batches), columns


def _results(entries: list[Results]) -> tuple[int, ColumnArrays]:
    sizes = [len(entry.results) for entry in entries]
    results = list(chain.from_iterable([entry.results for entry in entries]))
    columns = ColumnArrays(
        {
            "partition": plain("partition", [result.record.partition for result in results]),
            "offset": plain("offset", [result.record.offset for result in results]),
            "last_offset": plain("last_offset", [result.offset for result in results]),
            "records": plain("records", [result.to.partition for result in results]),
        },
        {
            "kind": ([RowKind.RESULT.value], [len(results)]),
            "topic": _topics([result.record.topic for result in results]),
            "at_us": runs([entry.at for entry in entries], sizes),
            "checksum": runs([entry.number for entry in entries], sizes),
            "facts": _topics([json.dumps({"topic": result.to.topic}) for result in results]),
        },
    )
    return len(results), columns


def _facts(entries: list[Fact]) -> tuple[int, ColumnArrays]:
    ones = [1] * len(entries)
    columns = ColumnArrays(
        {},
        {
            "kind": runs([entry.kind.value for entry in entries], ones),
            "at_us": runs([entry.at for entry in entries], ones),
        },
    )
    # The other fields have the names of their columns.
    for name in Fact._fields[2:]:
        values = [getattr(entry, name) for entry in entries]
        if any(value is not None for value in values):
            columns.runs[name] = runs(values, ones)
    return len(entries), columns


def _topics(topics: list[str]) -> Runs:
    if topics.count(topics[0]) == len(topics):
        return [topics[0]], [len(topics)]
    return runs(topics, repeat(1, len(topics)))


def _type_of(error: BaseException | None) -> str | None:
    return None if error is None else type(error).__qualname__


def _text_of(error: BaseException | None) -> str | None:
    if error is None:
        return None
    # Lone surrogates cannot be encoded.
    return error_text(error, _LONGEST_ERROR).encode("utf-8", "replace").decode()
