"""Rows as Arrow record batches, in the order in which they happened.

What a batch repeats (kind, topic, outcome, times ...) is run-end encoded, so that a row takes some
40 bytes and a column that holds one value costs nothing per row. What a whole file repeats (session
and group) stands in its schema's metadata. :func:`decode` gives the plain columns of
``schema.COLUMNS``.
"""

from __future__ import annotations

import struct
from array import array
from functools import lru_cache
from itertools import accumulate, chain, groupby, repeat
from typing import TYPE_CHECKING, Any, cast

from asyncrevoke.journal.arrow import Array, Buffer, DataType, RecordBatch, Schema, pa, pc
from asyncrevoke.journal.entries import Attempts, Batches, Entry, Fact, Notes, Packed, Turn
from asyncrevoke.journal.hashing import (
    key_hashes,
    numbers_of,
    plain_hashes,
    record_hashes,
    signed_key_hashes,
)
from asyncrevoke.journal.schema import COLUMNS, HASH_SEED, Kind, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from asyncrevoke.journal.entries import Queue
    from asyncrevoke.model import Record

_TYPES: dict[str, Any] = {"string": pa.string(), "long": pa.int64(), "int": pa.int32()}

SCHEMA = pa.schema([pa.field(column.name, _TYPES[column.type]) for column in COLUMNS])

_OF_FILES = ("session_id", "group")
_PLAIN = ("seq", "partition", "offset", "key_hash", "record_hash")
_HASHES = ("key_hash", "record_hash")


def _log_schema(plain: Sequence[str]) -> Schema:
    return pa.schema(
        [
            field
            if field.name in plain
            else pa.field(field.name, pa.run_end_encoded(pa.int32(), field.type))
            for field in SCHEMA
            if field.name not in _OF_FILES
        ]
    )


# By whether there are hashes: columns without a value take nothing if they are in runs.
_LOG_SCHEMAS = {
    True: _log_schema(_PLAIN),
    False: _log_schema([name for name in _PLAIN if name not in _HASHES]),
}
_TYPE_OF = {column.name: column.type for column in COLUMNS}
_RUNS_OF = {name: pa.run_end_encoded(pa.int32(), kind) for name, kind in _TYPES.items()}
# Rows of attempts in one batch, at least: more hold the interpreter longer, and each batch costs as
# much as a thousand rows.
_ENOUGH = 2048
_ENOUGH_PACKED = 16_384
_LONGEST_ERROR = 1024


def log_schema(session_id: str, group: str | None, *, hashed: bool = True) -> Schema:
    """The schema of a session's log, with hashes of records or without."""
    known = {"session_id": session_id} | ({} if group is None else {"group": group})
    return _LOG_SCHEMAS[hashed].with_metadata(known)


def encode(entries: Sequence[Entry], seq: int, *, hashed: bool = True) -> Iterator[RecordBatch]:
    """The rows of these entries, the first of which has the number ``seq``."""
    for batch in _batches(entries):
        first = batch[0]
        if isinstance(first, Attempts):
            encoded = _attempts(cast("list[Attempts]", batch), seq, hashed)
        elif isinstance(first, Packed):
            encoded = _packed_attempts(cast("list[Packed]", batch), seq, hashed)
        elif isinstance(first, Notes):
            encoded = _notes(cast("list[Notes]", batch), seq, hashed)
        else:
            encoded = _facts(cast("list[Fact]", batch), seq, hashed)
        seq += encoded.num_rows
        yield encoded


def encode_last(queue: Queue, *, hashed: bool) -> None:
    """Encode what has been put last. To be called by who puts it, while the records are in the
    processor's cache: somebody else may take from the other end meanwhile."""
    taken: list[tuple[int, Entry]] = []
    while True:
        try:
            item = queue.pop()
        except IndexError:
            break
        if isinstance(item[1], Batches):
            queue.append(item)
            break
        taken.append(cast("tuple[int, Entry]", item))
    if taken:
        taken.reverse()
        seq = taken[0][0]
        entries = [entry for _, entry in taken]
        queue.append((seq, Batches(list(encode(entries, seq, hashed=hashed)))))


