"""Passwords that are options of Spark's readers: nothing that is shown of them has one."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from asyncrevoke.replays.opened_handlers import Target
from asyncrevoke.spark.audits.sources import BrokerRecords
from asyncrevoke.spark.replays.engines import ReplayJob
from asyncrevoke.spark.replays.progress import Address
from asyncrevoke.spark.source.options import SourceOptions

PASSWORD = "pl4nted-s3cret"
OPTIONS = {
    "topic": "orders",
    "bootstrap_servers": "localhost:9092",
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "ann",
    "sasl_plain_password": PASSWORD,
}


def test_the_options_of_a_source_show_no_value() -> None:
    options = SourceOptions.of(OPTIONS)
    reader = BrokerRecords(options, {}, compacted=False)
    shown = [repr(options), str(options), repr(dataclasses.asdict(options)), repr(reader)]
    shown += [repr(options.config()), repr(options.given)]
    assert not [text for text in shown if PASSWORD in text]
    assert "sasl_plain_password" in repr(options)


def test_options_reach_tasks_with_their_values() -> None:
    options = SourceOptions.of(OPTIONS)
    copied = pickle.loads(pickle.dumps(options))  # noqa: S301 - as Spark does
    assert copied == options
    assert hash(copied) == hash(options)
    assert copied.config().sasl_plain_password == PASSWORD


def test_a_job_shows_neither_options_nor_the_word_of_its_driver() -> None:
    job = ReplayJob(
        target=Target("app:consumer"),
        isolation_level="read_committed",
        no_progress_timeout=1.0,
        max_errors=None,
        engine="source",
        source_options={"sasl_plain_password": PASSWORD},
        report_to=Address("127.0.0.1", 1, PASSWORD),
    )
    assert PASSWORD not in repr(job)
