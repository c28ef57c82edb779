"""The Kafka protocol: messages, their versions, and the bytes of records.

kio loads hypothesis wherever that is installed, to register strategies for its types. Nobody here
wants them, and it costs each start half a second: so kio is loaded once without.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from types import ModuleType

_UNWANTED = "hypothesis"


def _load_kio() -> None:
    """Who has loaded hypothesis has its strategies."""
    if _UNWANTED in sys.modules:
        return
    sys.modules[_UNWANTED] = cast("ModuleType", None)  # "not there", to an import statement
    try:
        import kio.static.primitive  # noqa: F401, PLC0415
    finally:
        del sys.modules[_UNWANTED]


_load_kio()
