"""The orders that the demo produces: their customers, and the durations of their handlers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

CUSTOMERS = 400
SLOW_SHARE = 0.01


class Order(msgspec.Struct):
    """The value of a record; its handler takes ``seconds``."""

    number: int
    customer: str
    seconds: float


def orders(seed: int = 1) -> Iterator[Order]:
    """Endless orders. Handlers of one in a hundred take 2 to 3 s, and 50 ms on average. The same
    seed gives the same orders."""
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    number = 0
    while True:
        slow = rng.random() < SLOW_SHARE
        yield Order(
            number=number,
            customer=f"customer-{rng.randrange(CUSTOMERS)}",
            seconds=rng.uniform(2, 3) if slow else rng.uniform(0.005, 0.045),
        )
        number += 1
