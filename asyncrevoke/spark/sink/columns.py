"""The columns of a DataFrame that is written to Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# In Spark's notation; void is the type of lit(None).
_TYPES: Final = {
    "key": ("binary", "string", "void"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
_KNOWN: Final = (
    "key binary or string, value binary or string, headers array<struct<key:string,value:binary>>, "
    "topic string, partition int, timestamp timestamp"
)


def check_written_columns(schema: StructType, topic: str | None) -> None:
    """Raise ConfigError for columns that cannot be written. ``topic`` is the option."""
    names = [field.name for field in schema.fields]
    for field in schema.fields:
        given, name = field.dataType.simpleString(), field.name
        if name not in _TYPES:
            raise ConfigError(
                f"the sink asyncrevoke has no column {shown_option(name)}: select() columns of "
                f"{_KNOWN}; for a value of several columns use "
                'to_json(struct("*")).alias("value")'
            )
        if given not in _TYPES[name]:
            raise ConfigError(
                f"the column {name} is {shown_option(given)}: cast it to "
                f"{' or '.join(kind for kind in _TYPES[name] if kind != 'void')}"
            )
        if names.count(name) > 1:
            raise ConfigError(f"the DataFrame has more than one column {name}: select() one")
    if "value" not in names:
        raise ConfigError(f"the DataFrame has no column value: select() columns of {_KNOWN}")
    if topic is None and "topic" not in names:
        raise ConfigError('which topic? .option("topic", "orders"), or a column topic')
    if topic is not None and "topic" in names:
        raise ConfigError(
            f"the option topic={shown_option(topic)} and the column topic are both given: leave "
            "one of them out (Spark's Kafka connector ignores the column)"
        )
