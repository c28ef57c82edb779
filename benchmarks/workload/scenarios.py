"""What the benchmark of handlers measures: clients, and how many records."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.clients.handler_clients import (
    BARE_JOURNAL,
    CONFLUENT,
    CONFLUENT_AIO,
    DECATON,
    FASTSTREAM_CONCURRENT,
    FAUST,
    FAUST_CONCURRENT,
    HASHING_JOURNAL,
    HOTTEST_ALONE,
    JOURNAL,
    KPIPE,
    KSTREAMS,
    OUR_LOOP,
    OURS,
    OURS_ON_UVLOOP,
    PARALLEL_BY_KEY,
    PARALLEL_UNORDERED,
)
from benchmarks.clients.publishing_clients import (
    AIOKAFKA_SEND,
    FASTSTREAM_PUBLISHER,
)


class Scenario(NamedTuple):
    """Who takes part, and how many records there are."""

    clients: tuple[str, ...]
    records: int
    concurrency: int
    # Written beforehand; else sent while the clients read.
    filled: bool
    # Ours has a first turn that is not counted: it warms the broker and the page cache.
    warm_up: bool


SCENARIOS = {
    "noop": Scenario(
        (
            OURS,
            JOURNAL,
            HASHING_JOURNAL,
            BARE_JOURNAL,
            OURS_ON_UVLOOP,
            "aiokafka, bare getmany()",
            "aiokafka, handlers in a row",
            "aiokafka, a task per record",
            "FastStream, default",
            FASTSTREAM_CONCURRENT,
            KSTREAMS,
            FAUST,
            PARALLEL_BY_KEY,
            DECATON,
            KPIPE,
        ),
        400_000,
        64,
        filled=True,
        warm_up=True,
    ),
    "noop-zipf": Scenario(
        (OURS, "aiokafka, a task per record", PARALLEL_BY_KEY, DECATON, KPIPE),
        400_000,
        64,
        filled=True,
        warm_up=True,
    ),
    "noop-results": Scenario(
        (OURS, AIOKAFKA_SEND, FASTSTREAM_PUBLISHER), 400_000, 64, filled=True, warm_up=True
    ),
    "slow": Scenario(
        (
            OURS,
            JOURNAL,
            BARE_JOURNAL,
            "aiokafka, a task per record",
            "FastStream, max_workers",
            FASTSTREAM_CONCURRENT,
            FAUST_CONCURRENT,
            PARALLEL_BY_KEY,
            PARALLEL_UNORDERED,
            DECATON,
            KPIPE,
        ),
        100_000,
        512,
        filled=True,
        warm_up=True,
    ),
    "zipf": Scenario(
        (OURS, PARALLEL_BY_KEY, DECATON, KPIPE, HOTTEST_ALONE),
        20_000,
        512,
        filled=True,
        warm_up=False,
    ),
    "latency": Scenario(
        (
            OURS,
            OUR_LOOP,
            "aiokafka, handlers in a row",
            CONFLUENT_AIO,
            CONFLUENT,
            "FastStream, default",
            KSTREAMS,
        ),
        10_000,
        64,
        filled=False,
        warm_up=True,
    ),
    "memory": Scenario((OURS,), 0, 512, filled=False, warm_up=False),
}
# Those that handle so many times fewer in the same time need not handle all.
FRACTIONS = {
    ("noop", "FastStream, default"): 10,
    ("noop", FASTSTREAM_CONCURRENT): 10,
    ("noop", FAUST): 10,
    ("noop-results", AIOKAFKA_SEND): 4,
    ("noop-results", FASTSTREAM_PUBLISHER): 40,
    ("noop-zipf", PARALLEL_BY_KEY): 8,
    ("slow", "FastStream, max_workers"): 5,
    ("slow", FASTSTREAM_CONCURRENT): 5,
    ("slow", FAUST_CONCURRENT): 5,
}
