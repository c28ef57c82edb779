"""A member of a share group on the running event loop, with no handlers: the test decides."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import random
import uuid
from itertools import chain
from typing import TYPE_CHECKING, Self

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.io.deadline import Deadline
from asyncrevoke.client.core.io.effects import Node
from asyncrevoke.client.core.share.acquire_limits import AcquireLimits
from asyncrevoke.client.core.share_core import ShareCore
from asyncrevoke.client.protocol.records import decode_batches
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.client.runtime.hooks.lifespan_events import LifespanEvents
from asyncrevoke.client.runtime.hooks.rebalance_listener import ListenerCalls
from asyncrevoke.client.runtime.loop.driver import Driver
from asyncrevoke.client.runtime.net.channels import Channels

if TYPE_CHECKING:
    from asyncrevoke.client.core.io.effects import Emit, Notify
    from asyncrevoke.client.core.share.acquired_records import AcquiredRecord


def member_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


class _Events:
    """Keeps the names of what the core reports."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def core_reported(self, event: Emit) -> None:
        self.names.append(event.event)

    def partitions_changed(self, notify: Notify) -> None:
        raise AssertionError(notify)

    def transaction_due(self) -> None:
        raise AssertionError

    def ticked(self, late: float) -> None:
        pass

    def driver_ended(self) -> None:
        pass


class ShareMember:
    """Entering it joins; leaving it closes gracefully."""

    def __init__(
        self, servers: str, group: str, *topics: str, concurrency: int = 100, most: int = 200
    ) -> None:
        self._config = ConsumerConfig(bootstrap_servers=servers, group_id=group)
        self._topics = topics
        self._concurrency, self._most = concurrency, most
        self.events = _Events()

    async def __aenter__(self) -> Self:
        self.core = ShareCore(
            self._config,
            [Node(-1 - n, host, port) for n, (host, port) in enumerate(self._config.addresses)],
            decode_batches,
            self._topics,
            member_id=member_id(),
            limits=AcquireLimits(self._concurrency, self._most),
        )
        self.channels = Channels(self._config)
        self.driver = Driver(
            self.core,
            self.channels,
            EventLog(self.core),
            ListenerCalls(None, 10.0),
            LifespanEvents(),
            self.events,
            jitter=random.Random(0),
        )
        self.driver.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close(10.0)

    async def close(self, seconds: float) -> None:
        """Close gracefully within so many seconds."""
        if not self.driver.stopped:
            with contextlib.suppress(asyncio.CancelledError):
                await self.driver.ask(self.core.close, Deadline.after(self.driver.now(), seconds))
            await self.driver.aclose()

    async def kill(self) -> None:
        """Drop all connections at once, as SIGKILL does."""
        await self.driver.aclose()

    async def records(self, count: int, within: float = 30.0) -> list[AcquiredRecord]:
        """The next records, ``count`` or more; fewer when the time is over."""
        found: list[AcquiredRecord] = []
        deadline = self.driver.now() + within
        while len(found) < count:
            self.driver.wake.clear()
            found += chain.from_iterable(self.driver.call(self.core.poll))
            if len(found) < count and not await self.driver.wait_until(deadline):
                break
        return found

    def begin(self, record: AcquiredRecord) -> bool:
        return self.driver.call(self.core.begin, record)

    def accept(self, record: AcquiredRecord) -> bool:
        return self.driver.call(self.core.accept, record)

    async def idle(self, within: float = 10.0) -> None:
        """Wait until every acknowledgement has its response."""
        async with asyncio.timeout(within):
            while len(self.core.held):  # noqa: ASYNC110 - the core has no event for it
                await asyncio.sleep(0.01)
