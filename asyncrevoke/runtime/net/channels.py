"""One connection per purpose and broker, opened when it is first needed.

A broker answers one request at a time per connection, hence :class:`Channel`. Nothing is retried
here, and nothing waits between attempts: a failure goes to the core, which sets its timers.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from asyncrevoke.core.io.effects import BrokerProbed, Failed, FailureKind, Replied
from asyncrevoke.core.io.link_silence import ConnectTimes
from asyncrevoke.runtime.net.connection import Connection, RequestFailed
from asyncrevoke.runtime.net.decode_threads import DecodeThreads

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.io.effects import (
        Channel,
        ConnectionSilent,
        DropSilentConnections,
        Node,
        ProbeBroker,
        Send,
    )
    from asyncrevoke.protocol.messages import Response

__all__ = ["Channels"]


class _Slot:
    """The connection of one channel to one broker, or the attempt to open it."""

    __slots__ = ("begun_at", "connection", "node", "opening", "successor", "waiting")

    def __init__(self, node: Node, opening: asyncio.Task[Connection], begun_at: float) -> None:
        self.node = node
        self.opening = opening
        self.begun_at = begun_at
        # What was opened, when the first request goes over it.
        self.connection: Connection | None = None
        # Requests that wait for it, whose turn comes before that of later ones.
        self.waiting = 0
        # What replaces it before the broker asks for authentication again.
        self.successor: asyncio.Task[Connection] | None = None

    @property
    def usable(self) -> bool:
        if not self.opening.done():
            return True
        if self.opening.cancelled() or self.opening.exception() is not None:
            return False
        return self.opening.result().connected

    def is_silent(self, drop: DropSilentConnections) -> bool:
        """Whether it is one of those that are to be dropped."""
        # A broker has another id as a bootstrap address.
        is_same = self.node[1:] == drop.node[1:]
        if not (self.opening.done() and self.usable):
            return is_same and self.begun_at < drop.heard_before
        opened = self.opening.result()
        if opened.heard_at >= drop.heard_before or self.waiting:
            return False
        asked_at = opened.asked_at
        return asked_at is None or (is_same and asked_at <= drop.asked_before)

    def abort(self) -> None:
        for opening in (self.opening, self.successor):
            if opening is None:
                continue
            if not opening.done():
                opening.cancel()
            elif not opening.cancelled() and opening.exception() is None:
                opening.result().abort()


class Channels:
    """Carries out ``Send``.

    ``config`` gives the security options, ``client_id``, ``fetch_max_bytes`` and
    ``request_timeout``, which bounds the time to connect: that begins with the patience of the
    request that asks for the connection (:mod:`asyncrevoke.core.io.link_silence`). Needs a running
    event loop only when used.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        self._config = config
        self._slots: dict[tuple[int, Channel], _Slot] = {}
        self._openings: dict[Node, ConnectTimes] = {}
        self._silences: asyncio.Queue[ConnectionSilent] = asyncio.Queue()
        self._decode_threads = DecodeThreads()
        self._closed = False
        # Those that were replaced, and still wait for answers.
        self._retired: list[tuple[tuple[int, Channel], Connection]] = []

    def begin(self, send: Send, then: Callable[[Replied | Failed], object]) -> bool:
        """See :meth:`Requests.begin`: without a task, and in this turn of the event loop."""
        slot = self._slots.get((send.node.node_id, send.channel))
        if slot is None or slot.connection is None or slot.waiting or slot.node != send.node:
            return False
        connection, request_id = slot.connection, send.request_id
        if not connection.connected:
            return False
        session = connection.session
        if session is not None and asyncio.get_running_loop().time() >= session.renew_at:
            return False

        def done(answer: Response | RequestFailed) -> None:
            if isinstance(answer, RequestFailed):
                then(Failed(request_id, answer.kind, answer.detail))
            else:
                then(Replied(request_id, answer))

        connection.begin(send.message, done, within=send.timeout, patience=send.patience)
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
            # However long opening took, there is time for an answer.
            within = max(deadline - loop.time(), min(send.timeout, send.patience))
            response = await connection.request(send.message, within=within, patience=send.patience)
        except RequestFailed as failure:
            return Failed(send.request_id, failure.kind, failure.detail)
        return Replied(send.request_id, response)

    def reset(self, node: Node, channel: Channel) -> None:
        """Drop the connection of a channel, if there is one; requests in flight on it fail."""
        slot = self._slots.pop((node.node_id, channel), None)
        if slot is not None:
            slot.abort()
        for key, connection in self._retired:
            if key == (node.node_id, channel):
                connection.abort()

    async def silence(self) -> ConnectionSilent:
        """See :meth:`Requests.silence`."""
        return await self._silences.get()

    async def probe(self, probe: ProbeBroker) -> BrokerProbed:
        """See :meth:`Requests.probe`. If cancelled, the socket is closed."""
        begun_at = asyncio.get_running_loop().time()
        within = self._opening_limit(probe.node, probe.patience)
        try:
            connection = await self._open(probe.node, within, probe.patience)
        except RequestFailed:
            return BrokerProbed(probe.node, begun_at, answered=False)
        connection.abort()
        return BrokerProbed(probe.node, begun_at, answered=True)

    def drop_silent(self, drop: DropSilentConnections) -> None:
        """See :class:`DropSilentConnections`."""
        for key, slot in list(self._slots.items()):
            if slot.is_silent(drop):
                del self._slots[key]
                slot.abort()

    async def close(self) -> None:
        """Drop every connection; requests in flight fail. Takes about a second at most.

        If cancelled, the connections are closed without waiting for their goodbyes.
        """
        self._closed = True
        self._decode_threads.stop()
        slots = list(self._slots.values())
        self._slots.clear()
        for slot in slots:
            slot.abort()
        openings = [
            opening
            for slot in slots
            for opening in (slot.opening, slot.successor)
            if opening is not None
        ]
        retired = [connection for _, connection in self._retired]
        self._retired.clear()
        if openings:
            await asyncio.wait(openings)
        opened = [
            opening.result()
            for opening in openings
            if not opening.cancelled() and opening.exception() is None
        ]
        await asyncio.gather(*(connection.close() for connection in (*opened, *retired)))

    async def _connection(self, send: Send) -> Connection:
        """The open connection for this request; one attempt serves all who wait for it."""
        if self._closed:
            raise RequestFailed(FailureKind.UNREACHABLE, "this consumer is closed")
        slot = self._slot(send)
        if not slot.opening.done():
            slot.waiting += 1
            try:
                # Unlike ``await``, this neither passes our cancellation on nor the attempt's.
                limit = self._opening_limit(send.node, min(send.patience, send.timeout))
                await asyncio.wait([slot.opening], timeout=max(send.timeout, limit))
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

    def _slot(self, send: Send) -> _Slot:
        node = send.node
        key = (node.node_id, send.channel)
        slot = self._slots.get(key)
        if slot is not None:
            if slot.node == node and slot.usable:
                slot = self._renewed(slot, send)
                if slot is not None:
                    return slot
            else:
                slot.abort()  # a broker that has moved, or a connection that has ended
        slot = _Slot(node, self._begin_opening(send), asyncio.get_running_loop().time())
        self._slots[key] = slot
        return slot

    def _begin_opening(self, send: Send) -> asyncio.Task[Connection]:
        node = send.node
        opening = asyncio.create_task(
            self._open(node, self._opening_limit(node, send.patience), send.patience),
            name=f"connect {node.host}",
        )
        opening.add_done_callback(_retrieve)
        return opening

    def _renewed(self, slot: _Slot, send: Send) -> _Slot | None:
        """The slot to use, given that a broker may soon ask for authentication again (KIP-368).

        Another connection is opened while this one is used, and takes over when it is open. None:
        the session has ended before there was another.
        """
        opened = slot.opening.result() if slot.opening.done() else None
        session = None if opened is None else opened.session
        now = asyncio.get_running_loop().time()
        if opened is None or session is None or now < session.renew_at:
            return slot
        successor = slot.successor
        if successor is not None and successor.done():
            slot.successor = None
            if successor.cancelled() or successor.exception() is not None:
                successor = None
                session.renewal_failed(now)
        elif successor is None:
            successor = slot.successor = self._begin_opening(send)
        ended = now >= session.ends_at
        if not ended and (successor is None or not successor.done()):
            return slot
        self._retired = [each for each in self._retired if each[1].connected]
        opened.retire()
        key = send.node.node_id, send.channel
        if opened.connected:
            self._retired.append((key, opened))
        if successor is None:
            return None
        slot.successor = None
        self._slots[key] = renewed = _Slot(slot.node, successor, now)
        return renewed

    def _opening_limit(self, node: Node, patience: float) -> float:
        openings = self._openings.setdefault(node, ConnectTimes())
        return openings.limit(patience, self._config.request_timeout)

    async def _open(self, node: Node, within: float, patience: float) -> Connection:
        loop = asyncio.get_running_loop()
        begun_at = loop.time()
        try:
            connection = await Connection.open(
                node,
                self._config,
                self._decode_threads,
                within=within,
                patience=patience,
                silences=self._silences,
            )
        except RequestFailed:
            if loop.time() - begun_at >= within:
                self._openings[node].timed_out()
            raise
        self._openings[node].opened(loop.time() - begun_at)
        return connection


def _retrieve(opening: asyncio.Task[Connection]) -> None:
    """All who waited may have given up: a failure is nobody's then, and no news."""
    if not opening.cancelled():
        opening.exception()
