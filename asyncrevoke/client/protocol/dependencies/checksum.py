"""CRC-32C, which record batches have.

The package crc32c reads its own version from the metadata of installed packages when it is
imported, for which it imports 50 modules. Its extension needs none of them.
"""

from __future__ import annotations

import struct
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

# Where a record batch has its checksum, which covers what follows it.
_CHECKSUM: Final = struct.Struct(">I")
_CHECKSUM_AT: Final = 17


def _of_extension() -> Callable[[Buffer], int] | None:
    """The function of the extension; None if the package has another form."""
    package = find_spec("crc32c")
    if package is None or package.submodule_search_locations is None:
        return None
    found = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if found is None or found.loader is None:
        return None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return cast("Callable[[Buffer], int] | None", getattr(module, "crc32c", None))


def _of_package() -> Callable[[Buffer], int]:
    from crc32c import crc32c as found

    return found


crc32c = _of_extension() or _of_package()
"""The CRC-32C of bytes."""


def is_intact(batch: bytes | memoryview) -> bool:
    """Whether the checksum of a record batch is right. The parser's own check takes eleven times as
    long."""
    expected: int = _CHECKSUM.unpack_from(batch, _CHECKSUM_AT)[0]
    return crc32c(memoryview(batch)[_CHECKSUM_AT + _CHECKSUM.size :]) == expected
