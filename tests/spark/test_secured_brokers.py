"""Spark writes and reads topics with TLS, client certificates and each mechanism of SASL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from broker.connections.secured_broker import LISTENERS, PASSWORD, SecureBroker

from asyncrevoke.broker.listeners.ports import HOST
from asyncrevoke.broker.listeners.security import unsigned_token
from asyncrevoke.spark.source.data_source import register

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """A broker with a listener of each kind of security."""
    secure = SecureBroker(tmp_path_factory.mktemp("secure"))
    with secure.broker:
        yield secure


def options(secure: SecureBroker, listener: str) -> dict[str, str]:
    """What connects to a listener."""
    protocol, mechanism = LISTENERS[listener]
    given = {
        "bootstrap_servers": f"{HOST}:{secure.ports[listener]}",
        "security_protocol": protocol,
        "ssl_cafile": str(secure.authority.path),
    }
    if mechanism is None:
        return given | {"ssl_certfile": secure.certificate}
    given["sasl_mechanism"] = mechanism
    if mechanism == "OAUTHBEARER":
        return given | {"sasl_oauth_token": unsigned_token("alice")}
    return given | {"sasl_plain_username": "alice", "sasl_plain_password": PASSWORD}


@pytest.mark.parametrize("listener", ["MUTUAL", "PLAINTLS", "SCRAM512", "BEARER"])
def test_spark_writes_and_reads_a_topic_of_a_secured_broker(
    secure: SecureBroker, spark: SparkSession, listener: str, tmp_path: Path
) -> None:
    register(spark)
    topic = f"secured-{listener.lower()}"
    secure.broker.create_topic(topic, 2)
    secure.broker.allow("alice", "topic", topic, ["all"])
    given = options(secure, listener) | {"topic": topic}
    rows = spark.range(40).selectExpr("cast(id as string) key", "cast(id as string) value")
    rows.write.format("asyncrevoke").mode("append").options(**given).save()
    table = spark.read.format("asyncrevoke").options(**given).load()
    assert {int(row[0]) for row in table.select("value").collect()} == set(range(40))
    folders = {name: str(tmp_path / name) for name in ("path", "checkpointLocation")}
    stream = spark.readStream.format("asyncrevoke").options(**given).load()
    writer = stream.writeStream.format("parquet").options(**folders)
    writer.trigger(availableNow=True).start().awaitTermination()
    assert spark.read.parquet(folders["path"]).select("key").distinct().count() == 40
