"""A clock that all processes of the demo share."""

from __future__ import annotations

import sys
import time

# Here Python's monotonic clock counts from the start of the machine, in all processes.
_SHARED = sys.platform in {"linux", "darwin"}


def now() -> float:
    """Seconds since a moment that all processes of this machine share."""
    return time.monotonic() if _SHARED else time.time()
