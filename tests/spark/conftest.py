"""One Spark for all tests, and an application whose handlers it runs."""

from __future__ import annotations

import importlib
import os
import sys
import uuid
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asyncrevoke.broker import RunningBroker

APP = """
import asyncio, glob, os, random
from asyncrevoke import Consumer, HandlerContext, Record, Retry, Router

FOLDER = os.environ["REPLAY_TEST_FOLDER"]
consumer = Consumer(group_id="billing", concurrency=16)

def note(name, text):
    # Appends of a line are atomic.
    with open(f"{FOLDER}/{name}", "a") as file:
        file.write(text + "\\n")

@consumer.handler(pattern="plain.*", retry=Retry(attempts=2, backoff=0.01))
async def plain(value: bytes, record: Record, context: HandlerContext) -> object:
    note("effects", "%s %d %d" % context.idempotency_key)
    if value == b"bad":
        raise KeyError("bad")
    return "even" if record.offset % 2 == 0 else None

@consumer.handler(pattern="keyed.*")
async def keyed(record: Record) -> None:
    await asyncio.sleep(random.uniform(0.0005, 0.004))
    note("order", "%d %s %d" % (record.partition, record.key.decode(), record.offset))

@consumer.handler(pattern="odd.*")
async def odd(value: bytes) -> object:
    return object()

@consumer.handler(pattern="halting.*", on_error="stop")
async def halting(value: bytes, record: Record, context: HandlerContext) -> None:
    note("effects", "%s %d %d" % context.idempotency_key)
    if record.partition == 1 and not os.path.exists(f"{FOLDER}/mended"):
        # Not before the other partition's rows are written: a task that fails ends the others.
        async with asyncio.timeout(100):
            while not glob.glob(f"{FOLDER}/halting/results/*/part-*.parquet"):
                await asyncio.sleep(0.05)
        raise RuntimeError("not mended yet")

@consumer.handler(pattern="held.*")
async def held(record: Record, context: HandlerContext) -> None:
    note("effects", "%s %d %d" % context.idempotency_key)
    if record.offset == 150 and not os.path.exists(f"{FOLDER}/mended"):
        await asyncio.sleep(3600)

@consumer.handler(pattern="letters.*", dead_letter="dead-of-replay")
async def letters(value: bytes) -> None:
    raise ValueError("no")

TWICE = Retry(attempts=2, backoff=0)

@consumer.handler(pattern="redone.*", dead_letter="dead-of-redone", retry=TWICE)
async def redone(value: bytes, record: Record, context: HandlerContext) -> object:
    note("effects", "%s %d %d" % context.idempotency_key)
    if not os.path.exists(f"{FOLDER}/mended"):
        raise ConnectionError("not yet")
    if value == b"bad":
        raise KeyError("still bad")
    return f"{context.idempotency_key} {record.timestamp} {record.key} {value} {record.headers}"

router = Router()
empty = Consumer(group_id="billing")
"""


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of ``replayed_app.py``, which is importable here and on workers."""
    folder = tmp_path_factory.mktemp("app")
    (folder / "replayed_app.py").write_text(APP)
    before = os.environ.get("PYTHONPATH")
    root = os.getcwd()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), root, before]))
    sys.path.insert(0, str(folder))
    os.environ["REPLAY_TEST_FOLDER"] = str(folder)
    importlib.invalidate_caches()
    yield folder
    sys.path.remove(str(folder))
    sys.modules.pop("replayed_app", None)
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


@pytest.fixture(scope="session")
def spark(app: Path) -> Iterator[SparkSession]:
    """A local Spark with two cores."""
    pytest.importorskip("pyspark", reason="needs the extra spark")
    from asyncrevoke.spark.session import open_session

    session = open_session("local[2]")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    yield session
    session.stop()


@pytest.fixture
def notes(app: Path) -> Path:
    """Where handlers write, empty."""
    for name in ("effects", "order", "mended"):
        (app / name).unlink(missing_ok=True)
    return app


@pytest.fixture
def topic(kafka_broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    """A fresh topic with two partitions, for the handler named by indirect parametrization."""
    name = f"{getattr(request, 'param', 'plain')}-{uuid.uuid4().hex[:8]}"
    kafka_broker.create_topic(name, 2)
    return name
