"""The whole core against impossible responses, at times when it does not wait for them.

An input is a header of four bytes, which says what consumer it is, and operations of three bytes: a
code, and the seed of everything that is drawn for it. So an operation can be left out of an input
and the others stay what they are.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from random import Random
from typing import Any, ClassVar

from fuzz.core_environment.environment import CoreEnvironment
from fuzz.core_environment.operations import FIRST_USUAL, NAMES

from asyncrevoke.client.config import ConsumerConfig

HEADER = 4
OPERATION = 3


@cache
def config_of(kind: int) -> ConsumerConfig:
    """One of the consumers that there are."""
    protocol = ("classic", "classic", "consumer", "auto")[kind & 3]
    mode = ("ack", "processed", "ack", "manual")[kind >> 2 & 3]
    options: dict[str, Any] = {"group_protocol": protocol, "commit_mode": mode}
    if protocol != "consumer":
        options["assignors"] = (("range",), ("cooperative-sticky",))[kind >> 4 & 1]
    if kind >> 5 & 1:
        options["group_instance_id"] = "static"
    if kind >> 6 & 1:
        options["auto_offset_reset"] = "error"
    if kind >> 7 & 1 and mode != "manual":
        options["revoke_gaps"] = "drop"
    return ConsumerConfig(group_id="g", **options)


class CoreTarget:
    """Runs operations on one core; keeps book of what the user was given and has completed."""

    name: ClassVar[str] = "core"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def generate(self, random: Random) -> bytes:
        """A consumer, and up to 120 operations, of which few or many are hostile."""
        data = bytearray(random.randbytes(HEADER + OPERATION * random.randrange(10, 120)))
        share = random.choice((0.0, 0.03, 0.1, 0.3))
        for at in range(HEADER, len(data), OPERATION):
            codes = (0, FIRST_USUAL) if random.random() < share else (FIRST_USUAL, 256)
            data[at] = random.randrange(*codes)
        return bytes(data)

    def check(self, data: bytes) -> None:
        """Run it; raises what the core raises, and ``CoreBroke``."""
        data = data.ljust(HEADER, b"\0")
        world = CoreEnvironment(
            config_of(data[0]), data[1], Random(data[2] << 8 | data[3]), self.counts
        )
        world.begin(quickly=data[1] & 1 == 0)
        for at in range(HEADER, len(data) - OPERATION + 1, OPERATION):
            world.draw = Random(data[at + 1] << 8 | data[at + 2])
            world.operate(NAMES[data[at]])
        world.end()
