"""One connection for each channel and broker, opened when it is first needed.

A broker processes one request at a time on a connection, hence several channels. Nothing is retried
here: failures go to the core, which decides when to try again. :func:`choose` decides over which
connection a request is sent, and what is opened and closed for it; :class:`Channels` does that.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from asyncrevoke.client.core.io.effects import (
    BrokerProbed,
    Channel,
    ConnectionReport,
    DropSilentConnections,
    Failed,
    FailureKind,
    Node,
    OtherBroker,
    ProbeBroker,
    Replied,
    Send,
)
from asyncrevoke.client.core.io.link_silence import ConnectTimes
from asyncrevoke.client.protocol.messages import MetadataResponse, Response
from asyncrevoke.client.protocol.receive_buffers import ReceiveBuffers
from asyncrevoke.client.runtime.net.connection import MOST_REPORTS, Connection, RequestFailed
from asyncrevoke.client.runtime.net.decode_threads import DecodeThreads
from asyncrevoke.client.runtime.net.fatal_errors import OtherBrokerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.log_events import Log


_NEVER: Final = float("inf")


class Stage(Enum):
    """How far a connection is."""

    OPENING = "opening"
    OPEN = "open"
    # It could not be opened, or was lost.
    ENDED = "ended"


class Held(NamedTuple):
    """The connection of one channel to one broker. ``requests_wait``: some are sent over it before
    the next one. Its authenticated session is renewed by a ``successor`` from ``renew_at`` on, and
    takes no request from ``ends_at`` on (KIP-368)."""

    node: Node
    stage: Stage
    requests_wait: bool = False
    renew_at: float = _NEVER
    ends_at: float = _NEVER
    successor: Stage | None = None


class Choice(NamedTuple):
    """Over which connection a request is sent, and what is opened and closed for it.

    ``waits``: until the connection is open, and behind the requests that wait for it. What is
    closed when ``unused`` is closed after the last response.
    """

    use: Literal["held", "successor", "new"]
    waits: bool = False
    opens: Literal["new", "successor"] | None = None
    closes: Literal["held", "held when unused", "successor"] | None = None


_USE: Final = Choice("held")
_WAIT: Final = Choice("held", waits=True)


def choose(held: Held | None, node: Node, now: float) -> Choice:
    """How a request is sent now to ``node``, given the connection of its channel, None if there is
    none."""
    if held is None:
        return Choice("new", opens="new")
    if held.stage is Stage.ENDED or held.node != node:
        return Choice("new", opens="new", closes="held")
    if held.stage is Stage.OPENING or now < held.renew_at:
        return _WAIT if held.requests_wait or held.stage is Stage.OPENING else _USE
    if held.successor is Stage.OPEN:
        return Choice("successor", closes="held when unused")
    if now >= held.ends_at:
        if held.successor is Stage.OPENING:
            return Choice("successor", waits=True, closes="held when unused")
        return Choice("new", opens="new", closes="held when unused")
    if held.successor is Stage.ENDED:
        return Choice("held", closes="successor")
    return _WAIT if held.successor is Stage.OPENING else Choice("held", opens="successor")


def _stage(opening: asyncio.Task[Connection]) -> Stage:
    if not opening.done():
        return Stage.OPENING
    failed = opening.cancelled() or opening.exception() is not None
    return Stage.OPEN if not failed and opening.result().connected else Stage.ENDED


class _Slot:
    """The connection of one channel to one broker, or the attempt to open it."""

    def __init__(self, node: Node, opening: asyncio.Task[Connection], begun_at: float) -> None:
        self.node = node
        self.opening = opening
        self.begun_at = begun_at
        # Set when the first request goes over it.
        self.connection: Connection | None = None
        # Requests that wait until it is open; later requests are sent after them.
        self.waiting = 0
        # Opened to replace the connection before its authenticated session ends.
        self.successor: asyncio.Task[Connection] | None = None

    def held(self) -> Held:
        """Its present state."""
        stage = _stage(self.opening)
        requests_wait = self.connection is None or self.waiting > 0
        session = self.opening.result().session if stage is Stage.OPEN else None
        if session is None:
            return Held(self.node, stage, requests_wait)
        successor = None if self.successor is None else _stage(self.successor)
        return Held(self.node, stage, requests_wait, session.renew_at, session.ends_at, successor)

    async def wait_opened(self, seconds: float) -> None:
        """Wait at most so long for the connection to open, or to fail. If cancelled, the attempt
        goes on for other requests."""
        self.waiting += 1
        try:
            await asyncio.wait([self.opening], timeout=seconds)
        finally:
            self.waiting -= 1

    def use(self) -> Connection:
        """The open connection. Raises what opening it has failed with."""
        self.connection = self.opening.result()
        return self.connection

    def successor_failed(self, now: float) -> None:
        """No other connection replaces it for now."""
        self.successor = None
        session = self.opening.result().session
        if session is not None:
            session.renewal_failed(now)

    def is_silent(self, drop: DropSilentConnections) -> bool:
        """Whether ``drop`` applies to it."""
        # Compares addresses: the same broker has another id as a bootstrap address.
        is_same = self.node[1:] == drop.node[1:]
        if _stage(self.opening) is not Stage.OPEN:
            return is_same and self.begun_at < drop.heard_before
        opened = self.opening.result()
        if opened.received_at >= drop.heard_before or self.waiting:
            return False
        if opened.throttled.until >= drop.asked_before:
            return False  # the broker does not read from it
        asked_at = opened.oldest_sent_at
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
    """Sends the core's requests.

    ``config`` has the security options, ``client_id``, ``fetch_max_bytes`` and
    ``request_timeout``, which limits the time to connect; the first attempt takes at most the
    silence timeout of its request (:mod:`asyncrevoke.client.core.io.link_silence`). Needs a
    running event loop only when used. ``log`` receives events of connections.
    """

    def __init__(self, config: ConsumerConfig, log: Log | None = None) -> None:
        self._config = config
        self._log = log
        self._slots: dict[tuple[int, Channel], _Slot] = {}
        self._openings: dict[Node, ConnectTimes] = {}
        self._reports: asyncio.Queue[ConnectionReport] = asyncio.Queue()
        self._decode_threads = DecodeThreads()
        # As much as one response may have, so they take no more than the fetch that fills them.
        self._buffers = ReceiveBuffers(config.buffer_memory // 2)
        self._closed = False
        # As in the last Metadata response.
        self._cluster_id: str | None = None
        # Connections that were replaced and still have requests in flight.
        self._retired: list[tuple[tuple[int, Channel], Connection]] = []

    def begin(self, send: Send, on_reply: Callable[[Replied | Failed], object]) -> bool:
        """See :meth:`Requests.begin`: without a task, in this iteration of the event loop."""
        slot = self._slots.get((send.node.node_id, send.channel))
        now = asyncio.get_running_loop().time()
        if slot is None or choose(slot.held(), send.node, now) is not _USE:
            return False
        connection, request_id = slot.use(), send.request_id

        def done(response: Response | RequestFailed) -> None:
            if isinstance(response, RequestFailed):
                on_reply(Failed(request_id, response.kind, response.detail))
            else:
                on_reply(self._replied(request_id, response))

        connection.begin(
            send.message, done, within=send.timeout, silence_timeout=send.silence_timeout
        )
        return True

    async def request(self, send: Send) -> Replied | Failed:
        """Send the message and return its response or its failure. Raises nothing.

        A lost connection is dropped, and the next request opens another. If cancelled, other
        requests on the channel are not affected; without any, its connection is closed, because
        the unwanted response would delay the next one.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + send.timeout
        try:
            connection = await self._connection(send)
            # However long opening took, leave time for the response.
            within = max(deadline - loop.time(), min(send.timeout, send.silence_timeout))
            response = await connection.request(
                send.message, within=within, silence_timeout=send.silence_timeout
            )
        except RequestFailed as failure:
            return Failed(send.request_id, failure.kind, failure.detail)
        return self._replied(send.request_id, response)

    def _replied(self, request_id: int, response: Response) -> Replied:
        if isinstance(response, MetadataResponse):
            self._cluster_id = response.cluster_id
        return Replied(request_id, response)

    def reset(self, node: Node, channel: Channel) -> None:
        """Close the connection of a channel, if there is one; its requests in flight fail."""
        slot = self._slots.pop((node.node_id, channel), None)
        if slot is not None:
            slot.abort()
        for key, connection in self._retired:
            if key == (node.node_id, channel):
                connection.abort()

    async def report(self) -> ConnectionReport:
        """See :meth:`Requests.report`."""
        return await self._reports.get()

    async def probe(self, probe: ProbeBroker) -> BrokerProbed:
        """See :meth:`Requests.probe`. If cancelled, the socket is closed."""
        begun_at = asyncio.get_running_loop().time()
        within = self._opening_limit(probe.node, probe.silence_timeout)
        try:
            connection = await self._open(probe.node, within, probe.silence_timeout)
        except RequestFailed:
            return BrokerProbed(probe.node, begun_at, reachable=False)
        connection.abort()
        return BrokerProbed(probe.node, begun_at, reachable=True)

    def drop_silent(self, drop: DropSilentConnections) -> None:
        """See :class:`DropSilentConnections`."""
        for key, slot in list(self._slots.items()):
            if slot.is_silent(drop):
                del self._slots[key]
                slot.abort()

    async def close(self) -> None:
        """Close all connections; requests in flight fail. Takes about a second at most.

        If cancelled, the sockets are closed without waiting for their peers.
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
        """The open connection for this request. Requests share one attempt to open it."""
        if self._closed:
            raise RequestFailed(FailureKind.UNREACHABLE, "this consumer is closed")
        slot = self._slot(send)
        if not slot.opening.done():
            limit = self._opening_limit(send.node, min(send.silence_timeout, send.timeout))
            await slot.wait_opened(max(send.timeout, limit))
        if not slot.opening.done():
            raise RequestFailed(
                FailureKind.UNREACHABLE,
                f"no connection to {send.node.address} within {send.timeout:g} s",
            )
        if slot.opening.cancelled():
            raise RequestFailed(FailureKind.UNREACHABLE, "opening the connection was cancelled")
        return slot.use()

    def _slot(self, send: Send) -> _Slot:
        """The connection that :func:`choose` chooses, after opening and closing what it says."""
        key, now = (send.node.node_id, send.channel), asyncio.get_running_loop().time()
        slot = self._slots.get(key)
        choice = choose(None if slot is None else slot.held(), send.node, now)
        if slot is not None and choice.use == "held":
            if choice.opens == "successor":
                slot.successor = self._begin_opening(send)
            elif choice.closes == "successor":
                slot.successor_failed(now)
            return slot
        opening = None if slot is None or choice.use == "new" else slot.successor
        if opening is None:
            opening = self._begin_opening(send)
        if slot is not None and choice.closes == "held":
            slot.abort()  # a broker that has moved, or a connection that has ended
        elif slot is not None:
            self._retire(key, slot.opening.result(), opening)
        self._slots[key] = chosen = _Slot(send.node, opening, now)
        return chosen

    def _retire(
        self, key: tuple[int, Channel], held: Connection, successor: asyncio.Task[Connection]
    ) -> None:
        """Close a connection after its last response; another one replaces it."""
        # The broker throttles the client, whatever the connection.
        until = held.throttled.until
        if successor.done():
            _throttle(successor, until)
        else:
            successor.add_done_callback(lambda opening: _throttle(opening, until))
        held.retire()
        self._retired = [retired for retired in self._retired if retired[1].connected]
        if held.connected:
            self._retired.append((key, held))

    def _begin_opening(self, send: Send) -> asyncio.Task[Connection]:
        node = send.node
        opening = asyncio.create_task(
            self._open(node, self._opening_limit(node, send.silence_timeout), send.silence_timeout),
            name=f"connect {node.host}",
        )
        opening.add_done_callback(_retrieve)
        return opening

    def _opening_limit(self, node: Node, silence_timeout: float) -> float:
        openings = self._openings.setdefault(node, ConnectTimes())
        return openings.limit(silence_timeout, self._config.request_timeout)

    async def _open(self, node: Node, within: float, silence_timeout: float) -> Connection:
        loop = asyncio.get_running_loop()
        begun_at = loop.time()
        try:
            connection = await Connection.open(
                node,
                self._config,
                self._decode_threads,
                self._buffers,
                within=within,
                silence_timeout=silence_timeout,
                reports=self._reports,
                cluster_id=self._cluster_id,
                log=self._log,
            )
        except RequestFailed as failure:
            is_other = isinstance(failure.__cause__, OtherBrokerError)
            if is_other and self._reports.qsize() < MOST_REPORTS:
                self._reports.put_nowait(OtherBroker(node))
            if loop.time() - begun_at >= within:
                self._openings[node].timed_out()
            raise
        self._openings[node].opened(loop.time() - begun_at)
        return connection


def _retrieve(opening: asyncio.Task[Connection]) -> None:
    """Retrieve the exception, so that asyncio does not log it if no request waits any more."""
    if not opening.cancelled():
        opening.exception()


def _throttle(opening: asyncio.Task[Connection], until: float) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().throttle(until)
