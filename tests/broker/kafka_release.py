"""Which release of Apache Kafka the tests start their brokers from."""

from __future__ import annotations

import os
from pathlib import Path

from asyncrevoke.broker.installation.jars import KAFKA_VERSION


def kafka_release() -> tuple[int, int]:
    """Its major and minor version: of the jars in ``KAFKA_HOME``, or else of the locked jars."""
    version = KAFKA_VERSION
    if home := os.environ.get("KAFKA_HOME"):
        (jar,) = (Path(home) / "libs").glob("kafka_2.13-[0-9]*[0-9].jar")
        version = jar.stem.removeprefix("kafka_2.13-")
    major, minor, *_ = version.split(".")
    return int(major), int(minor)
