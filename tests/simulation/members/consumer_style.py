"""How an application uses its consumer, and how long its work takes."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random


class ConsumerStyle(enum.Enum):
    """How an application uses its consumer.

    * ``LOOP``: works through each batch, then asks for the next (``commit_mode="processed"``). With
      transactions, each batch has a block ``async with transaction()``.
    * ``RECORDS``: like it, record by record, as ``records()`` gives them.
    * ``TASKS``: a handler per record, some slow, and some members run one at a time of each key; on
      a revoke what was not started is dropped, gaps too if the next owner can know of them.
    * ``GROUP``: like it, but everything that was delivered is finished (a task group).
    * ``ACK``: tasks of the user, who delays revokes by hand (``commit_mode="ack"``,
      ``auto_delay_revoke=False``).
    * ``MANUAL``: commits each batch before asking for the next (``commit_mode="manual"``).

    A consumer may change between the first two and ``GROUP`` at any time, without transactions.
    """

    LOOP = "loop"
    RECORDS = "records"
    TASKS = "tasks"
    GROUP = "group"
    ACK = "ack"
    MANUAL = "manual"

    @property
    def tracked(self) -> bool:
        """Whether records are done one by one."""
        return self in (ConsumerStyle.TASKS, ConsumerStyle.GROUP, ConsumerStyle.ACK)


OPTIONS: Mapping[ConsumerStyle, Mapping[str, object]] = {
    ConsumerStyle.LOOP: {},
    ConsumerStyle.RECORDS: {},
    ConsumerStyle.TASKS: {},
    ConsumerStyle.GROUP: {},
    ConsumerStyle.ACK: {"commit_mode": "ack", "auto_delay_revoke": False},
    ConsumerStyle.MANUAL: {"commit_mode": "manual"},
}


# Styles between which a consumer may change at any time.
ITERATING_STYLES = (ConsumerStyle.LOOP, ConsumerStyle.RECORDS, ConsumerStyle.GROUP)


class Progress(enum.Enum):
    """What lifespans store with their states."""

    OFFSET = "partition.offset_to_commit"
    MAP = "partition.progress"


@dataclass(frozen=True, slots=True)
class WorkTime:
    """How long work takes, in seconds: up to ``usual``, or up to ``slow`` in ``slow_share`` of
    cases."""

    usual: float = 0.03
    slow: float = 1.0
    slow_share: float = 0.03

    def draw(self, rng: Random) -> float:
        """How long the next work takes."""
        longest = self.slow if rng.random() < self.slow_share else self.usual
        return 0.001 + rng.random() * longest
