from __future__ import annotations

import dataclasses
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.spark.reading.offsets import OffsetRange, configured
from asyncrevoke.spark.reading.places import GroupOffsets
from asyncrevoke.spark.reading.range_splits import RangeSplits
from asyncrevoke.spark.reading.topic_selection import TopicSelection
from asyncrevoke.spark.source.option_values import to_place
from asyncrevoke.spark.source.options import SourceOptions

FIRST_OF_NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC)
PARTITIONS = {"a": (0, 1), "b": (2,)}
OAUTH = {"topic": "t", "security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
TOKENS = """
class Provider:
    async def token(self) -> str:
        return "asked"

def open_provider() -> Provider:
    return Provider()

provider = Provider()
"""


def test_options_are_texts_and_the_rest_has_defaults() -> None:
    options = SourceOptions.of(
        {"Topic": "orders", "bootstrap_servers": "a:1,b:2", "max_offsets_per_trigger": "10"}
    )
    assert (options.topic, options.start, options.end) == ("orders", "earliest", "latest")
    assert options.max_offsets_per_trigger == 10
    assert (options.min_offsets_per_trigger, options.max_trigger_delay) == (None, 900)
    assert options.config().isolation_level == "read_committed"
    assert options.config().bootstrap_servers == ("a:1", "b:2")


def test_ranges_are_read_as_they_are_planned() -> None:
    options = SourceOptions.of({"topic": "t", "ranges": '[["t", 1, 5, 9], ["t", 0, 1, 2, "id"]]'})
    assert options.ranges == (
        OffsetRange("t", 1, 5, 9),
        OffsetRange("t", 0, 1, 2, topic_id="id"),
    )


@pytest.mark.parametrize(
    ("options", "topics"),
    [
        ({"topic": "a, b,a"}, TopicSelection(("a", "b"))),
        ({"subscribe": "a,b"}, TopicSelection(("a", "b"))),
        ({"subscribePattern": "a.*"}, TopicSelection(pattern="a.*")),
        ({"assign": '{"b": [2], "a": [0, 1]}'}, TopicSelection(("a", "b"), None, PARTITIONS)),
    ],
)
def test_topics_are_named_matched_or_assigned(
    options: dict[str, str], topics: TopicSelection
) -> None:
    assert SourceOptions.of(options).topics == topics


def test_options_of_sparks_connector_are_read_by_their_names() -> None:
    options = SourceOptions.of(
        {
            "subscribe": "orders",
            "startingOffsets": '{"orders": {"0": 23, "1": -2}}',
            "endingTimestamp": "1793232000000",
            "failOnDataLoss": "false",
            "includeHeaders": "true",
            "maxOffsetsPerTrigger": "10",
            "minOffsetsPerTrigger": "5",
            "maxTriggerDelay": "2m",
            "minPartitions": "8",
            "maxRecordsPerPartition": "100",
            "kafka.bootstrap.servers": "a:1",
            "kafka.client.id": "me",
            "kafka.isolation.level": "read_uncommitted",
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "SCRAM-SHA-256",
            "kafka.sasl.jaas.config": "kafkashaded.org.apache.kafka.common.security.scram."
            'ScramLoginModule required username="ann" password="p;=\\"w";',
            "kafka.ssl.endpoint.identification.algorithm": "https",
        }
    )
    assert options.start == {"orders": {0: 23, 1: -2}}
    assert options.end == datetime.fromtimestamp(1793232000, UTC)
    assert (options.missing, options.include_headers) == ("clip", True)
    assert (options.max_offsets_per_trigger, options.min_offsets_per_trigger) == (10, 5)
    assert options.max_trigger_delay == 120
    assert options.splits == RangeSplits(8, 100)
    config = options.config()
    assert (config.bootstrap_servers, config.client_id) == (("a:1",), "me")
    assert config.isolation_level == "read_uncommitted"
    assert config.security_protocol == "SASL_PLAINTEXT"
    assert config.sasl_mechanism == "SCRAM-SHA-256"
    assert (config.sasl_plain_username, config.sasl_plain_password) == ("ann", 'p;="w')


def test_times_of_partitions_are_read_in_milliseconds_as_of_sparks_connector() -> None:
    options = SourceOptions.of(
        {"topic": "t", "startingOffsetsByTimestamp": '{"t": {"0": 1793232000000}}'}
    )
    assert options.start == {"t": {0: datetime.fromtimestamp(1793232000, UTC)}}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "which topic"),
        ({"topic": "t", "kafka.group.id": "g"}, r"never commits .*group:NAME.*handover"),
        ({"topic": "t", "minPartitions": "0"}, "min_partitions='0': use a whole number of at"),
        ({"topic": "t", "maxRecordsPerPartition": "x"}, "max_records_per_partition='x': use a wh"),
        (
            {"topic": "t", "min_partitions": "100001"},
            r"min_partitions=100001: use at .* most 100000",
        ),
        (
            {"topic": "t", "maxRecordsPerPartition": "5", "min_offsets_per_task": "5"},
            "max_records_per_partition= splits .* min_offsets_per_task= .*: leave one out",
        ),
        ({"topic": "t", "topics": "u"}, "did you mean topic"),
        ({"topic": "t", "subscribe": "u"}, "topic and subscribe are both topic: leave one"),
        ({"subscribePattern": ""}, "subscribe_pattern is empty"),
        ({"topic": "t", "subscribePattern": "u"}, "topic and subscribe_pattern all select"),
        ({"topic": "a,"}, 'use "orders", or "a,b"'),
        ({"subscribePattern": "("}, "not a valid regular expression of Python"),
        ({"assign": '{"t": ["0"]}'}, r'partitions of each topic: \{"orders": \[0, 1\]\}'),
        ({"assign": "[]"}, "partitions of each topic"),
        ({"topic": "t", "start": "5", "startingOffsets": "earliest"}, "are both start"),
        ({"topic": "t", "startingTimestamp": "today"}, "use milliseconds since the epoch"),
        ({"topic": "t", "startingTimestamp": " 1 "}, "use milliseconds since the epoch"),
        ({"topic": "t", "startingTimestamp": "1_0"}, "use milliseconds since the epoch"),
        ({"topic": "t", "startingTimestamp": "-1"}, "startingtimestamp='-1': use milliseconds"),
        (
            {"topic": "t", "endingOffsetsByTimestamp": '{"t": {"0": 5, "1": -1}}'},
            r"endingoffsetsbytimestamp=\{'t': \{'1': -1\}\}: use milliseconds",
        ),
        ({"topic": "t", "start": "1969-12-31T23:59Z"}, "start=.* is before 1970"),
        (
            {"topic": "t", "start": '{"t": {"0": 5, "1": "1969-12-31T23:59Z"}}'},
            r"start=\{'t': \{1: .*\}\} is before 1970",
        ),
        ({"topic": "t", "start": "9223372036854775808"}, "offsets are at most 9223372036854775807"),
        ({"topic": "t", "start": "9" * 5000}, "start='9.* offsets are at most"),
        ({"topic": "t", "end": '{"t": {"0": 9223372036854775808}}'}, "end=.*'t'.* are at most"),
        ({"topic": "t", "end": f'{{"0": {"9" * 5000}}}'}, "as JSON"),
        ({"topic": "t", "start": '{"0": ' + "[" * 400 + "]" * 400 + "}"}, "start="),
        ({"topic": "t", "start": '{"0": ' + "[" * 100_000 + "]" * 100_000 + "}"}, "as JSON"),
        ({"assign": '{"t": ' + "[" * 100_000 + "]" * 100_000 + "}"}, "assign="),
        ({"topic": "t", "ranges": "[" * 100_000 + "]" * 100_000}, "ranges="),
        ({"topic": "t", "max_offsets_per_trigger": "9" * 5000}, "at most 9223372036854775807"),
        ({"topic": "t", "kafka.client.rack": "a"}, "from the leaders of partitions: leave it out"),
        ({"topic": "t", "kafka.client.dns.lookup": "a"}, "leave it out.*Kafka's Java client"),
        ({"topic": "t", "kafka.bootstrap.server": "a"}, "did you mean kafka.bootstrap.servers"),
        ({"topic": "t", "startingOffsetsByTimestamp": "1"}, "in milliseconds since the epoch"),
        ({"topic": "t", "startingOffsetsByTimestampStrategy": "error"}, "use 'latest', or leave"),
        ({"topic": "t", "endingOffsets": '{"t": {"0": -2}}'}, "no record is before it"),
        ({"topic": "t", "missing": "skip"}, 'use "error" or "clip"'),
        ({"topic": "t", "failOnDataLoss": "no"}, "failondataloss='no': use true or false"),
        ({"topic": "t", "include_headers": "yes"}, "use true or false"),
        ({"topic": "t", "max_offsets_per_trigger": "0"}, "at least 1"),
        ({"topic": "t", "maxTriggerDelay": "soon"}, 'use a time like "90s", "15m" or "2h"'),
        (
            {"topic": "t", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "min_offsets_per_trigger=9 is more than",
        ),
        ({"topic": "t", "no_progress_timeout": "-1"}, "more than 0"),
        ({"topic": "t", "ranges": "[1]"}, "as JSON"),
        ({"topic": "t", "ranges": '[["t", "0", 1, 2]]'}, "as JSON"),
        ({"topic": "t", "ranges": '[["t", 0, 1, 2, 3]]'}, "as JSON"),
        ({"topic": "t", "ranges": '[["t", 0, 5, 2]]'}, "each start at most its end"),
        ({"topic": "t", "ranges": '[["u", 0, 1, 2]]'}, "a range of topic 'u', and .* topic 't'"),
        ({"topic": "t", "ranges": '[["t", 0, 1, 2]]', "end": "5"}, "and end= both set"),
        ({"subscribePattern": "t", "ranges": '[["t", 0, 1, 2]]'}, "select the topics with topic="),
        ({"topic": "t", "ssl_cafile": "/x"}, 'need security_protocol="SSL"'),
        ({"topic": "t", "ssl_cafile": "/x", "security_protocol": "SSL"}, "no PEM certificates"),
        ({"topic": "t", "ssl_password": "x", "security_protocol": "SSL"}, "need ssl_certfile"),
        ({"topic": "t", "security_protocol": "TLS"}, "security_protocol"),
        ({"topic": "t", "kafka.fetch.max.bytes": "1"}, "leave it out.*Kafka's Java client"),
        ({"topic": "t", "kafka.ssl.truststore.location": "/x"}, "only PEM is read"),
        ({"topic": "t", "kafka.ssl.keystore.type": "JKS"}, "use 'PEM'.*only PEM is read"),
        ({"topic": "t", "kafka.ssl.endpoint.identification.algorithm": ""}, "always verified"),
        ({"topic": "t", "kafka.sasl.jaas.config": "x.Krb5LoginModule required;"}, "for Kerberos"),
        ({"topic": "t", "kafka.sasl.jaas.config": "x.PlainLoginModule required;"}, "no username="),
        (OAUTH, 'needs sasl_oauth_token_provider="MODULE:ATTRIBUTE"'),
        ({**OAUTH, "sasl_oauth_token_provider": "tokens"}, "use its import path"),
        ({**OAUTH, "sasl_oauth_token_provider": "no.such:token"}, "cannot be imported here"),
        (
            {**OAUTH, "sasl_oauth_token_provider": "a:b", "sasl_oauth_token": "x"},
            "leave one of them out",
        ),
    ],
)
def test_mistakes_get_a_sentence(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        SourceOptions.of(options)


def documented_connector_options() -> list[str]:
    folder = Path(__file__).parents[3] / "docs" / "how-to" / "spark"
    page = (folder / "handover.md").read_text()
    rows = page.partition("| option of the connector |")[2].partition("\n\n")[0].splitlines()[2:-2]
    found = [name for row in rows for name in re.findall(r"`(.+?)`", row.split("|")[1])]
    assert found
    return found


def rejection(options: dict[str, str]) -> str:
    """The error about these options, empty if there is none."""
    try:
        SourceOptions.of(options)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", documented_connector_options())
def test_each_documented_option_of_the_connector_is_read_or_rejected_with_a_way_out(
    name: str,
) -> None:
    assert not re.search("did you mean|there are|Java client", rejection({name: "?"}))


def test_an_unknown_login_module_is_an_error_without_its_password() -> None:
    jaas = 'x.OtherLoginModule required username="ann" password="pl4nted";'
    with pytest.raises(ConfigError) as failure:
        SourceOptions.of({"topic": "t", "kafka.sasl.jaas.config": jaas})
    assert "pl4nted" not in str(failure.value)


async def test_a_token_is_given_or_comes_from_a_provider_that_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = SourceOptions.of({**OAUTH, "sasl_oauth_token": "t0ken"})
    (tmp_path / "own_tokens.py").write_text(TOKENS)
    monkeypatch.syspath_prepend(tmp_path)
    found = [given.config().sasl_oauth_token_provider]
    for name in ("provider", "Provider", "open_provider"):
        options = SourceOptions.of({**OAUTH, "sasl_oauth_token_provider": f"own_tokens:{name}"})
        found.append(options.config().sasl_oauth_token_provider)
    tokens = [await candidate.token() for candidate in found if candidate is not None]
    assert tokens == ["t0ken", "asked", "asked", "asked"]
    assert "t0ken" not in repr(given)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"end": "latest"}, r"end= is for tables .*trigger\(availableNow=True\)"),
        ({"ranges": '[["t", 0, 1, 2]]'}, "ranges= is for tables .*checkpoint"),
        ({"push_filters": "true"}, "push_filters= is for tables .*with assign="),
        ({"maxTriggerDelay": "5s"}, "the wait for min_offsets_per_trigger=, which is .*: add it"),
    ],
)
def test_a_stream_rejects_options_of_tables_and_a_delay_without_a_minimum(
    options: dict[str, str], sentence: str
) -> None:
    types = pytest.importorskip("pyspark.sql.types", reason="needs the extra spark")
    from asyncrevoke.spark.source.data_source import KafkaSource

    source = KafkaSource({"topic": "t", **options})
    with pytest.raises(ConfigError, match=sentence):
        source.streamReader(types.StructType().add("value", "binary"))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"maxOffsetsPerTrigger": "5"}, "max_offsets_per_trigger= is for streams"),
        ({"min_offsets_per_trigger": "5"}, "min_offsets_per_trigger= is for streams"),
        ({"maxTriggerDelay": "5s"}, "max_trigger_delay= is for streams"),
        ({"min_offsets_per_task": "5"}, "min_offsets_per_task= is for streams"),
        ({"startingOffsets": "latest"}, 'start="latest" is for streams'),
        ({"end": "earliest"}, "no record is before the earliest offset"),
    ],
)
def test_a_table_rejects_the_options_of_streams(options: dict[str, str], sentence: str) -> None:
    types = pytest.importorskip("pyspark.sql.types", reason="needs the extra spark")
    from asyncrevoke.spark.source.data_source import KafkaSource

    source = KafkaSource({"topic": "t", **options})
    with pytest.raises(ConfigError, match=sentence):
        source.reader(types.StructType().add("value", "binary"))


