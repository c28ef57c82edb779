"""Records for tests of the offset tracker."""

from asyncrevoke.client.model import Record


def record(offset: int) -> Record:
    return Record("orders", 0, offset, 0, 0, None, None)


def records(*offsets: int) -> list[Record]:
    return [record(offset) for offset in offsets]


def dense(first: int, count: int) -> list[Record]:
    return records(*range(first, first + count))
