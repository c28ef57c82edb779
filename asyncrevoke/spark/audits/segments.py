"""Finds the files of a journal on Spark and checks them in tasks."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast
from urllib.parse import unquote

import msgspec

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.journal.chain import SegmentChain
from asyncrevoke.journal.format.arrow import pa
from asyncrevoke.journal.format.sealed import About
from asyncrevoke.journal.segments import LOG, SEALED, Content, Segment, read_file
from asyncrevoke.journal.topic.offsets_snapshot import (
    LONGEST_SNAPSHOT,
    SNAPSHOT,
    OffsetsSnapshot,
    parse_snapshot,
)
from asyncrevoke.spark.arrow import map_in_arrow
from asyncrevoke.spark.audits.overview import SUMMARIZED, Summary, summary_of

if TYPE_CHECKING:
    import os

    from pyspark.sql import SparkSession

    from asyncrevoke.client.columns.arrow import ArrowRecordBatch

    # Of _CHECKED.
    _Row: TypeAlias = tuple[str, str | None, str | None, str | None, str, bytes]

_NUMBERED: Final = re.compile(r"\d{6}")
_MOST_SESSIONS: Final = 100
_LONGEST_SESSION: Final = 100
_SCHEME: Final = re.compile(r"^file:/+")
_CHECKED: Final = (
    "path STRING, torn STRING, damaged STRING, about STRING, sessions STRING, summaries BINARY"
)


class JournalFiles(NamedTuple):
    """The segments of a journal. ``sealed`` are Parquet files. ``logs`` are those that are not
    sealed."""

    sealed: Sequence[str]
    logs: Sequence[str]

    def without(self, names: frozenset[str]) -> JournalFiles:
        """The files without those of these names."""
        return JournalFiles(
            [name for name in self.sealed if name not in names],
            [name for name in self.logs if name not in names],
        )


def find_files(spark: SparkSession, path: str | os.PathLike[str]) -> JournalFiles:
    """The segments in a journal's folder, on any storage that Spark can read. Raises ConfigError if
    there are none."""
    root = str(path)
    files = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    files = files.option("pathGlobFilter", f"*{{{SEALED},{LOG}}}")
    try:
        # Spark lists the files when it plans: this runs no job.
        found = {unquote(name) for name in files.load(root).inputFiles()}
    except Exception as error:
        if _condition(error) != "PATH_NOT_FOUND":
            raise
        raise ConfigError(
            f"there is no folder {root}: use the path of Journal(path), as the cluster's "
            "workers know it"
        ) from error
    found = {name for name in found if _NUMBERED.fullmatch(PurePosixPath(name).stem)}
    sealed = sorted(name for name in found if name.endswith(SEALED))
    stems = {name.removesuffix(SEALED) for name in sealed}
    logs = sorted(
        name for name in found if name.endswith(LOG) and name.removesuffix(LOG) not in stems
    )
    if not sealed and not logs:
        raise ConfigError(f"{root} has no journal: use the path of Journal(path)")
    return JournalFiles(sealed, logs)


class CheckedFiles(NamedTuple):
    """``chains`` has the segments of each session, by folder. ``damaged`` are the sealed files
    whose rows must not be read. ``summaries`` are those of the rows in all other files."""

    chains: Mapping[str, SegmentChain]
    damaged: frozenset[str]
    summaries: Sequence[Summary]


def check_files(spark: SparkSession, files: JournalFiles) -> CheckedFiles:
    """Check all files of a journal. Tasks check the digest, the pages and the session ids of each
    file; this process checks that each segment follows the one before it.

    A task also summarizes the rows of its files, and holds one whole file in memory. Raises
    ConfigError for an invalid session id.
    """
    blobs = spark.read.format("binaryFile").load([*files.sealed, *files.logs])
    checked = map_in_arrow(blobs.select("path", "content"), check_each, _CHECKED)
    by_folder: dict[str, list[tuple[str, Content]]] = defaultdict(list)
    damaged: set[str] = set()
    names = {_path(name): name for name in files.sealed}
    summaries: list[Summary] = []
    for path, torn, fault, about, sessions, made in cast("list[_Row]", checked.collect()):
        name = unquote(path)
        known = None if about is None else msgspec.json.decode(about, type=About)
        named = msgspec.json.decode(sessions, type=tuple[str, ...])
        content = Content([], torn, fault, known, named)
        by_folder[str(PurePosixPath(name).parent)].append((name, content))
        if fault is not None and _path(name) in names:
            damaged.add(names[_path(name)])
        summaries += msgspec.msgpack.decode(made, type=list[Summary])
    chains: dict[str, SegmentChain] = {}
    for folder, found in by_folder.items():
        chain = SegmentChain(PurePosixPath(folder).name)
        for name, content in sorted(found, key=lambda candidate: PurePosixPath(candidate[0]).name):
            chain.add(Segment(Path(name)), content)
        chains[folder] = chain
    return CheckedFiles(chains, frozenset(damaged), summaries)


def check_each(batches: Iterable[ArrowRecordBatch]) -> Iterator[ArrowRecordBatch]:
    """A task: one row about each file, whose bytes are the column ``content``."""
    kinds = {"STRING": pa.string(), "BINARY": pa.binary()}
    declared = (declaration.split() for declaration in _CHECKED.split(", "))
    schema = pa.schema([(name, kinds[kind]) for name, kind in declared])
    for batch in batches:
        contents: Any = batch.column("content")
        for at, path in enumerate(batch.column("path").to_pylist()):
            name, summaries = unquote(path), list[Summary]()
            found = _summarized(name, contents[at].as_py(), summaries)
            about = None if found.about is None else msgspec.json.encode(found.about).decode()
            row = {
                "path": path,
                "torn": found.torn,
                "damaged": found.damaged,
                "about": about,
                "sessions": msgspec.json.encode(_few(found.sessions)).decode(),
                "summaries": msgspec.msgpack.encode(summaries),
            }
            yield cast("ArrowRecordBatch", pa.RecordBatch.from_pylist([row], schema))


def _summarized(name: str, blob: bytes, summaries: list[Summary]) -> Content:
    """Check a file, and append the summaries of its rows, unless it is sealed and damaged."""
    made: list[Summary] = []
    found = read_file(name, blob, lambda rows: made.append(summary_of(rows)), SUMMARIZED)
    if found.damaged is None or not name.endswith(SEALED):
        summaries += made
    return found


def _few(sessions: Sequence[str]) -> list[str]:
    """The first session ids, shortened. A valid file has one; a crafted one may have many."""
    return [name[:_LONGEST_SESSION] for name in sessions[:_MOST_SESSIONS]]


def read_snapshot(
    spark: SparkSession, path: str | os.PathLike[str], group: str, topic: str
) -> OffsetsSnapshot | None:
    """The committed offsets of this group and topic in the folder's snapshot. None if there is no
    snapshot, or it has none of them."""
    files = spark.read.format("binaryFile").option("pathGlobFilter", SNAPSHOT).load(str(path))
    small = files.where(f"length <= {LONGEST_SNAPSHOT}").select("content").limit(1)
    found = cast("list[tuple[bytes]]", small.collect())
    return parse_snapshot(bytes(found[0][0]), group, topic) if found else None


def _path(name: str) -> str:
    """A path with one slash after ``file:``, where Spark writes one or three."""
    return _SCHEME.sub("/", name)


def _condition(error: Exception) -> str | None:
    get = getattr(error, "getCondition", None)
    return cast("Any", get)() if callable(get) else None
