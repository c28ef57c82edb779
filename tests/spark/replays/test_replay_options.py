"""What cannot work is told before Spark is asked."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra spark")

from asyncrevoke import INHERIT
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.replays.opened_handlers import ReplayOrder, Target
from asyncrevoke.spark.reading.offsets import OffsetRange
from asyncrevoke.spark.replays.engines import ReplayJob
from asyncrevoke.spark.replays.run import check_plan, check_target
from asyncrevoke.spark.replays.settings import ReplaySettings, StreamReplaySettings

RANGES = [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 0, 10)]


def job(engine: str = "jvm", order_by: ReplayOrder = "key", **options: str) -> ReplayJob:
    return ReplayJob(
        target=Target("app:consumer", order_by=order_by),
        isolation_level="read_committed",
        no_progress_timeout=1.0,
        max_errors=None,
        engine=engine,  # type: ignore[arg-type]
        source_options=options,
    )


@pytest.mark.parametrize("order_by", ["key", "partition", INHERIT])
@pytest.mark.parametrize("name", ["min_partitions", "max_records_per_partition"])
def test_what_splits_partitions_is_rejected_while_order_counts(
    name: str, order_by: ReplayOrder
) -> None:
    options: dict[str, Any] = {name: 8}
    for settings in (ReplaySettings, StreamReplaySettings):
        with pytest.raises(ConfigError, match=f"{name}= splits a partition .*pass order_by=None"):
            settings(order_by=order_by, **options)
        assert settings(order_by=None, **options).splits.given == (name,)


def test_an_unknown_engine_is_an_error_and_so_are_options_without_a_reader() -> None:
    with pytest.raises(ConfigError, match='use "direct", "source" or "jvm"'):
        job("spark")
    with pytest.raises(ConfigError, match=r'source_options= is for engine="source" and "jvm"'):
        job("direct", ssl_cafile="/x")


@pytest.mark.parametrize(
    "name",
    [
        "failOnDataLoss",
        "startingOffsets",
        "isolation_level",
        "min_offsets_per_task",
        "minPartitions",
        "max_records_per_partition",
    ],
)
def test_what_a_replay_decides_itself_is_no_option_of_its_reader(name: str) -> None:
    with pytest.raises(ConfigError, match=f"has {name}, which a replay sets .*leave it out"):
        job("jvm", "key", **{name: "x"})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"errors": "skip"}, 'use "record", "policy" or "fail"'),
        ({"order_by": "as configured"}, "order_by='as configured': use .* INHERIT"),
        ({"max_errors": -1}, "max_errors=-1: use at least 0"),
        ({"checkpoint_every": 0}, "checkpoint_every=0: use at least 1"),
        ({"concurrency": 0}, "concurrency=0: use at least 1"),
        ({"min_partitions": 0, "order_by": None}, "min_partitions=0: use at least 1"),
        ({"max_records_per_partition": 2**63, "order_by": None}, "per_partition=9.* at most 9"),
    ],
)
def test_options_that_cannot_work_are_rejected(options: dict[str, Any], sentence: str) -> None:
    assert ReplaySettings().order_by is INHERIT
    with pytest.raises(ConfigError, match=sentence):
        ReplaySettings(**options)


def test_a_stream_has_no_options_of_a_run() -> None:
    options: dict[str, Any] = {"max_errors": 1}
    with pytest.raises(TypeError, match="max_errors"):
        StreamReplaySettings(**options)


@pytest.mark.parametrize(
    ("target", "sentence"),
    [("app", "use the import path of the consumer"), (object(), "cannot be sent to the workers")],
)
def test_a_target_that_is_no_import_path_is_rejected(target: Any, sentence: str) -> None:
    check_target("app:consumer")
    with pytest.raises(ConfigError, match=sentence):
        check_target(target)


@pytest.mark.parametrize(
    ("ranges", "run_id", "sentence"),
    [
        (RANGES, "a/b", "names a folder"),
        ([*RANGES, OffsetRange("u", 0, 0, 1)], None, "of several topics"),
        ([*RANGES, OffsetRange("t", 1, 9, 12)], None, "partition 1 overlap"),
    ],
)
def test_a_plan_that_no_run_can_have_is_rejected(
    ranges: list[OffsetRange], run_id: str | None, sentence: str
) -> None:
    check_plan(RANGES, None)
    with pytest.raises(ConfigError, match=sentence):
        check_plan(ranges, run_id)


def test_the_order_that_a_replay_inherits_stays_the_sentinel_in_tasks() -> None:
    target = Target("app:consumer")
    sent = pickle.dumps(target)
    assert pickle.loads(sent).order_by is INHERIT  # noqa: S301 - of this test
