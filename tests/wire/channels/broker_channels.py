"""A fake broker, and the channels of a consumer to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from wire.fake_broker import FakeBroker, heartbeat_response

from asyncrevoke.client.core.io.effects import Channel, Failed, FailureKind, Node, Replied, Send
from asyncrevoke.client.protocol import messages

if TYPE_CHECKING:
    import asyncio

    from asyncrevoke.client.runtime.net.channels import Channels

HEARTBEAT = messages.HeartbeatRequest(
    group_id="g", generation=1, member_id="m", group_instance_id=None
)


LONG = 20.0


SHORT = 0.1


class BrokerChannels:
    """A fake broker and the channels to it."""

    def __init__(self, broker: FakeBroker, node: Node, channels: Channels) -> None:
        self.broker = broker
        self.node = node
        self.channels = channels

    def send(
        self,
        message: messages.Request = HEARTBEAT,
        *,
        channel: Channel = Channel.HEARTBEAT,
        timeout: float = LONG,
        node: Node | None = None,
    ) -> Awaitable[Replied | Failed]:
        return self.channels.request(Send(1, message, node or self.node, channel, timeout))


Start: TypeAlias = Callable[..., Awaitable[BrokerChannels]]


async def well(correlation: int, writer: asyncio.StreamWriter) -> None:
    writer.write(heartbeat_response(correlation))


async def never(_correlation: int, _writer: asyncio.StreamWriter) -> None:
    """Reads the request and does not respond."""


def kind(outcome: Replied | Failed) -> FailureKind:
    assert isinstance(outcome, Failed), outcome
    assert outcome.request_id == 1
    return outcome.kind


def detail(outcome: Replied | Failed) -> str:
    assert isinstance(outcome, Failed), outcome
    return outcome.detail


async def responded_once(start: Start) -> BrokerChannels:
    """A broker that has responded to a request, and responds to no further one."""

    async def once(correlation: int, writer: asyncio.StreamWriter) -> None:
        if setup.broker.requests == 1:
            await well(correlation, writer)

    setup = await start(once)
    await setup.send()
    return setup
