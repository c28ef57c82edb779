"""How many records a second a producer writes, and how long a single one takes.

    python -m benchmarks.producing [--json] [--only NAME ...] [--records N] [--size BYTES]
                                   [--keys N] [--rate R] [--seconds S]

The clients take turns in each round, each time in a new process and with a new topic. *Rate*: all
records are queued as fast as the client lets one, then all acknowledgements are awaited. *Time of
a call*: a call each ``1 / rate`` seconds that returns at the acknowledgement, from when it was
due. After each turn the ends of the partitions say whether each record is in the topic once.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import sys
from typing import TYPE_CHECKING, cast

from benchmarks.clients.producing_clients import (
    CLIENTS,
    OURS,
    TIMED,
    Writing,
    Written,
    write_all,
    write_at,
)
from benchmarks.report.printing import MeasurementError, Options, options_parser, spread, tell
from benchmarks.report.surroundings import table
from benchmarks.workload.broker import measured_broker, topic_name
from benchmarks.workload.client_process import client_process, received

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from asyncrevoke.broker.running import RunningBroker

PARTITIONS = 4
DEADLINE = 120.0


def write(client: str, writing: Writing, rate: float, pipe: Connection) -> None:
    """Write by this client and send what was measured, or what went wrong; blocks."""
    try:
        pipe.send(asyncio.run(_write(client, writing, rate)))
    except Exception as error:  # noqa: BLE001 - it is told in the other process
        pipe.send(f"{type(error).__name__}: {error}")


async def _write(client: str, writing: Writing, rate: float) -> object:
    async with TIMED[client](writing) as opened:
        if rate:
            return await write_at(opened, writing, rate)
        return await write_all(opened, writing)


def measure(client: str, writing: Writing, rate: float, broker: RunningBroker) -> object:
    """One turn of a client with a new topic. Raises MeasurementError if a record is missing or is
    there twice."""
    broker.create_topic(writing.topic, PARTITIONS)
    try:
        context = multiprocessing.get_context("spawn")
        with client_process(context, write, client, writing, rate) as (_, pipe):
            found = received([pipe], client, (Written, list), DEADLINE)  # type: ignore[arg-type]
        if (there := asyncio.run(_records(writing))) != writing.total:
            raise MeasurementError(f"{client}: {there} records instead of {writing.total}")
        return found
    finally:
        broker.delete_topic(writing.topic)


async def _records(writing: Writing) -> int:
    from asyncrevoke import Consumer

    async with Consumer(bootstrap_servers=writing.bootstrap) as consumer:
        partitions = [(writing.topic, number) for number in range(PARTITIONS)]
        return sum((await consumer.end_offsets(*partitions)).values())


class _Options(Options):
    records: int
    size: int
    keys: int
    rate: float
    seconds: float


def main() -> int:
    """Measure and print."""
    options = _options()
    clients = options.chosen(TIMED, OURS)
    rates: dict[str, list[Written]] = {client: [] for client in clients if client in CLIENTS}
    delays: dict[str, list[list[float]]] = {client: [] for client in clients}
    failures: dict[str, str] = {}
    keys = tuple(b"%d" % number for number in range(options.keys)) or (None,)
    with measured_broker() as broker:
        for turn in range(1 if options.cold else 0, options.rounds + 1):
            # The first turn warms the broker: ours is enough for that.
            for number, client in enumerate(clients if turn else clients[:1]):
                for rate in (0.0, options.rate):
                    if not rate and client not in CLIENTS:
                        continue
                    total = round(rate * options.seconds) if rate else options.records
                    topic = topic_name(f"producing-{turn}-{number}-{rate:.0f}")
                    writing = Writing(broker.bootstrap_servers, topic, total, options.size, keys)
                    try:
                        found = measure(client, writing, rate, broker)
                    except Exception as error:  # noqa: BLE001 - the others go on
                        failures[client] = str(error) or type(error).__name__
                        sys.stderr.write(f"{failures[client]}\n")
                        continue
                    if not turn:
                        continue
                    if isinstance(found, Written):
                        rates[client].append(found)
                    else:
                        delays[client].append(cast("list[float]", found))
    return _report(options, rates, delays, failures)


def _report(
    options: _Options,
    rates: dict[str, list[Written]],
    delays: dict[str, list[list[float]]],
    failures: dict[str, str],
) -> int:
    p50 = {c: [statistics.median(each) * 1e3 for each in turns] for c, turns in delays.items()}
    p99 = {
        c: [statistics.quantiles(each, n=100)[-1] * 1e3 for each in turns]
        for c, turns in delays.items()
    }
    clock = {c: [each.clock for each in turns] for c, turns in rates.items()}
    cpu = {c: [each.cpu for each in turns] for c, turns in rates.items()}
    rows = [
        [
            client,
            spread(clock[client]),
            _ratio(clock[OURS], clock[client]),
            spread(cpu[client]),
            _ratio(cpu[OURS], cpu[client]),
        ]
        for client in rates
    ]
    timed = [
        [client, spread(p50[client], 2), spread(p99[client], 2), _ratio(p99[OURS], p99[client])]
        for client in delays
    ]
    ours = f"{OURS}'s as a multiple"
    written = ["median (lowest to highest)", "records/s", ours, "records per second of CPU", ours]
    return tell(
        {
            "records_per_second": clock,
            "records_per_cpu_second": cpu,
            "p50_ms": p50,
            "p99_ms": p99,
            "records": options.records,
            "size": options.size,
        },
        failures,
        [
            table(written, rows),
            table(["median of rounds", "p50 of a call, ms", "p99 of a call, ms", ours], timed),
        ],
        f"{options.records:,} records of {options.size} bytes, {options.keys or 'no'} keys, "
        f"{PARTITIONS} partitions; calls at {options.rate:,.0f}/s for {options.seconds:g} s; "
        f"{options.rounds} rounds",
        as_json=options.json,
    )


def _ratio(ours: list[float], theirs: list[float]) -> str:
    """The median of the ratios of rounds."""
    ratios = [a / b for a, b in zip(ours, theirs, strict=False)]
    return spread(ratios, 2)


def _options() -> _Options:
    parser = options_parser(
        "How many records a second a producer writes, and how long a single one takes.",
        5,
        clients=TIMED,
    )
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of each value")
    parser.add_argument("--keys", type=int, default=0, help="how many keys; none by default")
    parser.add_argument("--rate", type=float, default=1000.0, help="calls per second")
    parser.add_argument("--seconds", type=float, default=5.0, help="of calls")
    return parser.parse_args(namespace=_Options())


if __name__ == "__main__":
    sys.exit(main())
