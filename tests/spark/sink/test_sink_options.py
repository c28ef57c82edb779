"""Options and columns of the sink: what is taken, and the sentence for what is not."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from pyspark.sql import types

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.spark.sink.options import SinkOptions
from asyncrevoke.spark.sink.writers import StreamWriter, TableWriter, check_written_columns

HEADERS = types.StructType(
    [types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())]
)
KINDS: dict[str, types.DataType] = {
    "string": types.StringType(),
    "binary": types.BinaryType(),
    "void": types.NullType(),
    "int": types.IntegerType(),
    "bigint": types.LongType(),
    "timestamp": types.TimestampType(),
    "map": types.MapType(types.StringType(), types.BinaryType()),
    "headers": types.ArrayType(HEADERS),
}


def schema(columns: str) -> types.StructType:
    """Names and kinds, without a Spark that could parse DDL."""
    words = [each.split() for each in columns.split(", ")]
    return types.StructType([types.StructField(name, KINDS[kind]) for name, kind in words])


def test_options_become_those_of_a_producer() -> None:
    options = SinkOptions.of(
        {
            "Topic": "orders",
            "kafka.bootstrap.servers": "a:1,b:2",
            "compression": "zstd",
            "kafka.enable.idempotence": "false",
            "request_timeout": "0.4",
            "checkpointLocation": "/tmp/checkpoint",  # noqa: S108 - no file is made
        }
    )
    config = options.config()
    assert options.topic == "orders"
    assert config.bootstrap_servers == ("a:1", "b:2")
    assert (config.compression, config.request_timeout) == ("zstd", 0.4)
    assert not config.idempotent
    assert SinkOptions.of({"topic": "orders"}).config().idempotent


def test_a_password_reaches_tasks_and_is_not_shown() -> None:
    options = SinkOptions.of(
        {
            "topic": "t",
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "ann",
            "sasl_plain_password": "pl4nted",
        }
    )
    copied = pickle.loads(pickle.dumps(options))  # noqa: S301 - as Spark does
    assert copied.config().sasl_plain_password == "pl4nted"
    shown = [repr(options), repr(dataclasses.asdict(options)), repr(options.config())]
    assert not [text for text in shown if "pl4nted" in text]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"topics": "t"}, "did you mean topic"),
        ({"includeHeaders": "true"}, "if the DataFrame has the column headers"),
        ({"topic": "t", "idempotent": "maybe"}, "use true or false"),
        ({"kafka.acks": "1"}, "all in-sync replicas"),
        ({"kafka.transactional.id": "x"}, "a retried task writes its records again"),
        ({"kafka.linger.ms": "5"}, "whole Arrow batches"),
        ({"kafka.sasl.jaas.config": "x"}, "sasl_plain_username"),
        ({"bootstrap_servers": "a:1", "kafka.bootstrap.servers": "b:1"}, "given twice"),
        ({"compression": "brotli"}, "compression"),
        ({"request_timeout": "soon"}, "use seconds, more than 0"),
        ({"request_timeout": "inf"}, "use seconds, more than 0"),
        ({"ssl_cafile": "/x"}, 'need security_protocol="SSL"'),
    ],
)
def test_an_option_that_cannot_work_gets_a_sentence(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        SinkOptions.of(options)


@pytest.mark.parametrize(
    ("columns", "topic", "sentence"),
    [
        ("key string", "t", "has no column value"),
        ("value string", None, "which topic"),
        ("value string, topic string", "t", "leave one of them out"),
        ("value int", "t", "the column value is 'int': cast it to binary or string"),
        ("value string, partition bigint", "t", "column partition is 'bigint': cast it to int"),
        ("value string, offset bigint", "t", r"no column 'offset': .*to_json\(struct"),
        ("value string, value binary", "t", "more than one column value"),
        ("value string, headers map", "t", "column headers is"),
    ],
)
def test_a_column_that_cannot_be_written_gets_a_sentence(
    columns: str, topic: str | None, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        check_written_columns(schema(columns), topic)


def test_all_columns_of_the_connector_are_taken() -> None:
    columns = (
        "key binary, value string, headers headers, topic string, "
        "partition int, timestamp timestamp"
    )
    check_written_columns(schema(columns), None)
    check_written_columns(schema("key void, value binary"), "t")


def test_a_topic_is_never_overwritten() -> None:
    text = schema("value string")
    with pytest.raises(ConfigError, match=r'use .mode\("append"\)'):
        TableWriter({"topic": "t"}, text, overwrite=True)
    with pytest.raises(ConfigError, match="foreachBatch"):
        StreamWriter({"topic": "t"}, text, overwrite=True)