def pack(
    records: Sequence[Record], turns: Sequence[Turn], *, hashed: bool, one_topic: bool
) -> Packed | None:
    """Attempts that went well at first, taken apart; None if they are of several topics, or some
    key or a value is null. ``one_topic``: nobody has to look."""
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
    """Of the keys, if they have any, and of the records."""
    rows = len(records)
    keys = [record.key for record in records]
    of_keys: Iterable[int] = repeat(HASH_SEED)
    key_column = b""
    if keys[0] is not None:
        found = key_hashes(keys)
        if found is None:
            return None
        of_keys, key_column = found, struct.pack(f"{rows}Q", *found)
    elif keys.count(None) != rows:
        return None
    hashes = plain_hashes([record.value for record in records], of_keys)
    return None if hashes is None else (key_column, hashes)


def _alike(entry: Entry) -> object:
    """Entries that may be in one batch. What is packed has all keys, or none."""
    return (Packed, not entry.key_hashes) if isinstance(entry, Packed) else type(entry)


def _batches(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    for kind, group in groupby(entries, _alike):
        if kind is Fact or kind is Notes:
            yield list(group)
            continue
        batch: list[Entry] = []
        rows = 0
        enough = _ENOUGH if kind is Attempts else _ENOUGH_PACKED
        for entry in group:
            batch.append(entry)
            rows += rows_of(entry)
            if rows >= enough:
                yield batch
                batch, rows = [], 0
        if batch:
            yield batch


def rows_of(entry: Entry) -> int:
    """How many rows it is."""
    if isinstance(entry, Packed):
        return entry.rows
    if isinstance(entry, Notes):
        return len(entry.batches)
    return len(entry.records) if isinstance(entry, Attempts) else 1


def _packed_attempts(entries: list[Packed], seq: int, hashed: bool) -> RecordBatch:
    sizes = [entry.rows for entry in entries]
    rows = sum(sizes)
    turns = list(chain.from_iterable([entry.turns for entry in entries]))
    columns: dict[str, Array] = {
        "seq": _numbers(seq, rows),
        "at_us": _runs("at_us", [turn.at for turn in turns], [turn.rows for turn in turns]),
        "started_us": _started(turns),
        "partition": _joined(pa.int32(), [entry.partitions for entry in entries], rows),
        "offset": _joined(pa.int64(), [entry.offsets for entry in entries], rows),
        "kind": _runs("kind", [Kind.ATTEMPT], [rows]),
        "topic": _runs("topic", [entry.topic for entry in entries], sizes),
        "attempt": _runs("attempt", [1], [rows]),
        "outcome": _runs("outcome", [Outcome.OK], [rows]),
    }
    if hashed:
        hashes = b"".join([entry.record_hashes for entry in entries])
        columns["record_hash"] = _longs(numbers_of(hashes))
        if entries[0].key_hashes:
            of_keys = [entry.key_hashes for entry in entries]
            columns["key_hash"] = _joined(pa.int64(), of_keys, rows)
    return _batch(columns, rows, hashed)


def _started(turns: Sequence[Turn]) -> Array:
    if all(isinstance(turn.started, int) for turn in turns):
        times = [turn.started for turn in turns]
        return _runs("started_us", times, [turn.rows for turn in turns])
    started = array("q")
    for rows, began, _ in turns:
        started += array("q", [began]) * rows if isinstance(began, int) else array("q", began)
    return _runs_in(_longs(started))


def _joined(kind: DataType, parts: Sequence[bytes | array[int]], rows: int) -> Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(b"".join(parts))])


def _runs_in(numbers: Array) -> Array:
    return pc.call_function("run_end_encode", [numbers])


