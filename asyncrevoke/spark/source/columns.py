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
HEADERS = "headers array<struct<key: string, value: binary>>"
UNREADABLE = "unreadable struct<next_offset: bigint, reason: string>"
"""Null for a record that can be read, and whose timestamp Spark can represent."""

SCHEMA_ID = "schema_id int, payload binary"
"""Null for a value without the framing of a schema registry."""

_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestamp_type": "int",
    "headers": "array<struct<key:string,value:binary>>",
    "unreadable": "struct<next_offset:bigint,reason:string>",
    "schema_id": "int",
    "payload": "binary",
}


def check_columns(schema: StructType) -> list[str]:
    """The names of the requested columns. Raises ConfigError for unknown columns."""
    for field in schema.fields:
        given = field.dataType.simpleString()
        if _TYPES.get(field.name) != given:
            known = ", ".join(f"{name} {kind}" for name, kind in _TYPES.items())
            raise ConfigError(
                f"the source asyncrevoke has no column {field.name} {given}: in .schema(...) use "
                f"columns of {known}"
            )
    return [field.name for field in schema.fields]
