"""Tells those who have queued records whether these may begin, or the membership is in doubt."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncrevoke.core.consumer_core import ConsumerCore
    from asyncrevoke.runtime.loop.driver import Driver


class MembershipGuard(Protocol):
    """Asked before a queued record begins: a process that was frozen for longer than its session
    may have lost the record's partition, and learns of it only by the next heartbeat's answer."""

    def may_begin_for(self) -> float:
        """For how many seconds records may begin without asking again.

        Negative: none may begin, until :meth:`confirmation` is done.
        """
        ...

    def confirmation(self) -> asyncio.Future[object]:
        """Done when records may begin. It fails, or is cancelled, if the consumer ends before;
        cancelling it is harmless."""
        ...


async def may_begin(membership: MembershipGuard) -> None:
    """Return when records may begin; for those who have waited for something else before."""
    while membership.may_begin_for() < 0:
        await membership.confirmation()


class ConsumerMembership:
    """The membership of one consumer."""

    def __init__(self, core: ConsumerCore, driver: Driver) -> None:
        self._core = core
        self._driver = driver

    def may_begin_for(self) -> float:
        """As the core knows it, without waiting for what a socket still holds."""
        now = self._driver.now()
        until = self._core.may_begin_until(now)
        self._driver.flush()
        return until - now

    def confirmation(self) -> asyncio.Future[object]:
        """Done when the coordinator has confirmed the membership."""
        return self._driver.ticket(self._core.await_confirmation(self._driver.now()))


class NoMembership:
    """No group can take these records away."""

    def may_begin_for(self) -> float:
        """For ever."""
        return float("inf")

    def confirmation(self) -> asyncio.Future[object]:
        """Done."""
        future = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future
