"""Sends single requests to a real Apache Kafka and returns its responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from asyncrevoke.client.core.io.effects import Channel, Node, Replied, Send
from asyncrevoke.client.protocol import messages

if TYPE_CHECKING:
    from asyncrevoke.client.runtime.net.channels import Channels

_T = TypeVar("_T", bound=messages.KafkaMessage)


class WireClient:
    """Asks one broker and expects responses."""

    def __init__(self, channels: Channels, node: Node) -> None:
        self.channels = channels
        self.node = node

    async def ask(
        self,
        message: messages.Request,
        response_type: type[_T],
        channel: Channel = Channel.METADATA,
    ) -> _T:
        replied = await self.channels.request(Send(1, message, self.node, channel, 20))
        assert isinstance(replied, Replied), replied
        assert isinstance(replied.message, response_type)
        return replied.message


def node_at(bootstrap: str) -> Node:
    host, _, port = bootstrap.split(",", maxsplit=1)[0].rpartition(":")
    return Node(-1, host, int(port))
