"""Decoders that make columns of many values at once. Needs no pyarrow: checks of options name
their class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from asyncrevoke.client.columns.arrow import Array


class DecodedValues(NamedTuple):
    """What a decoder of columns has made of a column of values.

    ``columns`` is a ``pyarrow.StructArray`` whose row n is value n. It is null for a tombstone, and
    for a value that does not decode. ``failures`` has, by row, why such a value does not decode, in
    the order of the rows: names of fields, types and positions, without content of the value.
    """

    columns: Any
    failures: dict[int, str]


class ColumnDecoder(ABC):
    """Decodes a column of values at once, other than the decoders of single records."""

    @abstractmethod
    def decode(self, values: Array) -> DecodedValues:
        """Decode the values of a column. Row n of the result is value n."""
