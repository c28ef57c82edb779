"""How many records a second a client stores as Parquet (zstd), in row groups of 65,536.

    python -m benchmarks.costs.to_parquet [--json] [--only NAME ...] [--values bytes json]

A topic is filled, then the clients take turns in storing all of it, each time in a new process and
with a new group. Values are 100 bytes, or JSON of eight fields, which all clients decode by
``ArrowJson``. Measured from the first row group to the last, by the clock and by the CPU time of
the client's process.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from benchmarks.clients.parquet_clients import CLIENTS, json_value
from benchmarks.clients.raw_clients import Log, Rates
from benchmarks.raw_iteration import PARTITIONS, measure
from benchmarks.report.printing import Options, options_parser, spread, tell
from benchmarks.report.surroundings import table
from benchmarks.workload.broker import measured_broker, topic_name
from benchmarks.workload.load import fill_values

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker


def plain_value(_number: int) -> bytes:
    """A value of 100 bytes."""
    return b"x" * 100


VALUES = {"bytes": plain_value, "json": json_value}


def turns(
    broker: RunningBroker, kind: str, options: _Options, failures: dict[str, str]
) -> dict[str, list[Rates]]:
    """The rates of all clients, for values of one kind."""
    value, topic = VALUES[kind], topic_name(f"parquet-{kind}")
    broker.create_topic(topic, PARTITIONS)
    values = (value(number) for number in range(options.records))
    asyncio.run(fill_values(broker.bootstrap_servers, topic, PARTITIONS, values))
    clients = options.chosen(CLIENTS[kind])
    rates: dict[str, list[Rates]] = {client: [] for client in clients}
    for turn in range(1 if options.cold else 0, options.rounds + 1):
        for number, client in enumerate(clients if turn else clients[:1]):
            log = Log(broker.bootstrap_servers, topic, f"{topic}-{turn}-{number}", options.records)
            try:
                rate = measure(client, CLIENTS[kind][client], log, len(value(0)))
            except Exception as error:  # noqa: BLE001 - whatever it is, the others go on
                failures[f"{client}, {kind}"] = str(error) or type(error).__name__
                continue
            sys.stderr.write(
                f"round {turn or 'to warm up'}, {kind}, {client}: {rate.clock:,.0f}/s\n"
            )
            if turn:
                rates[client].append(rate)
    broker.delete_topic(topic)
    return rates


def main() -> int:
    """Measure and print."""
    options = _options()
    failures: dict[str, str] = {}
    with measured_broker() as broker:
        found = {kind: turns(broker, kind, options, failures) for kind in options.values}
    header = ["median (lowest to highest)", "values", "records/s", "records per second of CPU"]
    rows = [
        [client, kind, spread([r.clock for r in each]), spread([r.cpu for r in each])]
        for kind, rates in found.items()
        for client, each in rates.items()
    ]
    measured = {
        kind: {client: [r._asdict() for r in each] for client, each in rates.items()}
        for kind, rates in found.items()
    }
    about = f"records: {options.records:,} in {PARTITIONS} partitions"
    return tell(
        {"found": measured, "records": options.records},
        failures,
        [table(header, rows)],
        about,
        as_json=options.json,
    )


class _Options(Options):
    records: int
    values: list[str]


def _options() -> _Options:
    parser = options_parser("How many records a second a client stores as Parquet.", 3)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--values", nargs="+", choices=list(VALUES), default=list(VALUES))
    return parser.parse_args(namespace=_Options())


if __name__ == "__main__":
    sys.exit(main())
