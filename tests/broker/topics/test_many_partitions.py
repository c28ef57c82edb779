"""Many partitions on a real broker: what is fetched in a session is complete."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from aiokafka import AIOKafkaProducer
from broker.groups.recorded_requests import note_requests

from asyncrevoke import Consumer
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.io.effects import Channel, Failed, Node, Replied, Send
from asyncrevoke.client.protocol.messages import ErrorCode, FetchRequest, FetchResponse
from asyncrevoke.client.runtime.net.channels import Channels

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import Protocol

    import pytest

    from asyncrevoke.broker import RunningBroker

    class Sender(Protocol):
        def send(self, topic: str, value: bytes, *, partition: int) -> Awaitable[object]: ...


PARTITIONS = 60
ROUNDS = 5


async def test_sparse_records_of_many_partitions_are_read_in_one_fetch_session(
    kafka_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs: list[int] = []
    sessions: set[int] = set()
    last: list[Replied | Failed] = []

    def note(send: Send, response: Replied | Failed) -> None:
        if isinstance(send.message, FetchRequest):
            epochs.append(send.message.session_epoch)
            sessions.add(send.message.session_id)
            if send.message.session_id and send.message.session_epoch == -1:
                last.append(response)

    note_requests(monkeypatch, note)
    kafka_broker.create_topic("sessions", PARTITIONS)
    servers = kafka_broker.bootstrap_servers
    producer = AIOKafkaProducer(bootstrap_servers=servers)
    sender = cast("Sender", producer)
    expected = 0
    await producer.start()
    try:
        async with (
            asyncio.timeout(60),
            Consumer("sessions", bootstrap_servers=servers, group_id="sessions") as consumer,
        ):
            read: list[tuple[int, int]] = []
            for turn in range(ROUNDS):
                for number in range(turn, PARTITIONS, 7):
                    await sender.send("sessions", b"x", partition=number)
                await producer.flush()
                expected += len(range(turn, PARTITIONS, 7))
                while len(read) < expected:
                    batch = await anext(consumer)
                    read += [(r.partition, r.offset) for r in batch.records]
                # Until it is quiet again: what was busy goes back into the session.
                quiet_from = max(epochs)
                while max(epochs) < quiet_from + 2:  # noqa: ASYNC110 - within the deadline
                    await asyncio.sleep(0.02)
    finally:
        await producer.stop()
    assert len(read) == len(set(read)) == expected
    assert max(epochs) > ROUNDS
    (reply,) = last
    assert isinstance(reply, Replied)
    assert isinstance(reply.message, FetchResponse)
    assert reply.message.error is ErrorCode.none
    # The broker has forgotten it.
    sessions -= {0}
    (session,) = sessions
    channels = Channels(ConsumerConfig(bootstrap_servers=servers))
    try:
        again = FetchRequest(
            partitions=(),
            max_wait=0.0,
            min_bytes=0,
            max_bytes=1,
            session_id=session,
            session_epoch=max(epochs) + 1,
        )
        host, _, port = servers.rpartition(":")
        node = Node(1, host, int(port))
        reply = await channels.request(Send(1, again, node, Channel.FETCH, 5.0))
    finally:
        await channels.close()
    assert isinstance(reply, Replied)
    assert isinstance(reply.message, FetchResponse)
    assert reply.message.error is ErrorCode.fetch_session_id_not_found
