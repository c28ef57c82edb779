"""What comparing by fingerprints costs: a live topic, and rows that Spark makes.

    python -m benchmarks.spark.audit [--records N] [--runs R] [--synthetic 1,4,16,64]

``topic``: a topic is read and compared with a journal of the same records, by tasks of Spark and on
one machine: from what is to be compared to the list of ranges that differ, which is empty, cold and
then warm. ``synthetic``: as many rows of a journal and of a topic (millions), which Spark makes as
it compares them: what a record costs should not depend on how many there are.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asyncrevoke.audit.comparison import AuditSettings, Bounds, Comparison, HandlerOrder, Range
from asyncrevoke.audit.local_engine import database_of
from asyncrevoke.audit.local_engine import differing as differing_here
from asyncrevoke.audit.topic.topic import Topic
from asyncrevoke.broker.installation.jars import KAFKA_VERSION
from asyncrevoke.config import ConsumerConfig
from asyncrevoke.journal.format.schema import CallOutcome, RowKind
from asyncrevoke.journal.reading import read_journal
from asyncrevoke.journal.recording.entries import Attempts, Fact
from asyncrevoke.journal.recording.log_file import LogFile
from asyncrevoke.journal.segments import JournalSession, seal
from asyncrevoke.journal.session_id import new_session_id
from asyncrevoke.model import Record
from asyncrevoke.spark.audits.database import SparkDatabase, run_query
from asyncrevoke.spark.audits.journal import SCHEMA, rows_of_files, with_rule_names
from asyncrevoke.spark.audits.run import differing
from asyncrevoke.spark.audits.segments import find_files
from asyncrevoke.spark.audits.sources import TopicSource
from benchmarks.report.surroundings import surroundings
from benchmarks.spark.topic import PARTITIONS, TOPIC, parser, running

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from asyncrevoke.audit.sql.text import Text

_ORDERS = HandlerOrder("key", nulls=True)
_AT = 1_800_000_000_000_000
_MILLION = 1_000_000


def write_journal(folder: Path, records: int, size: int) -> None:
    """What a consumer would have written of the topic that ``running`` has filled."""
    session = JournalSession(folder / new_session_id(_AT / 1e6))
    session.folder.mkdir()
    log = LogFile(session, "benchmark", segment_bytes=2**40, segment_seconds=9e9)
    value = b"v" * size
    seq = 0

    def put(entry: Attempts | Fact) -> None:
        nonlocal seq
        log.take(deque([(seq, entry)]))
        seq += len(entry.records) if isinstance(entry, Attempts) else 1

    put(Fact(RowKind.BEGIN, _AT, facts=json.dumps({"group": "benchmark", "strict": False})))
    for partition in range(PARTITIONS):
        put(Fact(RowKind.ASSIGN, _AT, TOPIC, partition, 0, "m", 1))
    for first in range(0, records, 20_000):
        numbers = range(first, min(first + 20_000, records))
        read = [
            Record(TOPIC, n % PARTITIONS, n // PARTITIONS, 0, 0, b"%d" % (n % 5000), value)
            for n in numbers
        ]
        put(Attempts(read, _AT + first, _AT + first + 1))
    for partition in range(PARTITIONS):
        end = (records - partition + PARTITIONS - 1) // PARTITIONS
        commit = Fact(RowKind.COMMIT, _AT + records, TOPIC, partition, end, "m", 1, CallOutcome.OK)
        put(commit)
    put(Fact(RowKind.END, _AT + records))
    seal(log.close())


def on_spark(spark: SparkSession, address: str, folder: Path) -> int:
    """One comparison by tasks; returns how many records were read."""
    options = {"bootstrap_servers": address, "topic": TOPIC, "isolation_level": "read_committed"}
    source = TopicSource(options, compacted=False)
    database = SparkDatabase(spark)
    database.add("journal", with_rule_names(rows_of_files(spark, find_files(spark, folder))))
    comparison = Comparison(
        database, TOPIC, source.bounds, (), _ORDERS, AuditSettings(), compacted=False
    )
    read, ranges = differing(spark, database, comparison, source)
    database.close()
    assert not ranges
    return read


async def here(address: str, folder: Path) -> int:
    """One comparison by DuckDB."""
    config = ConsumerConfig(bootstrap_servers=address)
    database = database_of(read_journal(folder).table, TOPIC, "benchmark")
    source = await Topic.of(TOPIC, config, isolation_level="read_committed")
    comparison = Comparison(
        database,
        *(TOPIC, source.bounds, (), _ORDERS, AuditSettings()),
        compacted=False,
    )
    read, ranges = await differing_here(database, comparison, source)
    database.close()
    assert not ranges
    return read


class Made:
    """Records of 8 partitions, made by Spark; a ``spark.audits.sources.TopicRecords``."""

    compacted = False
    has_keys = False
    batches = None

    def __init__(self, spark: SparkSession, records: int) -> None:
        self.each = records // PARTITIONS
        self.bounds = {number: Bounds(0, self.each) for number in range(PARTITIONS)}
        numbers = spark.range(self.each * PARTITIONS)
        self.rows = numbers.selectExpr(
            f"CAST(id DIV {self.each} AS INT) AS part",
            f"id % {self.each} AS off",
            "xxhash64(id) AS record_hash",
        )

    def fingerprints(
        self,
        spark: SparkSession,
        ranges: Sequence[Range],  # noqa: ARG002 - all of them
        query: Text,
        *,
        hashless: Sequence[int],  # noqa: ARG002 - the query knows
    ) -> DataFrame:
        """Of all records."""
        return run_query(spark, query, {"records": self.rows})

    def records(self, spark: SparkSession, ranges: Sequence[Range]) -> DataFrame:
        """Nothing differs."""
        raise NotImplementedError

    def journal(self, spark: SparkSession) -> DataFrame:
        """Each done, and all committed."""
        given = {
            "session": "'a'", "seq": "0", "kind": "'ATTEMPT'", "at_us": "off", "started_us": "off",
            "part": "part", "off": "off", "record_hash": "record_hash", "attempt": "1",
            "outcome": "'ok'",
        }  # fmt: skip
        last = {"kind": "'COMMIT'", "off": str(self.each), "part": "CAST(id AS INT)"}
        types = dict(each.replace("`", "").split(" ") for each in SCHEMA.split(", "))
        names = {"session_id": "session", "partition": "part", "offset": "off"}
        renamed = {names.get(name, name): kind for name, kind in types.items()}

        def columns(values: dict[str, str]) -> list[str]:
            return [
                f"CAST({values.get(name, 'NULL')} AS {kind}) AS `{name}`"
                for name, kind in renamed.items()
            ]

        commits = spark.range(PARTITIONS).selectExpr(
            *columns({**given, "at_us": "0", "started_us": "NULL", "record_hash": "NULL", **last})
        )
        return self.rows.selectExpr(*columns(given)).unionByName(commits)


def synthetic(spark: SparkSession, records: int) -> int:
    """One comparison of rows that are made; returns how many."""
    made = Made(spark, records)
    database = SparkDatabase(spark)
    database.add("journal", made.journal(spark))
    comparison = Comparison(
        database, TOPIC, made.bounds, (), _ORDERS, AuditSettings(), compacted=False
    )
    read, ranges = differing(spark, database, comparison, made)
    database.close()
    assert not ranges
    return read


def timed(what: str, work: Callable[[], int], runs: int) -> None:
    """Cold once, then warm; prints both."""
    found: list[tuple[int, float]] = []
    for _ in range(runs + 1):
        start = time.monotonic()
        read = work()
        found.append((read, time.monotonic() - start))
    (records, cold), *warm = found
    seconds = statistics.median(took for _, took in warm) if warm else cold
    print(
        f"{what:36} {records:>12,} records  cold {cold:6.2f} s  warm {seconds:6.2f} s  "
        f"{seconds / records * 1e9:7.0f} ns a record",
        flush=True,
    )


def main() -> None:
    """Run it."""
    options = parser(__doc__ or "")
    options.add_argument("--synthetic", default="1,4,16,64", help="millions, a,b,c; or nothing")
    arguments: Any = options.parse_args()
    with running(arguments) as (spark, address), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_journal(folder, arguments.records, arguments.size)
        timed("topic, tasks of Spark", lambda: on_spark(spark, address, folder), arguments.runs)
        timed("topic, one machine", lambda: asyncio.run(here(address, folder)), arguments.runs)
        for millions in filter(None, arguments.synthetic.split(",")):
            records = int(float(millions) * _MILLION)
            timed("synthetic", partial(synthetic, spark, records), arguments.runs)
    for what, value in surroundings(KAFKA_VERSION).items():
        print(f"{what}: {value}")


if __name__ == "__main__":
    main()
