"""A Spark for audits of a few hundred rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def quick(spark: SparkSession) -> Iterator[SparkSession]:
    """Code is not compiled for a hundred rows."""
    changed = {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
    }
    before = {name: str(spark.conf.get(name)) for name in changed}
    for settings in (changed, before):
        for name, value in settings.items():
            spark.conf.set(name, value)
        if settings is changed:
            yield spark
