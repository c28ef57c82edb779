"""Names of the files of a lake folder."""

from __future__ import annotations

import pytest

from asyncrevoke import TopicPartition
from asyncrevoke.cli.sink.file_names import StoredFile, parse_name, parse_temporary_name

UNIQUE = "0123456789abcdef" * 2


@pytest.mark.parametrize("topic", ["orders", "orders-0", "a.b_c-1-00000000000000000007"])
@pytest.mark.parametrize(("partition", "first"), [(0, 0), (12, 2**63 - 1)])
def test_a_name_says_topic_partition_and_first_offset(
    topic: str, partition: int, first: int
) -> None:
    file = StoredFile(TopicPartition(topic, partition), first)
    assert parse_name(file.name) == file
    temporary = file.temporary_name(UNIQUE)
    assert temporary.startswith(".")
    assert not temporary.endswith(".parquet")
    assert parse_temporary_name(temporary) == file
    assert parse_name(temporary) is None
    assert parse_temporary_name(file.name) is None


@pytest.mark.parametrize(
    "name", ["orders.parquet", "orders-0-7.parquet", "a/b-0-" + "0" * 20 + ".parquet", "part-0"]
)
def test_other_names_are_of_no_stored_file(name: str) -> None:
    assert parse_name(name) is None


def test_names_sort_by_offset() -> None:
    names = [StoredFile(TopicPartition("orders", 0), first).name for first in (0, 9, 10, 10**12)]
    assert names == sorted(names)
