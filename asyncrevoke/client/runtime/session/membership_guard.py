"""Decides whether queued records may be started, or the membership must be confirmed first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncrevoke.client.core.core import Core
    from asyncrevoke.client.runtime.loop.driver import Driver


class MembershipGuard(Protocol):
    """Asked before a queued record is started. A process that was suspended for longer than its
    session may have lost the partition, and learns that only from the next heartbeat response.

    Implemented by :class:`ConsumerMembership`.
    """

    def may_begin_for(self) -> float:
        """For how many seconds records may be started without asking again.

        If negative, none may be started until :meth:`confirmation` is done.
        """
        ...

    def confirmation(self) -> asyncio.Future[object]:
        """Done when records may be started. It fails, or is cancelled, if the consumer ends first.
        Cancelling it has no effect on others."""
        ...


async def may_begin(membership: MembershipGuard) -> None:
    """Return when records may be started."""
    while membership.may_begin_for() < 0:
        await membership.confirmation()


class ConsumerMembership:
    """The membership of one consumer."""

    def __init__(self, core: Core, driver: Driver) -> None:
        self._core = core
        self._driver = driver

    def may_begin_for(self) -> float:
        """As the core knows it; responses that were not read from the socket yet do not count."""
        return (
            self._driver.call_for_record(self._core.session_guard.may_begin_until)
            - self._driver.now()
        )

    def confirmation(self) -> asyncio.Future[object]:
        """Done when the coordinator has confirmed the membership."""
        return self._driver.ask(self._core.await_confirmation)


class NoMembership:
    """For records that are not read as a member of a group."""

    def may_begin_for(self) -> float:
        """For ever."""
        return float("inf")

    def confirmation(self) -> asyncio.Future[object]:
        """Done."""
        future = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future
