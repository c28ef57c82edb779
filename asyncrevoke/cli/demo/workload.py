"""What the demo does: when members start and stop, which orders it produces."""

from __future__ import annotations

import enum
import random
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

# Here Python's monotonic clock counts from the start of the machine, in all processes.
_SHARED = sys.platform in {"linux", "darwin"}


def now() -> float:
    """Seconds since a moment that all processes of this machine share."""
    return time.monotonic() if _SHARED else time.time()


class Action(enum.StrEnum):
    """A change of a member: ``stop`` is a SIGTERM, ``kill`` a SIGKILL."""

    JOIN = "joins"
    STOP = "leaves"
    KILL = "is killed"


class ScheduleStep(NamedTuple):
    """``at`` is in seconds after the start."""

    at: float
    action: Action
    member: str


def churn(seconds: float, *, kills: int = 0) -> tuple[ScheduleStep, ...]:
    """Four members within ``seconds``: three join, one leaves, a fourth joins, another leaves. The
    last ``kills`` of those that leave are killed."""
    sixth = seconds / 6
    first, second = (Action.KILL if kills > later else Action.STOP for later in (1, 0))
    return (
        ScheduleStep(0, Action.JOIN, "A"),
        ScheduleStep(sixth, Action.JOIN, "B"),
        ScheduleStep(2 * sixth, Action.JOIN, "C"),
        ScheduleStep(3 * sixth, first, "A"),
        ScheduleStep(4 * sixth, Action.JOIN, "D"),
        ScheduleStep(5 * sixth, second, "B"),
    )


CUSTOMERS = 400
SLOW_SHARE = 0.01


class Order(msgspec.Struct):
    """The value of a record; its handler takes ``seconds``."""

    number: int
    customer: str
    seconds: float


class Invoice(msgspec.Struct, frozen=True):
    """The value of a result: the record of an order that it is of."""

    partition: int
    offset: int
    customer: str


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
