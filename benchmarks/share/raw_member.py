"""A member of a share group made of requests alone: what the codec and the broker permit.

It has one request outstanding, acknowledges with the next fetch what the last one has acquired, and
neither renews nor retries.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Self, TypeVar

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.io.effects import Channel, Failed, Node, Send
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import (
    FetchedPartition,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from asyncrevoke.client.protocol.records import decode_batches
from asyncrevoke.client.protocol.share_messages import (
    CLOSE_SESSION,
    OPEN_SESSION,
    AcknowledgementBatch,
    AcknowledgeType,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    SharePartition,
    TopicIdPartition,
)
from asyncrevoke.client.runtime.net.channels import Channels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.model import Record
    from asyncrevoke.client.protocol.messages import KafkaMessage, Request

    Received = TypeVar("Received", bound=KafkaMessage)

_INTERVAL = 0.25
_TIMEOUT = 30.0


class RawMember:
    """The only member of a new group on one broker. Entering it joins; leaving it closes."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._config = ConsumerConfig(bootstrap_servers=bootstrap, group_id=group)
        self._group, self._topic = group, topic
        self._member_id = secrets.token_urlsafe(16)
        self._epoch = OPEN_SESSION
        self._partitions: list[TopicIdPartition] = []
        # What the next request acknowledges.
        self.to_accept: list[SharePartition] = []
        self.requests = 0

    async def __aenter__(self) -> Self:
        self._channels = Channels(self._config)
        ((host, port), *_) = self._config.addresses
        node = Node(-1, host, port)
        metadata = await self._ask(
            node, Channel.METADATA, MetadataRequest(topics=(self._topic,)), MetadataResponse
        )
        (broker,) = metadata.brokers
        self._node = Node(broker.node_id, broker.host, broker.port)
        find = FindCoordinatorRequest(group_id=self._group)
        coordinator = -1
        while coordinator < 0:
            # At the first one, the broker makes its internal topic.
            found = await self._request(node, Channel.METADATA, find, FindCoordinatorResponse)
            coordinator = found.node_id
            await asyncio.sleep(_INTERVAL if coordinator < 0 else 0.0)
        epoch = 0
        while not self._partitions:
            joined = await self._ask(
                self._node,
                Channel.HEARTBEAT,
                ShareGroupHeartbeatRequest(
                    group_id=self._group,
                    member_id=self._member_id,
                    member_epoch=epoch,
                    topics=(self._topic,),
                ),
                ShareGroupHeartbeatResponse,
            )
            epoch = joined.member_epoch
            self._partitions = [
                TopicIdPartition(topic_id, partition)
                for topic_id, partitions in joined.assignment or ()
                for partition in partitions
            ]
            if not self._partitions:
                await asyncio.sleep(_INTERVAL)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._epoch = CLOSE_SESSION
        try:
            await self.acknowledge()
        finally:
            await self._channels.close()

    async def fetch(self, most: int, *, exact: bool, wait: float = 0.5) -> list[Record]:
        """The next records, all of which the next request accepts."""
        opening = self._epoch == OPEN_SESSION
        partitions = (
            [SharePartition(partition=p) for p in self._partitions] if opening else self.to_accept
        )
        response = await self._ask(
            self._node,
            Channel.SHARE,
            ShareFetchRequest(
                group_id=self._group,
                member_id=self._member_id,
                session_epoch=self._epoch,
                partitions=tuple(partitions),
                max_wait=wait,
                min_bytes=1,
                max_bytes=self._config.fetch_max_bytes,
                max_records=most,
                batch_size=2**31 - 1,
                exact=exact,
            ),
            ShareFetchResponse,
        )
        self._epoch += 1
        self.to_accept = []
        return [record for part in self._acquired(response) for record in part]

    def _acquired(self, response: ShareFetchResponse) -> Sequence[list[Record]]:
        found: list[list[Record]] = []
        for part in response.partitions:
            if not part.acquired:
                continue
            first = part.acquired[0].first_offset
            log = FetchedPartition(
                partition=TopicPartition(self._topic, part.partition.partition),
                error=part.error,
                records=part.records,
            )
            records = [
                record
                for batch in decode_batches(log, read_committed=False)
                for record in batch.decode(self._topic, part.partition.partition, -1, first)
            ]
            found += [
                [r for r in records if a.first_offset <= r.offset <= a.last_offset]
                for a in part.acquired
            ]
            self.to_accept.append(
                SharePartition(
                    partition=part.partition,
                    acknowledgements=tuple(
                        AcknowledgementBatch(
                            first_offset=a.first_offset,
                            last_offset=a.last_offset,
                            type=AcknowledgeType.ACCEPT,
                        )
                        for a in part.acquired
                    ),
                )
            )
        return found

    async def acknowledge(self) -> float:
        """Accept what was acquired, in a request of its own. Returns the seconds that it took."""
        began = time.perf_counter()
        await self._ask(
            self._node,
            Channel.SHARE,
            ShareAcknowledgeRequest(
                group_id=self._group,
                member_id=self._member_id,
                session_epoch=self._epoch,
                partitions=tuple(self.to_accept),
            ),
            ShareAcknowledgeResponse,
        )
        self._epoch += 1
        self.to_accept = []
        return time.perf_counter() - began

    async def _ask(
        self, node: Node, channel: Channel, request: Request, wanted: type[Received]
    ) -> Received:
        response = await self._request(node, channel, request, wanted)
        error = getattr(response, "error", None)
        if error:
            raise RuntimeError(f"{type(request).__name__}: {error}")
        return response

    async def _request(
        self, node: Node, channel: Channel, request: Request, wanted: type[Received]
    ) -> Received:
        self.requests += 1
        answer = await self._channels.request(Send(0, request, node, channel, _TIMEOUT))
        if isinstance(answer, Failed):
            raise RuntimeError(f"{type(request).__name__}: {answer}")  # noqa: TRY004 - a failure
        response = answer.message
        assert isinstance(response, wanted)
        return response
