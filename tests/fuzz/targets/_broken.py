"""A target that breaks every promise, for the tests of the runner; no run includes it."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import random

_KINDS = (b"raise", b"abort", b"exit", b"slow")


class Broken:
    """Breaks a promise with every fiftieth input."""

    name: ClassVar[str] = "_broken"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def generate(self, random: random.Random) -> bytes:
        """One of the ways to break one, or none."""
        return random.choice(_KINDS) if random.randrange(50) == 0 else b"well"

    def check(self, data: bytes) -> None:
        """Do what the input says."""
        self.counts[data.decode()] += 1
        match data:
            case b"raise":
                raise ValueError("as the input says")
            case b"abort":
                os.abort()
            case b"exit":
                os._exit(3)
            case b"slow":
                end = time.process_time() + 1.1
                while time.process_time() < end:
                    pass
            case _:
                pass
