"""How many records a second a client hands to a loop that only looks at them.

    python -m benchmarks.raw_iteration [--json] [--only NAME ...] [--size BYTES]

A topic is filled, then the clients take turns in reading all of it, each time in a new process
and with a new group. Measured from the first batch to the last, by the clock and by the CPU time of
the client's process.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
from typing import TYPE_CHECKING, cast

from benchmarks.clients.raw_clients import CLIENTS, FRACTIONS, Client, Log, Meter, Rates
from benchmarks.report.printing import Options, options_parser, spread, tell
from benchmarks.report.surroundings import table
from benchmarks.workload.broker import measured_broker, topic_name
from benchmarks.workload.load import fill

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

PARTITIONS = 8
DEADLINE = 90.0
# Of large records fewer than a thousand are asked for.
BYTES_AT_ONCE = 10_000_000


def read(client: Client, log: Log, pipe: Connection) -> None:
    """Read the log and send the rates, or what went wrong; blocks."""
    meter = Meter(log.total)
    try:
        asyncio.run(client(log, meter))
        pipe.send((meter.records, meter.size, meter.rates()))
    except Exception as error:  # noqa: BLE001 - it is told in the other process
        pipe.send(f"{type(error).__name__}: {error}")


def measure(name: str, client: Client, log: Log, size: int) -> Rates:
    """One reading by ``client``, a function of a module, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=read, args=(client, log, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(DEADLINE):
            raise RuntimeError(f"{name}: not done within {DEADLINE:.0f} s")
        try:
            received = ours.recv()
        except EOFError:
            raise RuntimeError(f"{name} failed; see above") from None
        if not isinstance(received, tuple):
            raise RuntimeError(f"{name}: {received}")  # noqa: TRY004 - an error of its process
        records, read_bytes, rates = cast("tuple[int, int, Rates]", received)
    finally:
        process.join(10)
        process.kill()
    # With fewer than there are, the last batch may hold more than are wanted.
    if records < log.total or read_bytes != records * size:
        raise RuntimeError(
            f"{name} read {records} records and {read_bytes} bytes instead of"
            f" {log.total} and {log.total * size}"
        )
    return Rates(*rates)


def main() -> int:
    """Measure and print."""
    options = _options()
    clients = options.chosen(CLIENTS)
    rates: dict[str, list[Rates]] = {client: [] for client in clients}
    failures: dict[str, str] = {}
    topic = topic_name("raw")
    with measured_broker() as broker:
        broker.create_topic(topic, PARTITIONS)
        asyncio.run(
            fill(broker.bootstrap_servers, topic, PARTITIONS, options.records, options.size)
        )
        for turn in range(1 if options.cold else 0, options.rounds + 1):
            # The first turn warms the broker and the page cache: one client is enough for that.
            for number, client in enumerate(clients if turn else clients[:1]):
                # What has worked is tried again.
                if client in failures and not rates[client]:
                    continue
                group = f"{topic}-{turn}-{number}"
                total = max(options.records // FRACTIONS.get(client, 1), 1)
                at_once = min(1000, max(1, BYTES_AT_ONCE // options.size))
                log = Log(broker.bootstrap_servers, topic, group, total, at_once)
                try:
                    rate = measure(client, CLIENTS[client], log, options.size)
                except Exception as error:  # noqa: BLE001 - whatever it is, the others go on
                    failures[client] = str(error) or type(error).__name__
                    sys.stderr.write(f"{failures[client]}\n")
                    continue
                sys.stderr.write(f"round {turn or 'to warm up'}, {client}: {rate.clock:,.0f}/s\n")
                if turn:
                    rates[client].append(rate)
        broker.delete_topic(topic)
    found = {
        "records_per_second": {c: [r.clock for r in each] for c, each in rates.items()},
        "records_per_cpu_second": {c: [r.cpu for r in each] for c, each in rates.items()},
        "records": options.records,
        "size": options.size,
    }
    header = ["median (lowest to highest)", "records/s", "records per second of CPU"]
    rows = [
        [client, spread([r.clock for r in each]), spread([r.cpu for r in each])]
        for client, each in rates.items()
    ]
    return tell(
        found,
        failures,
        [table(header, rows)],
        f"records: {options.records:,} of {options.size} bytes, {PARTITIONS} partitions",
        as_json=options.json,
    )


class _Options(Options):
    records: int
    size: int


def _options() -> _Options:
    parser = options_parser(
        "How many records a second a client hands to a loop that only looks at them.",
        5,
        clients=CLIENTS,
    )
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of each value")
    return parser.parse_args(namespace=_Options())


if __name__ == "__main__":
    sys.exit(main())