@pytest.mark.parametrize(
    ("name", "kind", "sentence"),
    [
        ("price", "string", "has no column price string: .* columns of key binary, "),
        ("value", "string", "column value of .* is binary, and .* says string: use binary, and"),
        ("partition", "long", "column partition of .* is int, and .* says bigint"),
    ],
)
def test_a_schema_that_does_not_fit_is_rejected(name: str, kind: str, sentence: str) -> None:
    types = pytest.importorskip("pyspark.sql.types", reason="needs the extra spark")
    from asyncrevoke.spark.source.data_source import KafkaSource

    schema = types.StructType().add("offset", "long").add(name, kind)
    source = KafkaSource({"topic": "t"})
    for read in (source.reader, source.streamReader):
        with pytest.raises(ConfigError, match=sentence):
            read(schema)


def test_the_largest_limit_of_the_connector_is_none_at_all() -> None:
    options = SourceOptions.of({"topic": "t", "maxOffsetsPerTrigger": str(2**63 - 1)})
    assert options.max_offsets_per_trigger == 2**63 - 1


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", "earliest"),
        ("now", "latest"),
        ("17", 17),
        ('{"0": 17, "1": -1}', {0: 17, 1: -1}),
        ('{"t": {"0": 17, "1": "2026-11-01T00:00Z"}}', {"t": {0: 17, 1: FIRST_OF_NOVEMBER}}),
        ("group:billing", GroupOffsets("billing")),
        ("2026-11-01T00:00Z", FIRST_OF_NOVEMBER),
        ("2026-11-01T00:00", datetime(2026, 11, 1).astimezone()),
    ],
)
def test_places_are_typed_as_people_do(text: str, place: object) -> None:
    assert to_place("--from", text) == place


@pytest.mark.parametrize(
    "text",
    [
        "yesterday",
        "0001-01-01",
        '{"0": "0001-01-01"}',
        "{",
        '{"x": 1}',
        '{"0": "1"}',
        '{"00": 1}',
        '{" 1 ": 1}',
        '{"1_0": 1}',
        '{"+1": 1}',
        '{"\u0661": 1}',
        '{"2147483648": 1}',
        '{"t": {"00": 1}}',
        "group:",
        "-1",
        '{"0": -3}',
    ],
)
def test_an_invalid_position_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="--from="):
        to_place("--from", text)


def test_what_reads_ranges_keeps_every_option_of_security() -> None:
    given = ConsumerConfig(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username="user",
        sasl_plain_password="pencil",
        sasl_scram_max_iterations=5000,
        sasl_kerberos_service_name="brokers",
    )
    for name in (field.name for field in dataclasses.fields(ConsumerConfig)):
        if name.startswith(("sasl_", "ssl_", "security_")):
            assert getattr(configured(given), name) == getattr(given, name), name
