"""Commits the offsets of a Spark query, or of a replay, for a consumer group."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.groups.changes.consumer_offsets import commit_offsets
from asyncrevoke.client.groups.cluster import GroupsClient
from asyncrevoke.client.groups.errors import GroupsError, NoGroupError
from asyncrevoke.client.groups.observer import committed_offsets, describe_group
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.runtime.net.single_request import run_blocking
from asyncrevoke.replays.ranges.range_consumer import consumer_of
from asyncrevoke.spark.errors import HandoverError
from asyncrevoke.spark.reading.log_bounds import LogBounds
from asyncrevoke.spark.reading.offsets import OffsetRange, configured
from asyncrevoke.spark.reading.topic_selection import TopicSelection
from asyncrevoke.spark.source.stream_offsets import StreamOffsets

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.groups.facts import GroupFacts

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


Source: TypeAlias = "str | Path | Mapping[TopicPartition, int] | Sequence[OffsetRange]"


class OffsetMove(NamedTuple):
    """What a handover changes in one partition.

    ``before`` is the offset that the group has committed, or None; ``after`` the offset to commit.
    ``begins`` and ``ends`` are the first offset and the end of the log. ``skipped`` counts offsets
    that the group would not process, ``repeated`` those that it would process again. Some of them
    may be gaps. ``new``: the query or replay has no offset of this partition, so the group begins
    at its first offset, or stays at the offset that it has committed.
    """

    partition: TopicPartition
    before: int | None
    after: int
    begins: int
    ends: int
    new: bool = False

    @property
    def skipped(self) -> int:
        """The number of offsets by which the group moves ahead."""
        return max(0, self.after - (self.begins if self.before is None else self.before))

    @property
    def repeated(self) -> int:
        """The number of offsets by which the group moves back."""
        return 0 if self.before is None else max(0, self.before - self.after)

    @property
    def problem(self) -> str | None:
        """The reason why this offset must not be committed, or None."""
        if self.after < self.begins:
            return (
                f"offset {self.after} was deleted, and the log begins at {self.begins}: the group "
                "would begin where its auto_offset_reset says"
            )
        if self.after > self.ends:
            return (
                f"offset {self.after} is beyond the log's end {self.ends}: the topic was deleted "
                "and created again, or this is another cluster"
            )
        return None


class Handover(NamedTuple):
    """The result of :func:`plan_handover`. ``members`` describes the members of the group."""

    group: str
    moves: tuple[OffsetMove, ...]
    state: str
    members: tuple[str, ...]
    pending: int | None = None


def handover(
    source: Source,
    *,
    group: str,
    bootstrap: str | Sequence[str] | ConsumerConfig,
    topic: str | None = None,
    sink: str | Path | None = None,
    dry_run: bool = True,
) -> dict[TopicPartition, int]:
    """Return the offsets at which a query or a replay ended; with ``dry_run=False``, commit them,
    so that ``group`` continues there.

    ``source`` is the query's checkpoint folder on this machine, a mapping from each partition to
    its next offset, or the ranges of a replay, whose ends are used. ``topic`` chooses a topic of
    the checkpoint, and ``sink`` is the folder of the query's rows: see
    :func:`~asyncrevoke.spark.handovers.group_handover.read_checkpoint`. Stop the query first;
    otherwise the group would process again what the query processes later.

    Partitions of these topics that a checkpoint or ranges do not have are committed at their first
    offset, unless the group has committed an offset of them: they were added after the last batch,
    and a group with ``auto_offset_reset="latest"`` would skip their records. A mapping is taken as
    it is.

    The group must have no members: the broker rejects the commit otherwise. A killed member counts
    until its session timeout. Consumers that use ``assign`` are not members, so they are not
    detected.

    Raises HandoverError, GroupsError if no broker responds, and ConfigError.
    """
    config = configured(bootstrap)
    plan = plan_handover(source, group=group, bootstrap=config, topic=topic, sink=sink)
    if not dry_run:
        apply_handover(plan, bootstrap=config)
    return {move.partition: move.after for move in plan.moves}


def plan_handover(
    source: Source,
    *,
    group: str,
    bootstrap: str | Sequence[str] | ConsumerConfig,
    topic: str | None = None,
    sink: str | Path | None = None,
) -> Handover:
    """What a handover would change. Commits nothing. Raises the errors of :func:`handover`."""
    found = _offsets_of(source, topic, sink)
    exact = isinstance(source, Mapping)
    return run_blocking(_plan(configured(bootstrap), found, group, exact=exact))


def apply_handover(
    plan: Handover, *, bootstrap: str | Sequence[str] | ConsumerConfig
) -> dict[TopicPartition, int]:
    """Commit a plan, then check the committed offsets. Raises the errors of :func:`handover`."""
    return run_blocking(_apply(configured(bootstrap), plan))


def _offsets_of(source: Source, topic: str | None, sink: str | Path | None) -> CheckpointOffsets:
    if isinstance(source, (str, Path)):
        return read_checkpoint(source, topic, sink=sink)
    if isinstance(source, Mapping):
        return CheckpointOffsets(-1, dict(source), None)
    topic_ids = {
        topic_range.topic: topic_range.topic_id
        for topic_range in source
        if topic_range.topic_id is not None
    }
    return CheckpointOffsets(
        -1,
        {topic_range.topic_partition: topic_range.end for topic_range in source},
        None,
        topic_ids,
    )


async def _plan(
    config: ConsumerConfig, found: CheckpointOffsets, group: str, *, exact: bool
) -> Handover:
    """``exact``: without the partitions that ``found`` does not have."""
    if not found.offsets:
        raise HandoverError("there are no offsets to commit")
    async with consumer_of(config) as consumer:
        log = await LogBounds.of(
            consumer, TopicSelection(tuple(sorted({tp.topic for tp in found.offsets})))
        )
    for topic, topic_id in sorted(found.topic_ids.items()):
        now = log.topic_ids[topic]
        if now not in (None, topic_id):
            raise HandoverError(
                f"topic {topic} was deleted and created again (its id was {topic_id}, and is "
                f"{now}): the offsets are those of the deleted topic"
            )
    async with GroupsClient(config) as cluster:
        facts = await _describe(cluster, group)
        before = await committed_offsets(cluster, group)
    unknown = sorted(set(found.offsets) - set(log.first))
    if unknown:
        raise HandoverError(
            f"{unknown[0].topic} has no partition {unknown[0].partition}: the topic was deleted "
            "and created again, or this is another cluster"
        )
    new = () if exact else log.first.keys() - found.offsets.keys()
    offsets = found.offsets | {tp: max(log.first[tp], before.get(tp, 0)) for tp in new}
    moves = tuple(
        OffsetMove(tp, before.get(tp), offset, log.first[tp], log.last[tp], tp in new)
        for tp, offset in sorted(offsets.items())
    )
    return Handover(
        group,
        moves,
        "missing" if facts is None else facts.state,
        members_of(facts),
        found.pending,
    )


async def _describe(cluster: GroupsClient, group: str) -> GroupFacts | None:
    try:
        return await describe_group(cluster, group)
    except NoGroupError:
        return None


def members_of(facts: GroupFacts | None) -> tuple[str, ...]:
    """The client id, host and member id of each member."""
    if facts is None:
        return ()
    return tuple(
        f"{member.client_id} at {member.host} ({member.member_id})" for member in facts.members
    )


def check_committable(plan: Handover) -> None:
    """Raise HandoverError if the group has members, or an offset cannot be committed."""
    if plan.members:
        raise HandoverError(
            f"group {plan.group!r} has {len(plan.members)} live member(s): "
            f"{'; '.join(plan.members)}. Stop them and try again; one that was killed counts until "
            "its session timeout (45 s by default). Nothing was committed"
        )
    for move in plan.moves:
        if move.problem is not None:
            raise HandoverError(f"{move.partition}: {move.problem}. Nothing was committed")


async def _apply(config: ConsumerConfig, plan: Handover) -> dict[TopicPartition, int]:
    offsets = {move.partition: move.after for move in plan.moves}
    async with GroupsClient(config) as cluster:
        # Members may have joined since the plan was made.
        check_committable(plan._replace(members=members_of(await _describe(cluster, plan.group))))
        try:
            await commit_offsets(cluster, plan.group, offsets)
        except GroupsError as error:
            raise HandoverError(str(error)) from error
        committed = await committed_offsets(cluster, plan.group)
    wrong = {tp: committed.get(tp) for tp in offsets if committed.get(tp) != offsets[tp]}
    if wrong:
        found = ", ".join(f"{tp}: {at}" for tp, at in sorted(wrong.items()))
        raise HandoverError(
            f"group {plan.group!r} has other offsets than those just committed ({found}): another "
            "client commits for it; stop that client and try again"
        )
    return offsets
