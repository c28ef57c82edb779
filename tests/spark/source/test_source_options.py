from __future__ import annotations

from datetime import UTC, datetime

import pytest

from asyncrevoke.errors import ConfigError
from asyncrevoke.spark.reading.offsets import OffsetRange
from asyncrevoke.spark.reading.places import GroupOffsets
from asyncrevoke.spark.source.options import SourceOptions, to_place


def test_options_are_texts_and_the_rest_has_defaults() -> None:
    options = SourceOptions.of(
        {"Topic": "orders", "bootstrap_servers": "a:1,b:2", "max_offsets_per_trigger": "10"}
    )
    assert (options.topic, options.start, options.end) == ("orders", "earliest", "latest")
    assert options.max_offsets_per_trigger == 10
    assert options.config().isolation_level == "read_committed"
    assert options.config().bootstrap_servers == ("a:1", "b:2")


def test_ranges_are_read_as_they_are_planned() -> None:
    options = SourceOptions.of({"topic": "t", "ranges": '[["t", 1, 5, 9]]'})
    assert options.ranges == (OffsetRange("t", 1, 5, 9),)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "which topic"),
        ({"topic": "t", "startingOffsets": "earliest"}, "is of Spark's Kafka connector: .* start"),
        ({"topic": "t", "kafka.group.id": "g"}, r"never commits .*group:NAME.*handover"),
        ({"topic": "t", "failOnDataLoss": "false"}, 'missing="clip"'),
        ({"topic": "t", "minPartitions": "8"}, "in order: leave it out"),
        ({"topic": "t", "topics": "u"}, "did you mean topic"),
        ({"topic": "t", "missing": "skip"}, 'use "error" or "clip"'),
        ({"topic": "t", "include_headers": "yes"}, "use true or false"),
        ({"topic": "t", "max_offsets_per_trigger": "0"}, "at least 1"),
        ({"topic": "t", "no_progress_timeout": "-1"}, "more than 0"),
        ({"topic": "t", "ranges": "[1]"}, "as JSON"),
        ({"topic": "t", "ranges": '[["t", "0", 1, 2]]'}, "as JSON"),
        ({"topic": "t", "ranges": '[["t", 0, 5, 2]]'}, "no end before its start"),
        ({"topic": "t", "ranges": '[["u", 0, 1, 2]]'}, "a range of topic 'u', and .* topic 't'"),
        ({"topic": "t", "ranges": '[["t", 0, 1, 2]]', "end": "5"}, "and end= too"),
        ({"topic": "t", "ssl_cafile": "/x"}, 'need security_protocol="SSL"'),
        ({"topic": "t", "security_protocol": "TLS"}, "security_protocol"),
    ],
)
def test_mistakes_get_a_sentence(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        SourceOptions.of(options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"end": "latest"}, r"end= is for tables .*trigger\(availableNow=True\)"),
        ({"ranges": '[["t", 0, 1, 2]]'}, "ranges= is for tables .*checkpoint"),
    ],
)
def test_a_stream_refuses_the_options_of_tables(options: dict[str, str], sentence: str) -> None:
    types = pytest.importorskip("pyspark.sql.types", reason="needs the extra spark")
    from asyncrevoke.spark.source.data_source import KafkaSource

    source = KafkaSource({"topic": "t", **options})
    with pytest.raises(ConfigError, match=sentence):
        source.streamReader(types.StructType().add("value", "binary"))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", "earliest"),
        ("now", "latest"),
        ("17", 17),
        ('{"0": 17}', {0: 17}),
        ("group:billing", GroupOffsets("billing")),
        ("2026-11-01T00:00Z", datetime(2026, 11, 1, tzinfo=UTC)),
        ("2026-11-01T00:00", datetime(2026, 11, 1).astimezone()),
    ],
)
def test_places_are_typed_as_people_do(text: str, place: object) -> None:
    assert to_place("--from", text) == place


@pytest.mark.parametrize("text", ["yesterday", "{", '{"x": 1}', '{"0": "1"}', "group:", "-1"])
def test_an_invalid_position_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="--from="):
        to_place("--from", text)
