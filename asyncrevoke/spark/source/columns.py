"""The columns of ``format("asyncrevoke")``, in Spark's notation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestamp_type int"
)
HEADERS = "headers array<struct<key:string,value:binary>>"
UNREADABLE = "unreadable struct<next_offset:bigint,reason:string>"
"""Null for a record that can be read, and whose timestamp Spark can represent."""

SCHEMA_ID = "schema_id int, payload binary"
"""Null for a value without the framing of a schema registry."""

_KNOWN = f"{SCHEMA}, {HEADERS}, {UNREADABLE}, {SCHEMA_ID}"


def check_columns(schema: StructType) -> list[str]:
    """The names of the requested columns. Raises ConfigError for unknown columns."""
    known = {name: kind for name, _, kind in (c.partition(" ") for c in _KNOWN.split(", "))}
    for field in schema.fields:
        given = field.dataType.simpleString()
        if field.name not in known:
            raise ConfigError(
                f"the source asyncrevoke has no column {field.name} {given}: in .schema(...) use "
                f"columns of {_KNOWN}"
            )
        if given != known[field.name]:
            raise ConfigError(
                f"the column {field.name} of the source asyncrevoke is {known[field.name]}, and "
                f".schema(...) says {given}: use {known[field.name]}, and convert it after load()"
            )
    return [field.name for field in schema.fields]
