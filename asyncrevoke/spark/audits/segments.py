"""The files of a journal on Spark, and what tasks find when they check them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import unquote

import msgspec

from asyncrevoke.errors import ConfigError
from asyncrevoke.journal.chain import SegmentChain
from asyncrevoke.journal.format.arrow import pa
from asyncrevoke.journal.format.sealed import About
from asyncrevoke.journal.segments import ARROW_LOG, LOG, SEALED, Content, Segment, check_blob
from asyncrevoke.journal.topic.offsets_snapshot import (
    LONGEST_SNAPSHOT,
    SNAPSHOT,
    parse_snapshot,
)
from asyncrevoke.spark.arrow import map_in_arrow

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator
    from typing import TypeAlias

    from pyspark.sql import SparkSession

    from asyncrevoke.journal.topic.offsets_snapshot import OffsetsSnapshot
    from asyncrevoke.spark.arrow import ArrowRecordBatch

    # Of _CHECKED.
    _Row: TypeAlias = tuple[str, str | None, str | None, str | None, str]

_NUMBERED: Final = re.compile(r"\d{6}")
_MOST_SESSIONS: Final = 100
_LONGEST_SESSION: Final = 100
_SCHEME: Final = re.compile(r"^file:/+")
_CHECKED: Final = "path STRING, torn STRING, damaged STRING, about STRING, sessions STRING"


class JournalFiles(NamedTuple):
    """Segments: ``sealed`` are Parquet. Of a log that was sealed, only the Parquet file."""

    sealed: Sequence[str]
    logs: Sequence[str]

    def without(self, names: frozenset[str]) -> JournalFiles:
        """Those that do not have these names."""
        return JournalFiles(
            [name for name in self.sealed if name not in names],
            [name for name in self.logs if name not in names],
        )


def find_files(spark: SparkSession, path: str | os.PathLike[str]) -> JournalFiles:
    """The segments in a journal's folder, of any storage that Spark knows. Raises ConfigError if
    there are none."""
    root = str(path)
    files = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    files = files.option("pathGlobFilter", f"*{{{SEALED},{LOG},{ARROW_LOG}}}")
    try:
        # What planning knows: no job.
        found = {unquote(name) for name in files.load(root).inputFiles()}
    except Exception as error:
        if _condition(error) != "PATH_NOT_FOUND":
            raise
        raise ConfigError(
            f"there is no folder {root}: give the path that Journal(path) was given, as the "
            "cluster's workers know it"
        ) from error
    found = {name for name in found if _NUMBERED.fullmatch(PurePosixPath(name).stem)}
    sealed = sorted(name for name in found if name.endswith(SEALED))
    stems = {name.removesuffix(SEALED) for name in sealed}
    logs = sorted(
        name
        for name in found
        for suffix in (LOG, ARROW_LOG)
        if name.endswith(suffix) and name.removesuffix(suffix) not in stems
    )
    if not sealed and not logs:
        raise ConfigError(f"{root} holds no journal: give the path that Journal(path) was given")
    return JournalFiles(sealed, logs)


class CheckedFiles(NamedTuple):
    """``chains``: of each session's folder. ``damaged``: the sealed files of which no row is to be
    read."""

    chains: Mapping[str, SegmentChain]
    damaged: frozenset[str]


def check_files(spark: SparkSession, files: JournalFiles) -> CheckedFiles:
    """Check the digest, the pages and the sessions of each file in tasks, and here that each
    segment follows the one before it. A task has one whole file in memory at a time. Raises
    ConfigError for a session's id that is none."""
    blobs = spark.read.format("binaryFile").load([*files.sealed, *files.logs])
    checked = map_in_arrow(blobs.select("path", "content"), check_each, _CHECKED)
    by_folder: dict[str, list[tuple[str, Content]]] = defaultdict(list)
    damaged: set[str] = set()
    names = {_path(name): name for name in files.sealed}
    for path, torn, fault, about, sessions in cast("list[_Row]", checked.collect()):
        name = unquote(path)
        known = None if about is None else msgspec.json.decode(about, type=About)
        named = msgspec.json.decode(sessions, type=tuple[str, ...])
        content = Content([], torn, fault, known, named)
        by_folder[str(PurePosixPath(name).parent)].append((name, content))
        if fault is not None and _path(name) in names:
            damaged.add(names[_path(name)])
    chains: dict[str, SegmentChain] = {}
    for folder, found in by_folder.items():
        chain = SegmentChain(PurePosixPath(folder).name)
        for name, content in sorted(found, key=lambda each: PurePosixPath(each[0]).name):
            chain.add(Segment(Path(name)), content)
        chains[folder] = chain
    return CheckedFiles(chains, frozenset(damaged))


def check_each(batches: Iterable[ArrowRecordBatch]) -> Iterator[ArrowRecordBatch]:
    """A task: a row about each file, whose bytes are the column ``content``."""
    schema = pa.schema([(each.split()[0], pa.string()) for each in _CHECKED.split(", ")])
    for batch in batches:
        contents: Any = batch.column("content")
        for at, path in enumerate(batch.column("path").to_pylist()):
            found = check_blob(path, contents[at].as_py())
            about = None if found.about is None else msgspec.json.encode(found.about).decode()
            row = {
                "path": path,
                "torn": found.torn,
                "damaged": found.damaged,
                "about": about,
                "sessions": msgspec.json.encode(_few(found.sessions)).decode(),
            }
            yield cast("ArrowRecordBatch", pa.RecordBatch.from_pylist([row], schema))


def _few(sessions: Sequence[str]) -> list[str]:
    """The driver gets the first ones: a whole file has one."""
    return [name[:_LONGEST_SESSION] for name in sessions[:_MOST_SESSIONS]]


def read_snapshot(
    spark: SparkSession, path: str | os.PathLike[str], group: str, topic: str
) -> OffsetsSnapshot | None:
    """What the folder's snapshot of committed offsets says of this group and topic; None if it says
    nothing, or there is none."""
    files = spark.read.format("binaryFile").option("pathGlobFilter", SNAPSHOT).load(str(path))
    small = files.where(f"length <= {LONGEST_SNAPSHOT}").select("content").limit(1)
    found = cast("list[tuple[bytes]]", small.collect())
    return parse_snapshot(bytes(found[0][0]), group, topic) if found else None


def _path(name: str) -> str:
    """Spark writes one slash after a scheme, or three."""
    return _SCHEME.sub("/", name)


def _condition(error: Exception) -> str | None:
    get = getattr(error, "getCondition", None)
    return cast("Any", get)() if callable(get) else None