def _attempts(entries: list[Attempts], seq: int, hashed: bool) -> RecordBatch:
    sizes = [len(entry.records) for entry in entries]
    records = list(chain.from_iterable([entry.records for entry in entries]))
    turns = [Turn(len(entry.records), entry.started, entry.at) for entry in entries]
    rows = len(records)
    errors = [entry.error for entry in entries]
    columns: dict[str, Array] = {
        "seq": _numbers(seq, rows),
        "at_us": _runs("at_us", [entry.at for entry in entries], sizes),
        "started_us": _started(turns),
        "partition": _packed(pa.int32(), "i", [record.partition for record in records]),
        "offset": _packed(pa.int64(), "q", [record.offset for record in records]),
        "kind": _runs("kind", [Kind.ATTEMPT], [rows]),
        "topic": _topics([record.topic for record in records]),
        "attempt": _runs("attempt", [entry.attempt for entry in entries], sizes),
        "outcome": _runs("outcome", [entry.outcome for entry in entries], sizes),
    }
    if hashed:
        columns |= _hash_columns(records)
    if any(errors):
        columns["error_type"] = _runs("error_type", [_type_of(e) for e in errors], sizes)
        columns["error"] = _runs("error", [_text_of(e) for e in errors], sizes)
    return _batch(columns, rows, hashed)


def _hash_columns(records: Sequence[Record]) -> dict[str, Array]:
    keys = [record.key for record in records]
    of_keys = key_hashes(keys)
    hashes = record_hashes(keys, [record.value for record in records], of_keys)
    if of_keys is None:
        key_column = _numbers_or_null(signed_key_hashes(keys), "q")
    else:
        key_column = _packed(pa.int64(), "Q", of_keys)
    return {"key_hash": key_column, "record_hash": _longs(hashes)}


def _notes(entries: list[Notes], seq: int, hashed: bool) -> RecordBatch:
    sizes = [len(entry.batches) for entry in entries]
    rows = sum(sizes)
    of_all = chain.from_iterable([entry.batches for entry in entries])
    topics, partitions, first, last, records, checksums, came = map(list, zip(*of_all, strict=True))
    columns: dict[str, Array] = {
        "seq": _numbers(seq, rows),
        "kind": _runs("kind", [Kind.FETCHED], [rows]),
        "at_us": _runs("at_us", [entry.at for entry in entries], sizes),
        "started_us": _runs_in(_packed(pa.int64(), "q", cast("list[int]", came))),
        "topic": _topics(cast("list[str]", topics)),
        "partition": _packed(pa.int32(), "i", cast("list[int]", partitions)),
        "offset": _packed(pa.int64(), "q", cast("list[int]", first)),
        "last_offset": _runs_in(_packed(pa.int64(), "q", cast("list[int]", last))),
        "records": _runs_in(_packed(pa.int32(), "i", cast("list[int]", records))),
        "checksum": _runs_in(_packed(pa.int64(), "q", cast("list[int]", checksums))),
    }
    return _batch(columns, rows, hashed)


def _facts(entries: list[Fact], seq: int, hashed: bool) -> RecordBatch:
    rows = len(entries)
    ones = [1] * rows
    columns: dict[str, Array] = {
        "seq": _numbers(seq, rows),
        "at_us": _runs_in(_longs(array("q", [entry.at for entry in entries]))),
        "partition": _numbers_or_null([entry.partition for entry in entries], "i"),
        "offset": _numbers_or_null([entry.offset for entry in entries], "q"),
    }
    if hashed:
        records = [entry.record for entry in entries]
        keys = [None if record is None else record.key for record in records]
        columns["key_hash"] = _numbers_or_null(signed_key_hashes(keys), "q")
        columns["record_hash"] = _numbers_or_null(
            [None if r is None else record_hashes([r.key], [r.value], None)[0] for r in records],
            "Q",
        )
    for name in ("kind", "topic", "member", "generation", "outcome", "facts"):
        columns[name] = _runs(name, [getattr(entry, name) for entry in entries], ones)
    return _batch(columns, rows, hashed)


