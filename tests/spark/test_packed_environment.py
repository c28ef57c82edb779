"""Executors that have nothing but an archive of an environment: ``tox -e spark`` asks for it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer

pytest.importorskip("pyspark", reason="needs the extra spark")

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.timeout(500),
    pytest.mark.skipif(
        "ASYNCREVOKE_SPARK_DOWNLOADS" not in os.environ,
        reason="ASYNCREVOKE_SPARK_DOWNLOADS=1 has an environment made, with pip",
    ),
]

ROOT = Path(__file__).parents[2]

APP = """
import asyncrevoke, sys
from asyncrevoke import Consumer
consumer = Consumer(group_id="billing")

@consumer.handler(pattern="plain.*")
async def handle(value: bytes) -> str:
    return asyncrevoke.__file__ + " " + sys.prefix
"""

# Its own path is not for the executors, so it does not come from the environment.
DRIVER = """
import os, sys
address, topic, folder, root, app = sys.argv[1:]
sys.path.insert(0, root)
os.environ["PYSPARK_PYTHON"] = "./environment/bin/python"
os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
from asyncrevoke.spark import replay, resolve_ranges
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    .config("spark.archives", f"{folder}/environment.tar.gz#environment").getOrCreate()
)
report = replay(
    spark, "packed_app:consumer", resolve_ranges(address, topic), sink=f"{folder}/out",
    bootstrap_servers=address, py_files=[app],
)
print("OUTCOMES", dict(report.outcomes))
for row in spark.read.parquet(report.results).select("result").distinct().collect():
    print("RAN", bytes(row[0]).decode())
spark.stop()
"""


def pack(folder: Path) -> None:
    """``environment.tar.gz``, as the documentation says."""
    plain = folder / "made"
    subprocess.run([sys.executable, "-m", "venv", str(plain)], check=True)
    python = str(plain / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", f"{ROOT}", "pyarrow"]
    subprocess.run(install, check=True, timeout=300)
    venv_pack: Any = import_module("venv_pack")
    venv_pack.pack(prefix=str(plain), output=str(folder / "environment.tar.gz"))


def test_executors_run_handlers_in_a_packed_environment(
    kafka_broker: RunningBroker, topic: str, tmp_path: Path
) -> None:
    async def fill() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=kafka_broker.bootstrap_servers)
        async with producer:
            for n in range(100):
                await producer.send_and_wait(topic, b"%d" % n, partition=n % 2)

    asyncio.run(fill())
    pack(tmp_path)
    (tmp_path / "driver.py").write_text(DRIVER)
    (tmp_path / "code").mkdir()
    app = tmp_path / "code" / "packed_app.py"
    app.write_text(APP)
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("PYTHONPATH", None)
    words = [sys.executable, str(tmp_path / "driver.py"), kafka_broker.bootstrap_servers, topic]
    done = subprocess.run(
        [*words, str(tmp_path), str(ROOT), str(app)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert "OUTCOMES {'ok': 100}" in done.stdout
    ran = [line for line in done.stdout.splitlines() if line.startswith("RAN ")]
    assert ran
    for line in ran:
        assert line.count("/environment") == 2, line
        assert str(ROOT) not in line
