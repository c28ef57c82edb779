"""The programs of examples/lake are killed and continue: each record is stored once."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.broker import RunningBroker

EXAMPLES = Path(__file__).parents[3] / "examples" / "lake"
RECORDS = 2_000
DEADLINE = 60.0
Row = tuple[int, int, bytes]

pytestmark = [pytest.mark.broker, pytest.mark.timeout(150)]


def in_parquet(lake: Path) -> Any:
    parquet: Any = import_module("pyarrow.parquet")
    files = sorted(lake.glob("*.parquet"))
    pyarrow: Any = import_module("pyarrow")
    return pyarrow.concat_tables([parquet.read_table(file) for file in files]) if files else None


def in_delta(lake: Path) -> Any:
    deltalake: Any = import_module("deltalake")
    if not deltalake.DeltaTable.is_deltatable(str(lake)):
        return None
    return deltalake.DeltaTable(lake).to_pyarrow_table()


def in_duckdb(lake: Path) -> Any:
    duckdb: Any = import_module("duckdb")
    with duckdb.connect(str(lake), read_only=True) as database:
        return database.sql("SELECT * FROM records").to_arrow_table()


def in_clickhouse(lake: Path) -> Any:
    """Read by a process of its own, as chdb opens one folder a process."""
    read = (
        "import sys; from chdb import session; "
        "query = 'SELECT partition, offset, CAST(value AS String) AS value FROM records FINAL'; "
        "sys.stdout.buffer.write(session.Session(sys.argv[1]).query(query, 'ArrowStream').bytes())"
    )
    result = subprocess.run(
        [sys.executable, "-c", read, str(lake)], capture_output=True, check=True, timeout=60
    )
    pyarrow: Any = import_module("pyarrow")
    return pyarrow.ipc.open_stream(result.stdout).read_all()


@dataclass(frozen=True)
class Kind:
    """An example, the package that it needs, who reads its lake, and whether that is possible while
    it runs."""

    name: str
    package: str
    read: Callable[[Path], Any]
    shared: bool


KINDS = [
    Kind("to_parquet", "pyarrow", in_parquet, shared=True),
    Kind("to_delta", "deltalake", in_delta, shared=True),
    Kind("to_duckdb", "duckdb", in_duckdb, shared=False),
    Kind("to_clickhouse", "chdb", in_clickhouse, shared=False),
]


async def produce(address: str, topic: str, first: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=address, linger_ms=5) as producer:
        for number in range(first, first + RECORDS):
            await producer.send(topic, b"order %d" % number, b"customer %d" % (number % 70))


async def until(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_an_example_that_is_killed_has_stored_each_record_once(
    kind: Kind, kafka_broker: RunningBroker, kafka_topic: str, tmp_path: Path
) -> None:
    pytest.importorskip(kind.package)
    address, lake, log = kafka_broker.bootstrap_servers, tmp_path / "lake", tmp_path / "log"
    command = [sys.executable, "-u", str(EXAMPLES / f"{kind.name}.py"), "--bootstrap", address]
    command += ["--topic", kafka_topic, "--group", kafka_topic, "--instance", "one"]
    command += ["--lake", str(lake), "--max-wait", "0.2"]
    running: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        with log.open("ab") as file:
            running.append(subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT))
        return running[-1]

    def count() -> int:
        table = kind.read(lake)
        return 0 if table is None else int(table.num_rows)

    async def stored(process: subprocess.Popen[bytes], rows: int) -> None:
        if kind.shared:
            await until(lambda: count() >= rows, process, log)
        else:
            admin = Committed(address, kafka_topic)
            await until(lambda: admin.sum() >= rows, process, log)

    try:
        await produce(address, kafka_topic, 0)
        killed = start()
        await stored(killed, RECORDS // 2)
        await produce(address, kafka_topic, RECORDS)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        restarted = start()
        await stored(restarted, RECORDS * 2)
        restarted.send_signal(signal.SIGINT)
        assert restarted.wait(DEADLINE) == 0, log.read_text()
    finally:
        for process in running:
            process.kill()
            process.wait()
    table = kind.read(lake)
    columns = [table.column(name).to_pylist() for name in ("partition", "offset", "value")]
    rows = list(zip(*columns, strict=True))
    assert len(rows) == len(set(rows)) == RECORDS * 2
    assert len({(partition, offset) for partition, offset, _ in rows}) == RECORDS * 2
    values = {value if isinstance(value, bytes) else value.encode() for _, _, value in rows}
    assert values == {b"order %d" % number for number in range(RECORDS * 2)}


class Committed:
    """The offsets that a group has committed, for lakes that one process at a time may open."""

    def __init__(self, address: str, group: str) -> None:
        confluent_kafka: Any = import_module("confluent_kafka")
        admin: Any = import_module("confluent_kafka.admin")
        self._admin = admin.AdminClient({"bootstrap.servers": address})
        self._group = confluent_kafka.ConsumerGroupTopicPartitions(group)

    def sum(self) -> int:
        """The sum of all partitions."""
        (found,) = self._admin.list_consumer_group_offsets([self._group]).values()
        return sum(max(each.offset, 0) for each in found.result().topic_partitions)
