"""Avro values of a schema registry, by the example of the page and Spark's own functions.

The jar of spark-avro comes from Maven; ``tox -e spark`` asks for it. In a process of
its own: a JVM gets its jars when it starts.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark.clusters.processes import run

pyspark = pytest.importorskip("pyspark", reason="needs the extra spark")

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        "ASYNCREVOKE_SPARK_DOWNLOADS" not in os.environ,
        reason="ASYNCREVOKE_SPARK_DOWNLOADS=1 has the jar of spark-avro fetched from Maven",
    ),
]

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "spark" / "formats.md"

# The example is in place of EXAMPLE.
DRIVER = """
import sys
from pyspark import __version__
from pyspark.sql import SparkSession, functions as F
from pyspark.sql.avro.functions import to_avro
from asyncrevoke.spark import register
from benchmarks.spark.topic import jars

address, topic = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
package = ("org.apache.spark", "spark-avro_2.13", __version__)
spark = builder.config("spark.jars", jars(package)).getOrCreate()
register(spark)
# Two schemas are in the topic: only the example's is decoded by it.
values = spark.range(30).selectExpr("struct(id) AS order", "if(id % 3 = 0, 8, 7) AS schema_id")
values = values.withColumn("avro", to_avro("order", '''
    {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'''))
framed = values.selectExpr("concat(X'00', unhex(lpad(hex(schema_id), 8, '0')), avro) AS value")
writer = framed.write.format("asyncrevoke").option("bootstrap_servers", address)
writer.option("topic", topic).mode("append").save()
EXAMPLE
found = sorted(row.order.id for row in decoded.collect())
print("DECODED", found == [n for n in range(30) if n % 3], decoded.dtypes)
spark.stop()
"""


def example() -> str:
    block = re.search(r"```python\n(from pyspark.sql.avro[^`]+)```", PAGE.read_text("utf-8"))
    assert block is not None
    return block[1]


def test_the_pages_example_decodes_the_avro_values_of_one_schema(
    kafka_broker: RunningBroker, topic: str, tmp_path: Path
) -> None:
    decoding = example().replace('"localhost:9092"', "address").replace('"orders"', "topic")
    (tmp_path / "driver.py").write_text(DRIVER.replace("EXAMPLE", decoding))
    environment = {
        **os.environ,
        "PYTHONPATH": os.getcwd(),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    words = [sys.executable, "driver.py", kafka_broker.bootstrap_servers, topic]
    told = run(words, environment, tmp_path, 350)
    assert "DECODED True [('offset', 'bigint'), ('order', 'struct<id:bigint>')]" in told
