"""One clock for all processes of the demo."""

from __future__ import annotations

import sys
import time

# There Python's monotonic clock counts from the machine's start, in every process alike.
_SHARED = sys.platform in {"linux", "darwin"}


def now() -> float:
    """Seconds since a moment that is the same for all processes of this machine."""
    return time.monotonic() if _SHARED else time.time()
