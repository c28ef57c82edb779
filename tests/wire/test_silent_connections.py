"""Connections on which nothing is received, while something is asked."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from broker.connections.tunnels import Tunnel
from wire.fake_broker import FakeBroker, heartbeat_response

from asyncrevoke.broker.listeners.ports import free_ports
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.io.effects import (
    Channel,
    ConnectionSilent,
    DropSilentConnections,
    Failed,
    FailureKind,
    Node,
    ProbeBroker,
    Replied,
    Send,
)
from asyncrevoke.client.protocol import messages
from asyncrevoke.client.runtime.net.channels import Channels
from asyncrevoke.client.runtime.net.sockets import keep_alive

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HEARTBEAT = messages.HeartbeatRequest(
    group_id="g", generation=1, member_id="m", group_instance_id=None
)
JOIN = messages.JoinGroupRequest(
    group_id="g",
    session_timeout=10.0,
    rebalance_timeout=60.0,
    member_id="",
    group_instance_id=None,
    protocols=(),
)
SILENCE_TIMEOUT = 0.2
# A connection that is silent for twice as long is dead, and opening may take as long as this.
PATIENT = 2.0
CAN_ISOLATE = (
    sys.platform == "linux"
    and os.geteuid() == 0
    and shutil.which("ip") is not None
    and shutil.which("unshare") is not None
    and subprocess.run(("unshare", "--net", "true"), check=False, capture_output=True).returncode
    == 0
)
LONG = 20.0


class Slow:
    """Responds when it is told to."""

    def __init__(self) -> None:
        self.responds = asyncio.Event()
        self.part: bytes | None = None
        self.asked_by: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
        self._later: set[asyncio.Task[None]] = set()

    async def __call__(self, correlation: int, writer: asyncio.StreamWriter) -> None:
        self.asked_by.put_nowait(writer)
        if self.part is not None:
            writer.write(self.part)
        self._later.add(asyncio.create_task(self._respond(correlation, writer)))

    async def _respond(self, correlation: int, writer: asyncio.StreamWriter) -> None:
        await self.responds.wait()
        writer.write(heartbeat_response(correlation))

    async def stop(self) -> None:
        """Respond no more."""
        for task in self._later:
            task.cancel()
        await asyncio.gather(*self._later, return_exceptions=True)


class Setup:
    def __init__(self, slow: Slow, broker: FakeBroker, node: Node) -> None:
        self.slow = slow
        self.broker = broker
        self.node = node
        self.channels = Channels(ConsumerConfig(request_timeout=LONG))

    def ask(
        self,
        channel: Channel = Channel.HEARTBEAT,
        message: messages.Request = HEARTBEAT,
        silence_timeout: float = SILENCE_TIMEOUT,
        node: Node | None = None,
    ) -> asyncio.Task[Replied | Failed]:
        send = Send(1, message, node or self.node, channel, LONG, silence_timeout)
        return asyncio.create_task(self.channels.request(send))


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    slow = Slow()
    broker = FakeBroker(slow)
    setup = Setup(slow, broker, await broker.start())
    yield setup
    await setup.channels.close()
    await slow.stop()
    await broker.stop()


async def test_silence_is_logged_and_a_late_response_counts(setup: Setup) -> None:
    asked = setup.ask(silence_timeout=PATIENT)
    silent = await setup.channels.report()
    assert isinstance(silent, ConnectionSilent)
    assert silent.node == setup.node
    assert asyncio.get_running_loop().time() - silent.since >= PATIENT
    assert not asked.done()
    setup.slow.responds.set()
    assert isinstance(await asked, Replied)
    assert setup.broker.open == 1


async def test_a_connection_that_is_silent_for_twice_as_long_is_dead(setup: Setup) -> None:
    reply = await setup.ask(silence_timeout=PATIENT)
    assert isinstance(reply, Failed)
    assert reply.kind is FailureKind.SILENT
    assert "sent nothing for" in reply.detail
    await setup.channels.report()
    await setup.broker.until(lambda: setup.broker.open == 0)


async def test_a_pending_join_is_no_silence(setup: Setup) -> None:
    join = setup.ask(Channel.JOIN, JOIN, silence_timeout=PATIENT)
    # Another connection is silent for longer than twice the silence timeout meanwhile.
    await setup.ask(silence_timeout=PATIENT)
    assert (await setup.channels.report()).node == setup.node
    assert not join.done()
    join.cancel()


async def test_a_part_of_a_response_is_no_silence(setup: Setup) -> None:
    setup.slow.part = struct.pack(">i", 10)[:2]
    asked = setup.ask(silence_timeout=PATIENT)
    silent = await setup.channels.report()
    assert isinstance(silent, ConnectionSilent)
    # Since these bytes, not since it was asked: they came after the request.
    assert silent.since > 0
    setup.slow.responds.set()
    asked.cancel()


async def test_a_large_response_that_slows_down_is_no_silence(setup: Setup) -> None:
    size, fast = 2**20, 300_000
    setup.slow.responds.set()
    assert isinstance(await setup.ask(silence_timeout=LONG), Replied)
    setup.slow.responds.clear()
    setup.slow.asked_by.get_nowait()
    setup.slow.part = struct.pack(">i", size) + bytes(fast)
    asked = setup.ask()
    writer = await setup.slow.asked_by.get()
    # Fewer bytes than the client wakes for, over a longer time than a silent connection has.
    for _ in range(30):
        await asyncio.sleep(SILENCE_TIMEOUT / 5)
        writer.write(bytes(1000))
    writer.write(bytes(size - fast - 30 * 1000))
    reply = await asked
    assert isinstance(reply, Failed)
    # It was received as a whole: zeros are not a response.
    assert reply.kind is FailureKind.MALFORMED


async def test_a_request_sent_before_a_probe_without_a_response_is_dropped(setup: Setup) -> None:
    dead = setup.ask(silence_timeout=LONG)
    await setup.broker.until(lambda: setup.broker.requests == 1)
    probed = await setup.channels.probe(ProbeBroker(setup.node, LONG))
    assert probed.reachable
    later = setup.ask(Channel.COMMIT, silence_timeout=LONG)
    await setup.broker.until(lambda: setup.broker.requests == 2)
    setup.channels.drop_silent(DropSilentConnections(setup.node, probed.begun_at, probed.begun_at))
    reply = await dead
    assert isinstance(reply, Failed)
    assert reply.kind is FailureKind.DISCONNECTED
    assert not later.done()
    later.cancel()


async def test_a_connection_with_a_response_meanwhile_is_not_dropped(setup: Setup) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    setup.slow.responds.set()
    await setup.ask(silence_timeout=LONG)
    setup.channels.drop_silent(DropSilentConnections(setup.node, begun, loop.time()))
    await setup.ask(silence_timeout=LONG)
    assert setup.broker.connections == 1


async def test_idle_connections_to_other_brokers_are_dropped_with_those_of_a_silent_one(
    setup: Setup,
) -> None:
    setup.slow.responds.set()
    await setup.ask()
    setup.slow.responds.clear()
    now = asyncio.get_running_loop().time()
    other = Node(2, "127.0.0.1", 1)
    setup.channels.drop_silent(DropSilentConnections(other, now, now))
    await setup.broker.until(lambda: setup.broker.open == 0)


async def test_busy_connections_to_other_brokers_are_left_alone(setup: Setup) -> None:
    asked = setup.ask(silence_timeout=LONG)
    await setup.broker.until(lambda: setup.broker.requests == 1)
    now = asyncio.get_running_loop().time()
    setup.channels.drop_silent(DropSilentConnections(Node(2, "127.0.0.1", 1), now, now))
    setup.slow.responds.set()
    assert isinstance(await asked, Replied)


async def test_a_broker_that_does_not_respond_to_a_probe_gets_twice_the_time_for_the_next() -> None:
    broker = FakeBroker(Slow(), silent=True)
    node = await broker.start()
    channels = Channels(ConsumerConfig())
    loop = asyncio.get_running_loop()
    times: list[float] = []
    for _ in range(2):
        begun = loop.time()
        assert not (await channels.probe(ProbeBroker(node, SILENCE_TIMEOUT))).reachable
        times.append(loop.time() - begun)
    assert times[0] >= SILENCE_TIMEOUT
    assert times[1] >= 2 * SILENCE_TIMEOUT
    await channels.close()
    await broker.stop()


async def test_on_a_slow_link_responses_have_the_time_that_they_take(setup: Setup) -> None:
    port = next(free_ports())
    tunnel = Tunnel(port, setup.node.port)
    tunnel.delay = 1.5 * SILENCE_TIMEOUT
    await tunnel.open()
    setup.slow.responds.set()
    node = Node(1, "127.0.0.1", port)
    # Opening takes ever more time; then round trips of three times the silence timeout work.
    while not (await setup.channels.probe(ProbeBroker(node, SILENCE_TIMEOUT))).reachable:
        pass
    while isinstance(first := await setup.ask(node=node), Failed):
        assert first.kind is FailureKind.UNREACHABLE
    for _ in range(2):
        assert isinstance(await setup.ask(node=node), Replied)
    await tunnel.close()


@pytest.mark.parametrize(
    ("silence_timeout", "between"), [(3.0, 1), (30.0, 10), (float("inf"), 1200)]
)
def test_the_kernel_probes_quiet_connections(silence_timeout: float, between: int) -> None:
    with socket.socket() as sock:
        keep_alive(sock, silence_timeout)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL"):
            if (option := getattr(socket, name, None)) is not None:
                assert sock.getsockopt(socket.IPPROTO_TCP, option) == between
        if (option := getattr(socket, "TCP_USER_TIMEOUT", None)) is not None:
            expected = int(min(silence_timeout, 3600) * 1000)
            assert sock.getsockopt(socket.IPPROTO_TCP, option) == expected


@pytest.mark.skipif(not CAN_ISOLATE, reason="needs root, ip and unshare for a network of its own")
async def test_a_vanished_host_breaks_even_the_connection_of_a_pending_join() -> None:
    child = await asyncio.create_subprocess_exec(
        "unshare",
        "--net",
        sys.executable,
        Path(__file__).with_name("vanished_host.py"),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(30):
        output, _ = await child.communicate()
    kind, seconds, _ = output.decode().split(maxsplit=2)
    assert kind == "silent"
    # Twice the silence timeout, and the kernel's own pace.
    assert float(seconds) < 10
