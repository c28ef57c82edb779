"""The records of lines, however they are read."""

from __future__ import annotations

import io
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrevoke.cli.broker.send import record_lines as lines_module
from asyncrevoke.cli.broker.send.record_lines import RecordLine, record_lines, whole_record
from asyncrevoke.errors import ConfigError


class Pieces(io.BytesIO):
    """Returns these pieces, one at a time."""

    def __init__(self, pieces: list[bytes]) -> None:
        super().__init__()
        self._pieces = [piece for piece in pieces if piece]

    def read1(self, size: int | None = -1, /) -> bytes:
        assert size is not None
        return self._pieces.pop(0) if self._pieces else b""


def lines(*pieces: bytes, separator: bytes | None = None) -> list[RecordLine]:
    return [line for batch in record_lines(read(*pieces), separator) for line in batch]


def read(*pieces: bytes) -> io.BufferedReader:
    return cast("io.BufferedReader", Pieces(list(pieces)))


def test_each_line_is_a_record_without_its_end() -> None:
    assert lines(b"a\nb\r\n\nc") == [
        RecordLine(1, None, b"a"),
        RecordLine(2, None, b"b"),
        RecordLine(3, None, b""),
        RecordLine(4, None, b"c"),
    ]
    assert lines(b"") == []
    assert lines(b"\n") == [RecordLine(1, None, b"")]
    assert lines(b"a\r") == [RecordLine(1, None, b"a")]


@given(st.lists(st.text("ab\n", max_size=6).map(str.encode), min_size=2, max_size=8))
def test_where_reads_end_does_not_matter(pieces: list[bytes]) -> None:
    text = b"".join(pieces)
    expected = text.split(b"\n")
    if not expected[-1]:
        expected.pop()
    found = lines(*pieces)
    assert [line.value for line in found] == expected
    assert [line.number for line in found] == list(range(1, len(expected) + 1))


def test_a_line_is_returned_as_soon_as_it_is_read() -> None:
    source = read(b"a\nb", b"c\n", b"d")
    batches = record_lines(source, None)
    assert [line.value for line in next(batches)] == [b"a"]
    assert [line.value for line in next(batches)] == [b"bc"]
    assert [line.value for line in next(batches)] == [b"d"]
    assert list(batches) == []


def test_the_key_is_what_comes_before_the_separator() -> None:
    assert lines(b"k\tv\tw\n\tx", separator=b"\t") == [
        RecordLine(1, b"k", b"v\tw"),
        RecordLine(2, b"", b"x"),
    ]
    with pytest.raises(ConfigError, match="line 2 has no key"):
        lines(b"k:v\nw\n", separator=b":")


def test_a_line_or_a_file_that_no_record_can_have_is_not_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines_module, "LARGEST_RECORD", 10)
    pieces = [b"short\n", b"123456", b"123456", b"never"]
    source = read(*pieces)
    with pytest.raises(ConfigError, match="line 2 has more than 10 bytes"):
        list(record_lines(source, None))
    assert source.read1(1) == b"never"
    source = read(*pieces[1:])
    with pytest.raises(ConfigError, match="the file has more than 10 bytes"):
        whole_record(source)
    assert source.read1(1) == b"never"
    assert whole_record(read(b"a\n", b"b")) == b"a\nb"
