"""In a network namespace of its own: asks for what brokers hold for long, and takes the network
away. Prints what became of the request, and after how many seconds."""

from __future__ import annotations

import asyncio
import subprocess

from wire.fake_broker import FakeBroker

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.io.effects import Channel, Failed, Send
from asyncrevoke.client.protocol import messages
from asyncrevoke.client.runtime.net.channels import Channels

PATIENCE = 1.0


async def never(_correlation: int, _writer: asyncio.StreamWriter) -> None:
    """The broker holds it."""


async def main() -> None:
    loop = asyncio.get_running_loop()
    subprocess.run(("ip", "link", "set", "lo", "up"), check=True)
    broker = FakeBroker(never)
    node = await broker.start()
    channels = Channels(ConsumerConfig())
    join = messages.JoinGroupRequest(
        group_id="g",
        session_timeout=10.0,
        rebalance_timeout=60.0,
        member_id="",
        group_instance_id=None,
        protocols=(),
    )
    asked = asyncio.create_task(channels.request(Send(1, join, node, Channel.JOIN, 60.0, PATIENCE)))
    await broker.until(lambda: broker.requests == 1)
    begun = loop.time()
    subprocess.run(("ip", "link", "set", "lo", "down"), check=True)
    reply = await asked
    assert isinstance(reply, Failed)
    print(reply.kind.value, round(loop.time() - begun, 1), reply.detail)  # noqa: T201 - told so
    await channels.close()
    await broker.stop()


if __name__ == "__main__":
    asyncio.run(main())
