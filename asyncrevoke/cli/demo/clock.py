"""One clock for all processes of the demo."""

from __future__ import annotations

import sys
import time

# Counted from the machine's start, and so the same in every process, where Python takes it from
# CLOCK_MONOTONIC or its like.
_SHARED = sys.platform in {"linux", "darwin"}


def now() -> float:
    """Seconds since some moment that is the same in all processes of this machine."""
    return time.monotonic() if _SHARED else time.time()
