"""Reads the offsets of a streaming query from its checkpoint."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, cast

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.spark.errors import HandoverError
from asyncrevoke.spark.source.stream_offsets import StreamOffsets

_VERSION = "v1"
# Those of a million partitions need less.
_MOST_BYTES = 64 * 1024 * 1024


class CheckpointOffsets(NamedTuple):
    """The offsets after the last completed batch: the next record to read of each partition.

    ``pending`` is the number of a batch that began and has not completed, or None. ``topic_ids``
    are the topic ids that the checkpoint has, in the notation of Kafka's tools.
    """

    batch: int
    offsets: dict[TopicPartition, int]
    pending: int | None
    topic_ids: Mapping[str, str] = MappingProxyType({})


def read_checkpoint(
    folder: str | Path, topic: str | None = None, *, sink: str | Path | None = None
) -> CheckpointOffsets:
    """Read the offsets after a streaming query's last completed batch.

    ``folder`` is the query's ``checkpointLocation``, on this machine. ``topic`` chooses one of
    several topics, and is required if the offsets do not name their topic.

    ``sink`` is the folder to which the query wrote its files, with Spark's folder
    ``_spark_metadata``. Spark writes the rows of a batch before it marks the batch as completed.
    With ``sink``, a batch whose rows are in that folder counts as completed, so that the group does
    not process its records again. Raises HandoverError.
    """
    root = _checked_root(Path(folder))
    committed, begun = _numbers(root / "commits"), _numbers(root / "offsets")
    if not committed:
        raise HandoverError(
            f"no batch of the query in {root} has completed: wait until one has, or commit "
            "the first offsets yourself"
        )
    batch = committed[-1]
    if batch not in begun:
        raise HandoverError(
            f"{root} has batch {batch} in commits and not in offsets: it is damaged, or was copied "
            "while the query ran; stop the query and copy it again"
        )
    pending = begun[-1] if begun[-1] > batch else None
    if sink is not None and pending is not None and pending in _written(Path(sink)):
        batch, pending = pending, None
    found = _offsets(root / "offsets" / str(batch), topic)
    return CheckpointOffsets(
        batch,
        dict(found.offsets),
        pending,
        {name: topic_id for name, topic_id in found.topic_ids.items() if topic_id is not None},
    )


def _checked_root(root: Path) -> Path:
    if "://" in str(root) or ":/" in str(root)[1:8]:
        raise HandoverError(f"{root} is not on this machine: copy the folders offsets and commits "
                            "of the checkpoint here, and pass the copy")  # fmt: skip
    if (root / "offsets").is_dir() and (root / "commits").is_dir():
        return root
    if not root.is_dir():
        raise HandoverError(f"there is no folder {root}: pass the query's checkpointLocation")
    if root.name in ("offsets", "commits", "sources", "state"):
        raise HandoverError(f"{root} is a part of a checkpoint: pass {root.parent}")
    inside = [
        path for path in sorted(root.iterdir()) if path.is_dir() and (path / "offsets").is_dir()
    ]
    hint = (
        f"do you mean {inside[0]}?"
        if inside
        else "pass the query's checkpointLocation, which has the folders offsets and commits"
    )
    raise HandoverError(f"{root} is not a checkpoint of a streaming query: {hint}")


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())


def _written(sink: Path) -> frozenset[int]:
    """The batches whose files are in a folder, according to Spark's ``_spark_metadata``."""
    log = sink / "_spark_metadata"
    if not log.is_dir():
        raise HandoverError(
            f"{sink} has no folder _spark_metadata, which Spark writes beside the files of a "
            "query: pass the folder of its rows (for replay_stream, the folder stream below sink=)"
        )
    # Spark merges several of these files into NUMBER.compact.
    names = (path.name.removesuffix(".compact") for path in log.iterdir())
    return frozenset(int(name) for name in names if name.isdecimal())


def _offsets(file: Path, topic: str | None) -> StreamOffsets:
    lines = _text(file).splitlines()
    if len(lines) < 3 or lines[0] != _VERSION:
        raise HandoverError(
            f"{file} is not an offset log of version {_VERSION}, which Spark 4 writes: it begins "
            f"with {lines[0][:40]!r}" if lines else f"{file} is empty: the checkpoint is damaged"
        )  # fmt: skip
    found: dict[TopicPartition, int] = {}
    topic_ids: dict[str, str | None] = {}
    for line in _sources(lines[2:], file):
        of_source = parse_offsets(line, topic, str(file))
        topic_ids |= of_source.topic_ids
        for partition, offset in of_source.offsets.items():
            if partition in found:
                raise HandoverError(
                    f"two sources of the query read {partition.topic}, and a group has one offset "
                    "for each partition: commit the right ones yourself"
                )
            found[partition] = offset
    return StreamOffsets(topic_ids, found)


def _text(file: Path) -> str:
    """The text of a file in a checkpoint. Opening a pipe would wait for its writer."""
    with os.fdopen(os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as opened:
        found = os.fstat(opened.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise HandoverError(f"{file} is not a file: this is not a checkpoint that Spark wrote")
        content = opened.read(_MOST_BYTES + 1) if found.st_size <= _MOST_BYTES else None
    if content is None or len(content) > _MOST_BYTES:
        raise HandoverError(
            f"{file} has more than {_MOST_BYTES} bytes, and offsets need less: this is not a "
            "checkpoint that Spark wrote"
        )
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise HandoverError(
            f"{file} is not text in UTF-8 (byte {error.start}): the checkpoint is damaged"
        ) from error


def _sources(lines: Sequence[str], file: Path) -> list[str]:
    sources = [line for line in lines if line.strip() not in ("", "-")]
    if not sources:
        raise HandoverError(f"{file} has no offsets of any source")
    return sources


def parse_offsets(line: str, topic: str | None, where: str) -> StreamOffsets:
    """The offsets of one source, in a form that :meth:`StreamOffsets.from_json` reads. With
    ``topic``, only those of that topic. Raises HandoverError."""
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _no_kafka(line, where) from error
    if not isinstance(given, dict) or not given:
        raise _no_kafka(line, where)
    by_name = cast("dict[str, object]", given)
    if topic is None and all(isinstance(value, int) for value in by_name.values()):
        raise HandoverError(f"the offsets in {where} do not name their topic: pass topic=NAME")
    try:
        found = StreamOffsets.from_json(by_name, topic)
    except ConfigError as error:
        raise _no_kafka(line, where) from error
    if topic is None:
        return found
    others = frozenset(name for name in found.topic_ids if name != topic)
    if topic not in found.topic_ids:
        raise HandoverError(f"{where} has offsets of {', '.join(found.topic_ids)}, not of {topic}")
    return found.without(others)


def _no_kafka(line: str, where: str) -> HandoverError:
    return HandoverError(
        f"{where} has no Kafka offsets: {line[:80]!r}. The query has another kind of source"
    )
