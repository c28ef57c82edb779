"""Decodes a column of values with the framing of a schema registry, by a function that decodes many
payloads of one schema id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from asyncrevoke.client.columns.arrow import pa, pc
from asyncrevoke.client.columns.record_columns import FRAMING_SIZE
from asyncrevoke.client.config.record_function import function_name
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import counted, shown_option
from asyncrevoke.handlers.decoding.binary_values import check_schema, check_values
from asyncrevoke.handlers.decoding.column_decoder import ColumnDecoder, DecodedValues
from asyncrevoke.handlers.decoding.decode_failure import described
from asyncrevoke.handlers.decoding.decoders import is_temporary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from asyncrevoke.client.columns.arrow import Array

    Rows: TypeAlias = NDArray[np.int64]
    # pyarrow has no type annotations.
    _Values: TypeAlias = Any
    _Columns: TypeAlias = Any

_END = 2**31 - 1
_UNFRAMED = "the value has no schema id: it does not begin with a zero byte and the four of an id"


class _MisfitError(Exception):
    """What the function returned does not fit; the message has no content of values."""


class _NoColumnsError(TypeError):
    """The function returned something else than columns."""


# Not of single values: what is returned has no columns, or columns of types that are not cast.
_OF_ALL_VALUES = (_NoColumnsError, pa.ArrowNotImplementedError)


class ArrowRegistry(ColumnDecoder):
    """Decodes values that begin with a schema id, as the serializers of a schema registry write
    them: a zero byte, four bytes with the id, and the payload.

    ``decode(schema_id, payloads)`` gets a ``pyarrow.BinaryArray`` without nulls of the payloads
    that have this id, and returns their columns, a row for each, as a ``pyarrow.RecordBatch`` or
    ``StructArray``. These are cast to ``schema``: a column that is missing is null, and others are
    left out. If ``decode`` raises an exception, it is called again with each half of the payloads,
    so that only those rows fail that fail alone. An error of a connection, and an HTTP status of
    408, 429 or 5xx, is raised instead, as the same values may decode later.

    Raises ConfigError for another schema, and if ``decode`` cannot be called. Importing it needs
    pyarrow and numpy: ``pip install 'asyncrevoke[arrow]'``.
    """

    def __init__(
        self,
        schema: Any,  # noqa: ANN401 - pyarrow has no type annotations
        decode: Callable[[int, Any], Any],
    ) -> None:
        check_schema("ArrowRegistry", schema)
        if not callable(decode):
            raise ConfigError(
                f"decode={shown_option(decode)} cannot be called: use a function of a schema id "
                "and an array of payloads"
            )
        self._fields = list(schema)
        self._type = pa.struct(self._fields)
        self._function = decode

    def decode(self, values: Array) -> DecodedValues:
        """Decode the values of a ``pyarrow.BinaryArray`` or ``LargeBinaryArray`` of up to 2 GiB.

        Row n of the result is value n. Raises TypeError for another array, or if the function
        returns something else than columns, and ValueError for an array that is larger.
        """
        check_values(values)
        failures: dict[int, str] = {}
        # Which row of all decoded ones each value is; -1 for a tombstone and one that fails.
        places = np.full(len(values), -1, np.int64)
        decoded: list[Array] = [pa.nulls(0, self._type)]
        count = 0
        for schema_id, rows in _by_schema_id(values, failures):
            for part, columns in self._parts(schema_id, values, rows, failures):
                places[part] = np.arange(count, count + len(part))
                count += len(part)
                decoded.append(columns)
        order = pa.array(places, mask=places < 0)
        columns = pa.concat_arrays(decoded).take(order)
        return DecodedValues(columns, dict(sorted(failures.items())))

    def _parts(
        self, schema_id: int, values: _Values, rows: Rows, failures: dict[int, str]
    ) -> Iterator[tuple[Rows, Array]]:
        """Rows with their columns. Adds the rows that fail to ``failures``."""
        framed = values.take(pa.array(rows))
        # pyarrow 18 to 26 fail without an end.
        payloads = pc.binary_slice(framed, FRAMING_SIZE, _END).cast(pa.binary())
        try:
            columns = self._columns(self._function(schema_id, payloads), len(rows))
        except Exception as error:
            if is_temporary(error) or isinstance(error, _OF_ALL_VALUES):
                raise
            if len(rows) == 1:
                name = function_name(self._function)
                reason = str(error) if isinstance(error, _MisfitError) else described(error)
                failures[int(rows[0])] = f"the value does not decode with {name}: {reason}"
                return
        else:
            yield rows, columns
            return
        half = len(rows) // 2
        yield from self._parts(schema_id, values, rows[:half], failures)
        yield from self._parts(schema_id, values, rows[half:], failures)

    def _columns(self, decoded: _Columns, rows: int) -> Array:
        if isinstance(decoded, pa.StructArray):
            decoded = pa.RecordBatch.from_struct_array(decoded)
        if not isinstance(decoded, pa.RecordBatch):
            raise _NoColumnsError(
                f"{function_name(self._function)} returned a {type(decoded).__name__}: return a "
                "pyarrow.RecordBatch or StructArray, a Table has combine_chunks().to_batches()"
            )
        if decoded.num_rows != rows:
            raise _MisfitError(f"{counted(decoded.num_rows, 'row')} of {counted(rows, 'value')}")
        names = set(decoded.schema.names)
        columns: list[Array] = []
        for field in self._fields:
            name, kind = field.name, field.type
            try:
                column = decoded.column(name).cast(kind) if name in names else pa.nulls(rows, kind)
            except pa.ArrowInvalid:
                column = None
            if column is None:
                raise _MisfitError(f"Expected `{kind}` at $.{name}")
            if column.null_count and not field.nullable:
                raise _MisfitError(f"Expected `{kind}`, got `null` at $.{name}")
            columns.append(column)
        made: Array = pa.StructArray.from_arrays(columns, fields=self._fields)
        return made


def _by_schema_id(values: _Values, failures: dict[int, str]) -> Iterator[tuple[int, Rows]]:
    """The rows of each schema id. Adds the values that have none to ``failures``."""
    sizes = pc.fill_null(pc.binary_length(values), -1).to_numpy()
    short = np.flatnonzero((sizes >= 0) & (sizes < FRAMING_SIZE))
    failures.update(dict.fromkeys(short.tolist(), _UNFRAMED))
    framed = np.flatnonzero(sizes >= FRAMING_SIZE)
    heads = pc.binary_slice(values.take(pa.array(framed)), 0, FRAMING_SIZE).dictionary_encode()
    kinds = heads.indices.to_numpy()
    grouped = framed[np.argsort(kinds, kind="stable")]
    ends = np.cumsum(np.bincount(kinds, minlength=len(heads.dictionary)))
    for head, rows in zip(heads.dictionary.to_pylist(), np.split(grouped, ends[:-1]), strict=False):
        schema_id = int.from_bytes(head[1:], "big", signed=True)
        if head[0] or schema_id < 0:
            failures.update(dict.fromkeys(rows.tolist(), _UNFRAMED))
        else:
            yield schema_id, rows
