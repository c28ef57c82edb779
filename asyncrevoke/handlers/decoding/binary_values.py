"""Checks of what decoders of columns get: a schema, and a column of values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.columns.arrow import pa, pc
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import counted, shown_option

if TYPE_CHECKING:
    from asyncrevoke.client.columns.arrow import Array

# Strings in an Arrow column have positions of 32 bits.
_MOST_BYTES = 2**31 - 1


def check_schema(whose: str, schema: object) -> None:
    """Raise ConfigError for what is not a ``pyarrow.Schema``."""
    if not isinstance(schema, pa.Schema):
        raise ConfigError(
            f"{whose} needs a pyarrow.Schema, not {shown_option(schema)}: "
            'pyarrow.schema([("id", pyarrow.int64()), ...])'
        )


def check_values(values: Array) -> None:
    """Raise TypeError or ValueError unless these can be decoded at once."""
    kind = getattr(values, "type", None)
    if not isinstance(values, pa.Array) or kind not in (pa.binary(), pa.large_binary()):
        named = type(values).__name__ if kind is None else f"{type(values).__name__} of {kind}"
        raise TypeError(
            f"the decoder gets a pyarrow.BinaryArray, not a {named}: a ChunkedArray has "
            "combine_chunks(), and strings are cast to pyarrow.binary()"
        )
    size = pc.sum(pc.binary_length(values)).as_py() or 0
    if size > _MOST_BYTES:
        raise ValueError(
            f"the decoder gets at most {counted(_MOST_BYTES, 'byte')} at once, not {size}: "
            "slice the array"
        )
