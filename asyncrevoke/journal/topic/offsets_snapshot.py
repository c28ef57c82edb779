"""A file with the committed offsets of groups at the time when their journals were collected.

The file is untrusted: an invalid one is ignored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from asyncrevoke.journal.files import PRIVATE, create_file, open_file

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.client.model import TopicPartition

SNAPSHOT: Final = "committed.json"
"""The name of the file."""
LONGEST_SNAPSHOT: Final = 2**23
"""The largest size of the file in bytes, for about 100,000 partitions. Larger files are ignored."""


class OffsetsSnapshot(NamedTuple):
    """Committed offsets of one group and topic, by partition, at a time in microseconds."""

    offsets: Mapping[int, int]
    at_us: int


def write_snapshot(
    folder: Path, at_us: int, committed: Mapping[str, Mapping[TopicPartition, int]]
) -> None:
    """Write the committed offsets of these groups into a journal's folder. Raises OSError."""
    groups: dict[str, dict[str, dict[int, int]]] = {}
    for group, offsets in committed.items():
        topics = groups.setdefault(group, {})
        for partition, offset in sorted(offsets.items()):
            topics.setdefault(partition.topic, {})[partition.partition] = offset
    encoded = json.dumps({"at_us": at_us, "groups": groups}).encode()
    with os.fdopen(create_file(folder / SNAPSHOT, PRIVATE), "wb") as file:
        file.write(encoded)


def read_snapshot(folder: Path, group: str, topic: str) -> OffsetsSnapshot | None:
    """The committed offsets of this group and topic in a journal's folder; None if it has none.
    Raises ConfigError for a link; OSError."""
    try:
        with open_file(folder / SNAPSHOT) as file:
            text = file.read(LONGEST_SNAPSHOT + 1)
    except FileNotFoundError:
        return None
    return parse_snapshot(text, group, topic)


def parse_snapshot(text: bytes, group: str, topic: str) -> OffsetsSnapshot | None:
    """The committed offsets of this group and topic in a snapshot; None if it has none."""
    if len(text) > LONGEST_SNAPSHOT:
        return None
    try:
        found: Any = json.loads(text)
        of_topic = cast("dict[str, int]", found["groups"][group][topic])
        offsets = {int(part): int(offset) for part, offset in of_topic.items()}
        at_us = int(found["at_us"])
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return None
    known = {
        part: offset
        for part, offset in offsets.items()
        if 0 <= part < 2**31 and 0 <= offset < 2**62
    }
    return OffsetsSnapshot(known, at_us) if known and 0 <= at_us < 2**62 else None
