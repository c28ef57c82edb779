"""A column of bytes or text as numpy arrays."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from asyncrevoke.spark.arrow import Array, pa, pc

Numbers: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]


class BinaryColumn(NamedTuple):
    """``array`` has bytes without nulls. Row ``r`` is ``content[begin[r]:begin[r] + length[r]]``,
    which is empty if ``null[r]``."""

    array: Array
    content: NDArray[np.uint8]
    begin: Numbers
    length: Numbers
    null: Flags

    @classmethod
    def of(cls, column: Array) -> BinaryColumn:
        """From a column of type binary, string, their large types, or null."""
        array = cast("Array", pc.cast(column, pa.binary()))
        null = ~array.is_valid().to_numpy(zero_copy_only=False)
        if null.any():
            array = array.fill_null(b"")
        _, bounds, data = array.buffers()
        assert bounds is not None
        offsets = np.frombuffer(bounds, np.int32)[array.offset : array.offset + len(array) + 1]
        begin = offsets[:-1].astype(np.int64)
        content = np.frombuffer(b"" if data is None else data, np.uint8)
        return cls(array, content, begin, offsets[1:] - begin, null)
