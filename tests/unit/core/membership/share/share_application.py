"""An application that works on the records of a member, one call for each record."""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from unit.core.membership.share.share_broker import Member, World

    from asyncrevoke.client.core.share.acquired_records import AcquiredRecord as Record

# The record, and the ends of its call: what to do, after how many seconds.
Plan: TypeAlias = "Callable[[Record], list[tuple[str, float]]]"


def accept_after(seconds: float) -> Plan:
    def plan(_record: Record) -> list[tuple[str, float]]:
        return [("accept", seconds)]

    return plan


class Application:
    """Starts what is delivered. ``plan`` says what each record's call does: "accept", "reject" or
    "release" ends it, "wait" lets it wait without a slot for the next step, "later" has the core
    release it after that time."""

    def __init__(self, world: World, member: Member, plan: Plan | None = None) -> None:
        self.world, self.member, self.plan = world, member, plan or accept_after(0.0)
        self.started: list[tuple[int, int]] = []
        self.ended: list[tuple[int, int, str]] = []
        self.running: dict[tuple[int, int, int], Record] = {}
        self.cancelled: list[tuple[int, int]] = []
        self._ready: deque[Record] = deque()
        member.woken = lambda: world.at(world.now, self.step)

    def step(self) -> None:
        if self.member.killed:
            return
        for number, offset in self.member.core.take_lost():
            for key in [key for key in self.running if key[1:] == (offset, number)]:
                self.cancelled.append(key[:2])
                del self.running[key]
        self._ready.extend(chain.from_iterable(self.member.call(self.member.core.poll)))
        while self._ready:
            record = self._ready.popleft()
            self._begin(record, self.plan(record))

    def _key(self, record: Record) -> tuple[int, int, int]:
        return record.partition, record.offset, record.acquisition

    def _begin(self, record: Record, steps: list[tuple[str, float]]) -> None:
        if not self.member.call(self.member.core.begin, record):
            self.running.pop(self._key(record), None)
            return
        self.check_lock(record)
        self.started.append((record.partition, record.offset))
        self.running[self._key(record)] = record
        self._next(record, steps)

    def check_lock(self, record: Record) -> None:
        """No call is started whose record may be delivered to another member."""
        lock = self.world.broker.partitions[record.partition].locks.get(record.offset)
        if self.member.fault_free:
            assert lock is not None, record
            assert lock.member == self.member.core.membership.member_id
            assert lock.deadline > self.world.now

    def _next(self, record: Record, steps: list[tuple[str, float]]) -> None:
        (what, after), *rest = steps
        self.world.at(self.world.now + after, partial(self._act, record, what, rest))

    def _act(self, record: Record, what: str, rest: list[tuple[str, float]]) -> None:
        if self._key(record) not in self.running or self.member.killed:
            return
        core = self.member.core
        if what == "wait":
            if self.member.call(core.wait, record):
                self.world.at(self.world.now + rest[0][1], partial(self._begin, record, rest[1:]))
            return
        if what == "later":
            self.member.call(core.wait, record, release_after=rest[0][1])
            del self.running[self._key(record)]
            return
        function = {"accept": core.accept, "reject": core.reject, "release": core.release}[what]
        del self.running[self._key(record)]
        if self.member.call(function, record):
            self.ended.append((record.partition, record.offset, what))
