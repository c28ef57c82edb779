"""What an audit on Spark takes, for a topic and the journal of the group that has handled it.

    python -m benchmarks.spark.audit [--records N] [--content records batches] [--runs R]

A consumer with a journal handles a topic of N records. Then a process of its own starts Spark on
this machine (``local[2]``) and calls ``asyncrevoke.spark.audit`` R + 1 times: the first call counts
from the start of the process, the others from the call. ``--source dense`` does not read the topic.
The peak memory is that of Spark's JVM and of all Python processes together, each at its own peak.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from asyncrevoke.broker.installation.jars import KAFKA_VERSION
from asyncrevoke.journal.segments import seal_session, sessions
from benchmarks.costs.audit import PARTITIONS, fill, handle
from benchmarks.report.surroundings import surroundings
from benchmarks.workload.broker import measured_broker, topic_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncrevoke.journal.format.schema import Content

_CONTENTS: dict[str, Content] = {"records": "records", "batches": "batches"}
_CALLS = "--calls"


def call_audit(address: str, topic: str, folder: str, source: str, *, calls: int) -> None:
    """Audit so many times in this process; print a JSON line for each."""
    from asyncrevoke.spark import audit, open_session

    spark = open_session("local[2]")
    spark.sparkContext.setLogLevel("ERROR")
    for _ in range(calls):
        began = time.perf_counter()
        if source == "dense":
            audited = audit(spark, journal=folder, source="dense", topic=topic, bootstrap=address)
        else:
            read = {"topic": topic, "bootstrap_servers": address}
            audited = audit(spark, journal=folder, source=read)
        seconds = time.perf_counter() - began
        print(json.dumps([str(audited.status), audited.done, seconds]), flush=True)
    spark.stop()


def peaks_of(process: int) -> int:
    """The sum of the peak memory of a process and its descendants, in MiB (Linux)."""
    return (
        sum(_peak_kibibytes(descendant) for descendant in (process, *_descendants(process))) // 1024
    )


def _descendants(process: int) -> Iterator[int]:
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except FileNotFoundError:
            continue
        for child in map(int, children):
            yield child
            yield from _descendants(child)


def _peak_kibibytes(process: int) -> int:
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return 0
    lines = (line.split() for line in status.splitlines())
    return next((int(line[1]) for line in lines if line[:1] == ["VmHWM:"]), 0)


def audited(address: str, topic: str, folder: Path, options: _Options) -> None:
    """Call it in a process of its own, and print what each call took."""
    given = [address, topic, str(folder), options.source, str(options.runs + 1)]
    command = [sys.executable, "-m", "benchmarks.spark.audit", _CALLS, *given]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for number, line in enumerate(process.stdout):
            status, done, seconds = json.loads(line)
            took = seconds if number else time.perf_counter() - began
            print(
                f"{folder.name:8} {done:,} records done, source {options.source}: {status}, "
                f"{'warm' if number else 'cold'} {took:.2f} s, {peaks_of(process.pid):,} MiB",
                flush=True,
            )
    if process.returncode:
        raise SystemExit(process.returncode)


class _Options(argparse.Namespace):
    records: int
    size: int
    content: list[str]
    runs: int
    source: str


def main() -> None:
    """Measure it."""
    parser = argparse.ArgumentParser(description="What an audit on Spark takes.")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of each value")
    parser.add_argument("--content", nargs="+", choices=list(_CONTENTS), default=list(_CONTENTS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--source", choices=["topic", "dense"], default="topic")
    options = parser.parse_args(namespace=_Options())
    topic = topic_name("audited")
    with measured_broker() as broker, tempfile.TemporaryDirectory() as folder:
        address = broker.bootstrap_servers
        broker.create_topic(topic, PARTITIONS)
        asyncio.run(fill(address, topic, options.records, options.size))
        for name in options.content:
            journal = Path(folder) / name
            asyncio.run(handle(address, topic, journal, options.records, _CONTENTS[name]))
            for session in sessions(journal):
                # A consumer that writes millions of rows in a minute closes before all are sealed.
                seal_session(session)
            size = sum(file.stat().st_size for file in journal.rglob("*") if file.is_file())
            print(f"{name:8} journal on disk: {size / 2**20:,.0f} MiB", flush=True)
            audited(address, topic, journal, options)
    for what, value in surroundings(KAFKA_VERSION).items():
        print(f"{what}: {value}")


if __name__ == "__main__":
    if sys.argv[1:2] == [_CALLS]:
        _, _, *texts, calls = sys.argv
        call_audit(*texts, calls=int(calls))
    else:
        main()
