"""Decodes a column of JSON values into the columns of an Arrow schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
import numpy as np

from asyncrevoke.client.columns.arrow import pa, pc
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.handlers.decoding.arrow_cells import UNPLACEABLE, StructCells
from asyncrevoke.handlers.decoding.binary_values import check_schema, check_values
from asyncrevoke.handlers.decoding.column_decoder import ColumnDecoder, DecodedValues
from asyncrevoke.handlers.decoding.decode_failure import described

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from asyncrevoke.client.columns.arrow import Array

    # pyarrow has no type annotations.
    _Values: TypeAlias = Any
# Values become Python objects before they become columns: as many at once as these limits permit,
# and one at least.
_BLOCK_CELLS = 32_768
_BLOCK_BYTES = 4 * 2**20
_UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class ArrowJson(ColumnDecoder):
    """Decodes values that are JSON objects into columns.

    ``schema`` is the ``pyarrow.Schema`` of the columns, which are fields of the objects. A missing
    field is null. ``unexpected_fields`` says what becomes of fields that are not in the schema:
    ``"ignore"`` leaves them out, with ``"error"`` a value that has one does not decode. Of a field
    that a value has twice the last counts.

    Raises ConfigError for a type that is not read from JSON, and for an invalid option. Importing
    it needs pyarrow and numpy: ``pip install 'asyncrevoke[arrow]'``.
    """

    def __init__(
        self,
        schema: Any,  # noqa: ANN401 - pyarrow has no type annotations
        *,
        unexpected_fields: Literal["ignore", "error"] = "ignore",
    ) -> None:
        check_schema("ArrowJson", schema)
        if unexpected_fields not in ("ignore", "error"):
            raise ConfigError(
                f"unexpected_fields={shown_option(unexpected_fields)} is not known: use "
                '"ignore" or "error"'
            )
        self._row = StructCells(schema, "$", forbids_unknown=unexpected_fields == "error")
        self._decode = msgspec.json.Decoder(self._row.kind).decode
        self._block_rows = max(1, _BLOCK_CELLS // len(self._row.fields))

    def decode(self, values: Array) -> DecodedValues:
        """Decode the values of a ``pyarrow.BinaryArray`` or ``LargeBinaryArray`` of up to 2 GiB.

        Each value is decoded on its own, so that row n of the result is value n, whatever the
        values are. Takes processor time, and holds the GIL for most of it: in a coroutine, call it
        by ``asyncio.to_thread`` for more than a few hundred values.

        Raises TypeError for another array, and ValueError for one that is larger.
        """
        check_values(values)
        failures: dict[int, str] = {}
        blocks = [self._block(values, block, failures) for block in self._blocks(values)]
        return DecodedValues(blocks[0] if len(blocks) == 1 else pa.concat_arrays(blocks), failures)

    def _blocks(self, values: _Values) -> Iterator[range]:
        """The rows of each block."""
        sizes = pc.fill_null(pc.binary_length(values), 0).to_numpy()
        ends = np.cumsum(sizes, dtype=np.int64)
        first = 0
        while first < len(values) or not first:
            begin = int(ends[first - 1]) if first else 0
            fitting = int(np.searchsorted(ends, begin + _BLOCK_BYTES, "right"))
            end = min(max(fitting, first + 1), first + self._block_rows, len(values))
            yield range(first, end)
            if not len(values):
                return
            first = end

    def _block(self, values: _Values, block: range, failures: dict[int, str]) -> Array:
        part = values.slice(block.start, len(block))
        contents: list[bytes | None] = part.to_pylist()
        rows, failed = self._structs(part, contents)
        try:
            columns = self._columns(rows)
        except UNPLACEABLE:
            for row, reason in self._unplaceable(rows):
                failed[row] = _detail(reason)
                rows[row] = self._row.null
            columns = self._columns(rows)
        failures.update((block.start + row, failed[row]) for row in sorted(failed))
        null: Array | None = None
        if failed or part.null_count:
            null = pa.array([row in failed or at is None for row, at in enumerate(contents)])
        return self._row.of(columns, null)

    def _structs(
        self, values: _Values, contents: Sequence[bytes | None]
    ) -> tuple[list[msgspec.Struct], dict[int, str]]:
        """The values as structs, and by row why one does not decode, which is a struct of nulls."""
        null, decode = self._row.null, self._decode
        failed: dict[int, str] = {}
        try:
            # msgspec does not check the encoding of fields that are left out.
            values.cast(pa.string() if values.type == pa.binary() else pa.large_string())
            return [null if content is None else decode(content) for content in contents], failed
        except (pa.ArrowInvalid, *_UNDECODABLE):
            pass  # which value it is shows below
        rows: list[msgspec.Struct] = []
        for row, content in enumerate(contents):
            rows.append(null)
            if content is None:
                continue
            try:
                content.decode()
                rows[row] = decode(content)
            except RecursionError:
                failed[row] = _detail("nested too deeply")
            except _UNDECODABLE as error:
                failed[row] = _detail(described(error)) if content else "the value is empty"
        return rows, failed

    def _columns(self, rows: Sequence[msgspec.Struct]) -> list[Array]:
        return [
            cells.array(list(map(get, rows)))
            for cells, get in zip(self._row.cells, self._row.getters, strict=True)
        ]

    def _unplaceable(self, rows: Sequence[msgspec.Struct]) -> Iterator[tuple[int, str]]:
        """Rows that have no place in their columns, and why: JSON has no types for dates, and
        decimals and large numbers do not say how many digits they may have."""
        row = self._row
        for field, cells, get in zip(row.fields, row.cells, row.getters, strict=True):
            for number in _failing(cells.array, list(map(get, rows)), 0):
                yield number, f"Expected `{field.type}` at $.{field.name}"


def _detail(reason: str) -> str:
    return f"the value does not decode with ArrowJson: {reason}"


def _failing(
    array: Callable[[Sequence[Any]], Array], cells: Sequence[Any], first: int
) -> Iterator[int]:
    """Which of these cells, counted from ``first``, have no place in a column. Halves them, so that
    one of 10,000 takes 27 attempts."""
    try:
        array(cells)
    except UNPLACEABLE:
        if len(cells) == 1:
            yield first
            return
        half = len(cells) // 2
        yield from _failing(array, cells[:half], first)
        yield from _failing(array, cells[half:], first + half)
