"""Virtual time that passes as fast as possible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.testing.fake_kafka.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.testing.fake_kafka.clock import Alarm


class SimulationClock(Clock):
    """``happened`` is the number of alarms that have run."""

    def __init__(self) -> None:
        super().__init__()
        self.happened = 0

    def pending(self) -> list[Alarm]:
        """The alarms that are still to come, in their order."""
        return [alarm for _, _, alarm in sorted(self._queue) if alarm.action is not None]

    def run_until(self, until: float, done: Callable[[], bool] | None = None) -> bool:
        """Run all alarms that are due by ``until``. Returns True as soon as ``done()`` is true."""
        while self.step(until):
            self.happened += 1
            if done is not None and done():
                return True
        return done is not None and done()
