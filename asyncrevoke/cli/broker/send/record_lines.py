"""Reads the records of a file or of standard input: one in each line, or one of all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from asyncrevoke.client.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader

# Bytes of a record, at most: brokers' default of socket.request.max.bytes.
LARGEST_RECORD: Final = 100 * 1024 * 1024
# Bytes that are read at once, at most.
_CHUNK: Final = 256 * 1024


class RecordLine(NamedTuple):
    """A record that is line ``number`` of its file, from 1."""

    number: int
    key: bytes | None
    value: bytes | None


def record_lines(source: BufferedReader, separator: bytes | None) -> Iterator[list[RecordLine]]:
    """The records of lines, as soon as there are some; lines end with LF or CRLF.

    With a ``separator``, the key is what comes before its first occurrence. Raises ConfigError for
    a line without it, and for one that is larger than a record may be.
    """
    number, size = 0, 0
    # Of a line whose end was not read yet.
    parts: list[bytes] = []
    while True:
        chunk = source.read1(_CHUNK)
        first, *lines = chunk.split(b"\n")
        parts.append(first)
        size += len(first)
        if size > LARGEST_RECORD:
            raise _too_large(f"line {number + 1}")
        if lines or (not chunk and size):
            lines.insert(0, b"".join(parts))
            parts = [lines.pop()] if chunk else []
            size = sum(map(len, parts))
            yield [
                _record(number + n, line.removesuffix(b"\r"), separator)
                for n, line in enumerate(lines, 1)
            ]
            number += len(lines)
        if not chunk:
            return


def whole_record(source: BufferedReader) -> bytes:
    """All bytes, as one value. Raises ConfigError if they are more than a record may have."""
    parts: list[bytes] = []
    size = 0
    while chunk := source.read1(_CHUNK):
        parts.append(chunk)
        size += len(chunk)
        if size > LARGEST_RECORD:
            raise _too_large("the file")
    return b"".join(parts)


def _record(number: int, line: bytes, separator: bytes | None) -> RecordLine:
    if separator is None:
        return RecordLine(number, None, line)
    key, found, value = line.partition(separator)
    if not found:
        raise ConfigError(f"line {number} has no key: the text of --key-separator is not in it")
    return RecordLine(number, key, value)


def _too_large(what: str) -> ConfigError:
    return ConfigError(f"{what} has more than {LARGEST_RECORD:,} bytes: a record has at most that")
