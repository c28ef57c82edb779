"""One connection per purpose and broker, opened when it is first needed.

A broker answers one request at a time per connection, hence :class:`Channel`. Nothing is retried
here, and nothing waits between attempts: a failure goes to the core, which sets its timers.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from asyncrevoke.core.effects import Failed, FailureKind, Replied
from asyncrevoke.runtime.connection import Connection, RequestFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.effects import Channel, Node, Send
    from asyncrevoke.protocol.messages import Response

__all__ = ["Channels"]

_LONGEST_CONNECT: Final = 30.0


class _Slot:
    """The connection of one channel to one broker, or the attempt to open it."""

    __slots__ = ("connection", "node", "opening", "waiting")

    def __init__(self, node: Node, opening: asyncio.Task[Connection]) -> None:
        self.node = node
        self.opening = opening
        # What was opened, when the first request goes over it.
        self.connection: Connection | None = None
        # Requests that wait for it, whose turn comes before that of later ones.
        self.waiting = 0

    @property
    def usable(self) -> bool:
        if not self.opening.done():
            return True
        if self.opening.cancelled() or self.opening.exception() is not None:
            return False
        return self.opening.result().connected

    def abort(self) -> None:
        if not self.opening.done():
            self.opening.cancel()
        elif not self.opening.cancelled() and self.opening.exception() is None:
            self.opening.result().abort()


class Channels:
    """Carries out ``Send``.

    ``config`` gives the security options, ``client_id``, ``request_timeout`` (which bounds the
    time to connect, as do 30 seconds) and ``fetch_max_bytes``. Needs a running event loop only
    when used.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        self._config = config
        self._slots: dict[tuple[int, Channel], _Slot] = {}
        self._closed = False

    def begin(self, send: Send, then: Callable[[Replied | Failed], object]) -> bool:
        """See :meth:`Requests.begin`: without a task, and in this turn of the event loop."""
        slot = self._slots.get((send.node.node_id, send.channel))
        if slot is None or slot.connection is None or slot.waiting or slot.node != send.node:
            return False
        connection, request_id = slot.connection, send.request_id
        if not connection.connected:
            return False

        def done(answer: Response | RequestFailed) -> None:
            if isinstance(answer, RequestFailed):
                then(Failed(request_id, answer.kind, answer.detail))
            else:
                then(Replied(request_id, answer))

        connection.begin(send.message, done, within=send.timeout)
        return True

    async def request(self, send: Send) -> Replied | Failed:
        """Send the message and give its response, or why there is none; raises nothing.

        A broken connection is dropped, and the next request opens another. If cancelled, others
        that use the channel are not disturbed; if there are none, its connection is dropped,
        because the answer to this request would stand before the next one.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + send.timeout
        try:
            connection = await self._connection(send)
            response = await connection.request(send.message, within=deadline - loop.time())
        except RequestFailed as failure:
            return Failed(send.request_id, failure.kind, failure.detail)
        return Replied(send.request_id, response)

    def reset(self, node: Node, channel: Channel) -> None:
        """Drop the connection of a channel, if there is one; requests in flight on it fail."""
        slot = self._slots.pop((node.node_id, channel), None)
        if slot is not None:
            slot.abort()

    async def close(self) -> None:
        """Drop every connection; requests in flight fail. Takes about a second at most.

        If cancelled, the connections are closed without waiting for their goodbyes.
        """
        self._closed = True
        slots = list(self._slots.values())
        self._slots.clear()
        for slot in slots:
            slot.abort()
        if not slots:
            return
        await asyncio.wait([slot.opening for slot in slots])
        await asyncio.gather(
            *(
                slot.opening.result().close()
                for slot in slots
                if not slot.opening.cancelled() and slot.opening.exception() is None
            )
        )

    async def _connection(self, send: Send) -> Connection:
        """The open connection for this request; one attempt serves all who wait for it."""
        if self._closed:
            raise RequestFailed(FailureKind.UNREACHABLE, "this consumer is closed")
        slot = self._slot(send.node, send.channel)
        if not slot.opening.done():
            slot.waiting += 1
            try:
                # Unlike ``await``, this neither passes our cancellation on nor the attempt's.
                await asyncio.wait([slot.opening], timeout=send.timeout)
            finally:
                slot.waiting -= 1
        if not slot.opening.done():
            raise RequestFailed(
                FailureKind.UNREACHABLE,
                f"no connection to {send.node.host}:{send.node.port} within {send.timeout:g} s",
            )
        if slot.opening.cancelled():
            raise RequestFailed(FailureKind.UNREACHABLE, "the connection was given up")
        slot.connection = slot.opening.result()
        return slot.connection

    def _slot(self, node: Node, channel: Channel) -> _Slot:
        key = (node.node_id, channel)
        slot = self._slots.get(key)
        if slot is not None:
            if slot.node == node and slot.usable:
                return slot
            slot.abort()  # a broker that has moved, or a connection that has ended
        slot = _Slot(node, asyncio.create_task(self._open(node), name=f"connect {node.host}"))
        slot.opening.add_done_callback(_retrieve)
        self._slots[key] = slot
        return slot

    async def _open(self, node: Node) -> Connection:
        return await Connection.open(
            node,
            self._config,
            within=min(self._config.request_timeout, _LONGEST_CONNECT),
        )


def _retrieve(opening: asyncio.Task[Connection]) -> None:
    """All who waited may have given up: a failure is nobody's then, and no news."""
    if not opening.cancelled():
        opening.exception()
