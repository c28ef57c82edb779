"""pyarrow, which the extra ``journal`` installs. pyarrow has no type annotations, so these types
inform readers only."""

from __future__ import annotations

from importlib import import_module
from typing import Any, TypeAlias

pa: Any = import_module("pyarrow")
pc: Any = import_module("pyarrow.compute")
pq: Any = import_module("pyarrow.parquet")

Array: TypeAlias = Any
Buffer: TypeAlias = Any
DataType: TypeAlias = Any
ParquetWriter: TypeAlias = Any
RecordBatch: TypeAlias = Any
Schema: TypeAlias = Any
Source: TypeAlias = Any
Table: TypeAlias = Any