def _batch(columns: dict[str, Array], rows: int, hashed: bool) -> RecordBatch:
    schema = _LOG_SCHEMAS[hashed]
    arrays = [
        columns[field.name]
        if field.name in columns
        else _no_value(field.name, rows)
        if pa.types.is_run_end_encoded(field.type)
        else pa.nulls(rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _longs(numbers: array[int]) -> Array:
    """Without copying them; unsigned ones become signed."""
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def _packed(kind: DataType, code: str, numbers: Sequence[int]) -> Array:
    """Faster than an array of them, which takes them one by one."""
    packed = pa.py_buffer(struct.pack(f"{len(numbers)}{code}", *numbers))
    return pa.Array.from_buffers(kind, len(numbers), [None, packed])


# What packs them, and the type that they are read as: unsigned ones become signed.
_CODES: dict[str, DataType] = {"i": pa.int32(), "q": pa.int64(), "Q": pa.int64()}


# Arrays are made of buffers everywhere here: pa.array() imports pandas, if there is one, as soon as
# it is given a list, and so do others; that takes 0.3 s.


def _numbers_or_null(numbers: Sequence[int | None], code: str) -> Array:
    packed = struct.pack(f"{len(numbers)}{code}", *[number or 0 for number in numbers])
    buffers = [_validity(numbers), pa.py_buffer(packed)]
    return pa.Array.from_buffers(_CODES[code], len(numbers), buffers)


def _texts(texts: Sequence[str | None]) -> Array:
    encoded = [b"" if text is None else text.encode("utf-8", "replace") for text in texts]
    ends = [0, *accumulate(map(len, encoded))]
    buffers = [
        _validity(texts),
        pa.py_buffer(struct.pack(f"{len(ends)}i", *ends)),
        pa.py_buffer(b"".join(encoded)),
    ]
    return pa.Array.from_buffers(pa.string(), len(texts), buffers)


def _validity(values: Sequence[object]) -> Buffer | None:
    if not any(value is None for value in values):
        return None
    bits = "".join("0" if value is None else "1" for value in reversed(values))
    return pa.py_buffer(int(bits, 2).to_bytes((len(values) + 7) // 8, "little"))


def _numbers(first: int, rows: int) -> Array:
    return pc.call_function("add", [_first_numbers(rows), pa.scalar(first, pa.int64())])


@lru_cache(256)
def _first_numbers(rows: int) -> Array:
    return _longs(array("q", range(rows)))


@lru_cache(256)
def _no_value(name: str, rows: int) -> Array:
    return _runs(name, [None], [rows])


def _runs(name: str, values: Iterable[object], sizes: Sequence[int]) -> Array:
    ends: list[int] = []
    kept: list[object] = []
    end = 0
    for value, size in zip(values, sizes, strict=True):
        end += size
        if kept and kept[-1] == value:
            ends[-1] = end
        elif size:
            kept.append(value)
            ends.append(end)
    if _TYPE_OF[name] == "string":
        typed = _texts(cast("list[str | None]", kept))
    else:
        code = "i" if _TYPE_OF[name] == "int" else "q"
        typed = _numbers_or_null(cast("list[int | None]", kept), code)
    return pa.RunEndEncodedArray.from_buffers(
        _RUNS_OF[_TYPE_OF[name]],
        end,
        [None],
        null_count=0,
        children=[_packed(pa.int32(), "i", ends), typed],
    )


def _topics(topics: list[str]) -> Array:
    if topics.count(topics[0]) == len(topics):
        return _runs("topic", topics[:1], [len(topics)])
    return _runs("topic", topics, [1] * len(topics))


def _type_of(error: BaseException | None) -> str | None:
    return None if error is None else type(error).__qualname__


def _text_of(error: BaseException | None) -> str | None:
    return None if error is None else str(error)[:_LONGEST_ERROR]


def decode(batch: RecordBatch, metadata: Mapping[bytes, bytes] | None) -> RecordBatch:
    """The plain columns of a batch of a log."""
    known = metadata or {}
    arrays: list[Array] = []
    for field in SCHEMA:
        if field.name in _OF_FILES:
            value = known.get(field.name.encode())
            text = None if value is None else value.decode()
            arrays.append(pa.repeat(pa.scalar(text, pa.string()), batch.num_rows))
        else:
            # Which columns there are, and which of them have runs, was different once.
            if batch.schema.get_field_index(field.name) < 0:
                arrays.append(pa.nulls(batch.num_rows, field.type))
                continue
            column = batch.column(field.name)
            if pa.types.is_run_end_encoded(column.type):
                column = pc.call_function("run_end_decode", [column])
            arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
