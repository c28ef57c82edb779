"""Replays whose results are read as typed tables, and written again without repetition."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer

pytest.importorskip("pyspark", reason="needs the extra spark")

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.spark.reading.offsets import resolve_ranges
from asyncrevoke.spark.replays.run import replay
from asyncrevoke.spark.results.result_tables import result_tables, spark_type

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]

APP = """
from dataclasses import dataclass
from datetime import datetime, timezone
from asyncrevoke import Consumer

consumer = Consumer(group_id="billing")

@dataclass
class Invoice:
    order: int
    total: float
    at: datetime
    lines: list[str]

@consumer.handler(pattern="plain.*", publish_to=None)
async def bill(order: int) -> Invoice | None:
    if order % 10 == 3:
        raise ValueError("no")
    if order % 10 == 4:
        return None
    if order % 10 == 5:
        return {"order": "not a number", "total": 1.0, "at": "2026-01-01", "lines": []}
    if order % 10 == 6:
        return "no JSON at all"
    return Invoice(order, order / 2, datetime.fromtimestamp(order, timezone.utc), ["a"] * order)
"""


def test_each_record_is_a_typed_result_or_in_quarantine_and_appends_are_idempotent(
    spark: SparkSession, kafka_broker: RunningBroker, topic: str, app: Path, tmp_path: Path
) -> None:
    (app / "invoice_app.py").write_text(APP)

    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=kafka_broker.bootstrap_servers) as producer:
            for n in range(40):
                await producer.send(topic, b"%d" % n, partition=n % 2)

    asyncio.run(produce())
    address = kafka_broker.bootstrap_servers
    report = replay(
        spark,
        "invoice_app:consumer",
        resolve_ranges(address, topic),
        sink=str(tmp_path / "replayed"),
        run_id="november",
        bootstrap_servers=address,
    )
    invoice_app: Any = importlib.import_module("invoice_app")
    tables = result_tables(spark, report, invoice_app.bill)
    kind = dict(tables.results.dtypes)["result"]
    assert kind == spark_type(invoice_app.Invoice).replace("`", "")
    found = tables.results.orderBy("result.order").collect()
    assert [row.result and row.result.order for row in found] == [
        *[None] * 4,
        *[n for n in range(40) if n % 10 not in (3, 4, 5, 6)],
    ]
    last = found[-1]
    assert (last.run_id, last.topic, last.partition) == ("november", topic, 1)
    assert last.result.total == 19.5
    assert last.result.at.timestamp() == 39
    assert last.result.lines == ["a"] * 39
    failed = tables.quarantine.groupBy("outcome", "error_type").count().collect()
    assert {(row[0], row[1]): row[2] for row in failed} == {
        ("error", "ValueError"): 4,
        ("error", "ResultSchemaError"): 8,
    }
    raw = tables.quarantine.where("error_type = 'ResultSchemaError'").select("result").collect()
    assert b"no JSON at all" in {bytes(row[0]) for row in raw}

    table = str(tmp_path / "invoices")
    for _ in range(2):
        writer = tables.results.write.partitionBy("run_id").mode("overwrite")
        writer.option("partitionOverwriteMode", "dynamic").parquet(table)
    assert spark.read.parquet(table).count() == 28

    text = result_tables(spark, report, "string")
    assert text.results.count() == 36
    assert text.quarantine.count() == 4
    with pytest.raises(ConfigError, match="is not a type of Spark"):
        result_tables(spark, report, "struct<order")
