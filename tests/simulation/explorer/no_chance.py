"""Chance for small worlds, in which nothing is drawn."""

from __future__ import annotations

from random import Random

from typing_extensions import override


class NoChance(Random):
    """Always the same number."""

    def __init__(self, number: float) -> None:
        self._number = number
        super().__init__()

    @override
    def random(self) -> float:
        return self._number
