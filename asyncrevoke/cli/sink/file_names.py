"""Names of the files of a lake folder."""

from __future__ import annotations

import re
from typing import NamedTuple

from asyncrevoke.client.model import TopicPartition

_NAME = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d{1,10})-(?P<first>\d{20})\.parquet")
_TEMPORARY = re.compile(r"\.(?P<name>.+\.parquet)\.[0-9a-f]{32}\.tmp")


class StoredFile(NamedTuple):
    """What the name of a file says: its partition, and where the offsets before it end."""

    partition: TopicPartition
    first: int

    @property
    def name(self) -> str:
        """The name of the file. It sorts by offset."""
        topic, partition = self.partition
        return f"{topic}-{partition}-{self.first:020}.parquet"

    def temporary_name(self, unique: str) -> str:
        """The name while the file is written: readers ignore it, as it begins with a dot and does
        not end with .parquet. ``unique`` has 32 hexadecimal digits."""
        return f".{self.name}.{unique}.tmp"


def parse_name(name: str) -> StoredFile | None:
    """What a file's name says; None if it is not the name of a stored file."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    partition = TopicPartition(found["topic"], int(found["partition"]))
    return StoredFile(partition, int(found["first"]))


def parse_temporary_name(name: str) -> StoredFile | None:
    """What the name of a file says that is or was being written; None for another name."""
    found = _TEMPORARY.fullmatch(name)
    return None if found is None else parse_name(found["name"])
