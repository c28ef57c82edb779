"""The offsets that groups had committed when their journals were collected, in a file beside them.

The file is not trusted: what is no snapshot says nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from asyncrevoke.journal.files import PRIVATE, create_file, open_file

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.model import TopicPartition

SNAPSHOT: Final = "committed.json"
"""The name of the file."""
LONGEST_SNAPSHOT: Final = 2**23
"""Its largest size in bytes, of 100,000 partitions: what is longer says nothing."""


class OffsetsSnapshot(NamedTuple):
    """Committed offsets of one group and one topic, by partition, at a time in microseconds."""

    offsets: Mapping[int, int]
    at_us: int


def write_snapshot(
    folder: Path, at_us: int, committed: Mapping[str, Mapping[TopicPartition, int]]
) -> None:
    """Write what these groups have committed into a journal's folder. OSError."""
    groups: dict[str, dict[str, dict[int, int]]] = {}
    for group, offsets in committed.items():
        topics = groups.setdefault(group, {})
        for partition, offset in sorted(offsets.items()):
            topics.setdefault(partition.topic, {})[partition.partition] = offset
    encoded = json.dumps({"at_us": at_us, "groups": groups}).encode()
    with os.fdopen(create_file(folder / SNAPSHOT, PRIVATE), "wb") as file:
        file.write(encoded)


def read_snapshot(folder: Path, group: str, topic: str) -> OffsetsSnapshot | None:
    """What a journal's folder has of this group and topic; None if it has nothing. ConfigError for
    a link; OSError."""
    try:
        with open_file(folder / SNAPSHOT) as file:
            text = file.read(LONGEST_SNAPSHOT + 1)
    except FileNotFoundError:
        return None
    return parse_snapshot(text, group, topic)


def parse_snapshot(text: bytes, group: str, topic: str) -> OffsetsSnapshot | None:
    """What a snapshot says of this group and topic; None if it says nothing."""
    if len(text) > LONGEST_SNAPSHOT:
        return None
    try:
        found: Any = json.loads(text)
        of_topic = cast("dict[str, int]", found["groups"][group][topic])
        offsets = {int(part): int(offset) for part, offset in of_topic.items()}
        at_us = int(found["at_us"])
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return None
    known = {part: offset for part, offset in offsets.items() if 0 <= offset < 2**62}
    return OffsetsSnapshot(known, at_us) if known and 0 <= at_us < 2**62 else None
