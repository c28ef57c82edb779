"""What cannot work is told before Spark is asked."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="needs the extra spark")

from asyncrevoke.errors import ConfigError
from asyncrevoke.spark.reading.offsets import OffsetRange
from asyncrevoke.spark.reading.worker import Target
from asyncrevoke.spark.replays.engines import ReplayJob
from asyncrevoke.spark.replays.run import check_options

RANGES = [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 0, 10)]


def job(engine: str = "jvm", order_by: str | None = "key", **options: str) -> ReplayJob:
    return ReplayJob(
        target=Target("app:consumer", order_by=order_by),  # type: ignore[arg-type]
        isolation_level="read_committed",
        no_progress_timeout=1.0,
        max_errors=None,
        engine=engine,  # type: ignore[arg-type]
        source_options=options,
    )


@pytest.mark.parametrize("order_by", ["key", "partition", "as configured"])
@pytest.mark.parametrize("name", ["minPartitions", "maxRecordsPerPartition"])
def test_what_splits_partitions_is_refused_while_order_counts(name: str, order_by: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} splits a partition .*pass order_by=None"):
        job(order_by=order_by, **{name: "8"})


def test_what_splits_partitions_is_allowed_where_order_does_not_count() -> None:
    assert job(order_by=None, minPartitions="8").source_options


def test_an_unknown_engine_is_told_and_options_without_a_reader_too() -> None:
    with pytest.raises(ConfigError, match='use "direct", "source" or "jvm"'):
        job("spark")
    with pytest.raises(ConfigError, match=r'source_options= is for engine="source" and "jvm"'):
        job("direct", ssl_cafile="/x")


@pytest.mark.parametrize("name", ["failOnDataLoss", "startingOffsets", "isolation_level"])
def test_what_a_replay_decides_itself_is_no_option_of_its_reader(name: str) -> None:
    with pytest.raises(ConfigError, match=f"has {name}, which a replay decides .*leave it out"):
        job("jvm", **{name: "x"})


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"target": "app"}, "name the consumer by its import path"),
        ({"target": object()}, "cannot travel to the workers"),
        ({"run_id": "a/b"}, "names a folder"),
        ({"errors": "skip"}, 'use "record", "policy" or "fail"'),
        ({"max_errors": -1}, "max_errors=-1: use at least 0"),
        ({"checkpoint_every": 0}, "checkpoint_every=0: use at least 1"),
        ({"concurrency": 0}, "concurrency=0: use at least 1"),
        ({"ranges": [*RANGES, OffsetRange("u", 0, 0, 1)]}, "of several topics"),
        ({"ranges": [*RANGES, OffsetRange("t", 1, 9, 12)]}, "partition 1 overlap"),
    ],
)
def test_mistakes_get_a_sentence(changed: dict[str, object], sentence: str) -> None:
    given: dict[str, object] = {
        "target": "app:consumer",
        "ranges": RANGES,
        "run_id": None,
        "errors": "record",
        "max_errors": None,
        "checkpoint_every": None,
        "concurrency": None,
    }
    check_options(**given)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=sentence):
        check_options(**(given | changed))  # type: ignore[arg-type]
