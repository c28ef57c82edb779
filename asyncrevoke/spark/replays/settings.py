"""The options of replays, with their defaults and checks."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from importlib import invalidate_caches
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, cast, get_args

from asyncrevoke.client.config.inherit import INHERIT
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.dead_letters.dead_letter_filter import DeadLetterFilter
from asyncrevoke.replays.opened_handlers import Errors, ReplayOrder, Target
from asyncrevoke.spark.reading.offsets import NO_PROGRESS_TIMEOUT
from asyncrevoke.spark.reading.range_splits import RangeSplits
from asyncrevoke.spark.session import is_connected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from asyncrevoke.client.config import IsolationLevel
    from asyncrevoke.spark.replays.engines import Engine

CHECKPOINT_EVERY = 1_000_000


class StreamReplayOptions(TypedDict, total=False):
    """The options of :func:`~asyncrevoke.spark.replays.streaming_query.replay_stream` and of
    ``replay``."""

    concurrency: int | None
    """Handlers that a task runs at once. None (default): as the consumer is configured."""
    order_by: ReplayOrder
    """``"key"``, ``"partition"`` or None. INHERIT (default): the consumer's."""
    errors: Errors
    """``"record"`` (default): a record whose retries have failed becomes a row with its error, and
    nothing is sent to other topics. ``"policy"``: the handlers' dead letter topics, retry topics
    and ``on_error`` apply as in a live consumer. ``"fail"``: the first failure ends the replay."""
    bootstrap_servers: str | None
    """``host:port,...``. None (default): the consumer's."""
    no_progress_timeout: float
    """Seconds after which a range without progress fails its task (120)."""
    source_options: Mapping[str, str] | None
    """Options of Spark's reader, for the engines ``"source"`` and ``"jvm"``."""
    py_files: Sequence[str]
    """Files and archives that are sent to the workers."""
    dead_letters: DeadLetterFilter | None
    """The topic is a dead letter topic: handlers get the original records of the selected dead
    letters, with the topic, partition and offset that these had. None (default): handlers get the
    topic's records."""
    min_partitions: int | None
    """Large ranges are split between tasks, in proportion to their offsets, until there are about
    this many tasks. Only with ``order_by=None``. None (default): not."""
    max_records_per_partition: int | None
    """Ranges with more offsets are split into equal parts, each with a task. Only with
    ``order_by=None``. None (default): not."""


class BatchReplayOptions(StreamReplayOptions, total=False):
    """The options of :func:`~asyncrevoke.spark.replays.run.replay`."""

    engine: Engine
    """Who reads the records. ``"direct"`` (default): the tasks. ``"source"``: Spark, with this
    library's data source. ``"jvm"``: Spark's Kafka connector, whose jars you provide."""
    isolation_level: IsolationLevel
    """``"read_committed"`` (default), or ``"read_uncommitted"``, which includes aborted records."""
    max_errors: int | None
    """The replay fails when more records than this have failed; the rows of unfinished tasks are
    lost. None (default): no limit."""
    checkpoint_every: int | None
    """The replay splits ranges into at most this many offsets (1,000,000). None: it does not
    split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReplaySettings:
    """The options of a streaming replay with their defaults. Raises ConfigError for a bad value."""

    concurrency: int | None = None
    order_by: ReplayOrder = INHERIT
    errors: Errors = "record"
    bootstrap_servers: str | None = None
    no_progress_timeout: float = NO_PROGRESS_TIMEOUT
    source_options: Mapping[str, str] | None = field(default=None, repr=False)
    py_files: Sequence[str] = ()
    dead_letters: DeadLetterFilter | None = None
    min_partitions: int | None = None
    max_records_per_partition: int | None = None

    def __post_init__(self) -> None:
        if self.errors not in get_args(Errors):
            raise ConfigError(
                f'errors={shown_option(self.errors)}: use "record", "policy" or "fail"'
            )
        if self.order_by not in ("key", "partition", None, INHERIT):
            raise ConfigError(
                f'order_by={shown_option(self.order_by)}: use "key", "partition", None, or INHERIT '
                "for the order of the consumer"
            )
        check_least("concurrency", self.concurrency, 1)
        self.splits.check()
        if self.splits.given and self.order_by is not None:
            raise ConfigError(
                f"{self.splits.given[0]}= splits a partition between tasks, so that records of one "
                "key overtake each other: leave it out, or pass order_by=None if order does not "
                "matter"
            )
        if not isinstance(cast("object", self.dead_letters), DeadLetterFilter | None):
            raise ConfigError(
                f"dead_letters={shown_option(self.dead_letters)}: use DeadLetterFilter(), which "
                "selects all dead letters"
            )

    @property
    def splits(self) -> RangeSplits:
        """How ranges are split between tasks."""
        return RangeSplits(self.min_partitions, self.max_records_per_partition)

    def target(self, name: str) -> Target:
        """The handlers of this consumer, for the tasks to open."""
        return Target(name, self.errors, self.bootstrap_servers, self.concurrency, self.order_by)

    def send_files(self, spark: SparkSession) -> None:
        """Send ``py_files`` to the workers. Afterwards this process can import them, too."""
        if not self.py_files:
            return
        spark.addArtifacts(*self.py_files, pyfile=True)
        if is_connected(spark):
            # Without Spark Connect, Spark does this.
            for py_file in map(Path, self.py_files):
                place = str(
                    py_file.parent.resolve() if py_file.suffix == ".py" else py_file.resolve()
                )
                if place not in sys.path:
                    sys.path.append(place)
            invalidate_caches()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings(StreamReplaySettings):
    """The options of a replay with their defaults. Raises ConfigError for a bad value."""

    engine: Engine = "direct"
    isolation_level: IsolationLevel = "read_committed"
    max_errors: int | None = None
    checkpoint_every: int | None = CHECKPOINT_EVERY

    def __post_init__(self) -> None:
        # slots=True replaces the class, so that super() without arguments fails.
        StreamReplaySettings.__post_init__(self)
        check_least("max_errors", self.max_errors, 0)
        check_least("checkpoint_every", self.checkpoint_every, 1)


def check_least(name: str, value: int | None, least: int) -> None:
    """Raise ConfigError if a number is less than ``least``."""
    if value is not None and value < least:
        raise ConfigError(f"{name}={value}: use at least {least}, or None")
