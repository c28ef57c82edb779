"""Replaying a topic, a row per record to Parquet: ranges read in the task, and two bridges.

``python -m benchmarks.spark.replay --packages``; ``BENCHMARK_SECONDS=0`` for handlers that do
nothing.
"""

from __future__ import annotations

import itertools
import tempfile
from typing import TYPE_CHECKING

from asyncrevoke.spark.reading.offsets import resolve_ranges
from asyncrevoke.spark.replays.run import replay
from benchmarks.spark.topic import TOPIC, compare, parser, running

if TYPE_CHECKING:
    from asyncrevoke.spark.replays.engines import Engine


def main() -> None:
    """Run it."""
    options = parser(__doc__ or "")
    options.add_argument("--concurrency", type=int, default=512, help="handlers in each task")
    arguments = options.parse_args()
    numbers = itertools.count()
    with running(arguments) as (spark, address), tempfile.TemporaryDirectory() as folder:
        ranges = resolve_ranges(address, TOPIC)

        def run(engine: Engine) -> None:
            report = replay(
                spark,
                "benchmarks.spark.handlers:consumer",
                ranges,
                sink=folder,
                run_id=str(next(numbers)),
                bootstrap_servers=address,
                concurrency=arguments.concurrency,
                engine=engine,
            )
            assert report.outcomes == {"ok": arguments.records}, report.outcomes

        ways = {"source": lambda: run("source"), "direct": lambda: run("direct")}
        if arguments.jars or arguments.packages:
            ways = {"connector (jvm)": lambda: run("jvm"), **ways}
        compare(arguments, ways)


if __name__ == "__main__":
    main()
