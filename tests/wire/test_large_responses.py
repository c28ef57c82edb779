"""Responses that take long to decode: in a thread, in their turn, and the event loop runs."""

from __future__ import annotations

import asyncio
import struct
import threading
from typing import TYPE_CHECKING, Any

import pytest
from kio.schema.fetch.v11 import response as fetch11
from kio.schema.metadata.v13 import response as metadata13
from wire.fake_broker import FakeBroker, framed, heartbeat_response
from wire.frames import response_frames as frames

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.io.effects import Channel, Failed, FailureKind, Node, Replied, Send
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol import codec, messages
from asyncrevoke.client.protocol.messages import ErrorCode
from asyncrevoke.client.runtime.net.channels import Channels

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

METADATA = messages.MetadataRequest(topics=None)
HEARTBEAT = messages.HeartbeatRequest(
    group_id="g", generation=1, member_id="m", group_instance_id=None
)
LONG = 20.0
PARTITIONS = 5_000


def metadata_body(partitions: int = PARTITIONS) -> bytes:
    numbers: Any = range(partitions)
    values: Any = {"is_internal": False, "topic_id": frames.KNOWN_TOPIC}
    topic = metadata13.MetadataResponseTopic(
        error_code=ErrorCode.none,
        name="orders",  # type: ignore[arg-type]
        partitions=tuple(
            metadata13.MetadataResponsePartition(
                error_code=ErrorCode.none,
                partition_index=number,
                leader_id=number % 3,
                leader_epoch=number,
                replica_nodes=(1, 2, 3),  # type: ignore[arg-type]
                isr_nodes=(1, 2, 3),  # type: ignore[arg-type]
                offline_replicas=(),
            )
            for number in numbers
        ),
        **values,
    )
    broker: Any = metadata13.MetadataResponseBroker
    response: Any = metadata13.MetadataResponse
    return frames.body(
        response(
            throttle_time=frames.NO_THROTTLE,
            brokers=(broker(node_id=1, host="h", port=9092, rack=None),),
            cluster_id="c",
            controller_id=1,
            error_code=ErrorCode.none,
            topics=(topic,),
        )
    )


BODY = metadata_body()


def metadata_response(correlation: int, body: bytes = BODY) -> bytes:
    return framed(struct.pack(">ib", correlation, 0) + body)


class Decoding:
    """Notes which thread decodes, and holds up the decoding of large responses until released."""

    def __init__(self, decode: Callable[..., codec.DecodedResponse]) -> None:
        self._decode = decode
        self._may_go_on = threading.Event()
        self._may_go_on.set()
        self.threads: list[int] = []
        self.begun = threading.Event()

    def hold(self) -> None:
        self._may_go_on.clear()

    def release(self) -> None:
        self._may_go_on.set()

    def __call__(self, kind: Any, version: int, frame: bytes, *rest: Any) -> codec.DecodedResponse:
        if kind is not messages.ApiVersionsRequest:
            self.threads.append(threading.get_ident())
        if len(frame) > codec.LARGE_RESPONSE:
            self.begun.set()
            assert self._may_go_on.wait(LONG)
        return self._decode(kind, version, frame, *rest)

    async def until_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.wait, LONG)


@pytest.fixture
def decoding(monkeypatch: pytest.MonkeyPatch) -> Decoding:
    noted = Decoding(codec.decode_response)
    monkeypatch.setattr(codec, "decode_response", noted)
    return noted


class Setup:
    """A broker whose responses are given in order, and the channels to it."""

    def __init__(self) -> None:
        self.responses: list[Callable[[int], bytes]] = []
        self.channels = Channels(ConsumerConfig(bootstrap_servers="127.0.0.1:1"))
        self.broker = FakeBroker(self._respond)
        self.node: Node | None = None

    async def _respond(self, correlation: int, writer: asyncio.StreamWriter) -> None:
        writer.write(self.responses.pop(0)(correlation))

    def send(
        self,
        message: messages.Request,
        channel: Channel = Channel.METADATA,
        timeout: float = LONG,
    ) -> asyncio.Task[Replied | Failed]:
        assert self.node is not None
        request = self.channels.request(Send(1, message, self.node, channel, timeout))
        return asyncio.get_running_loop().create_task(request)


@pytest.fixture
async def setup(decoding: Decoding) -> AsyncIterator[Setup]:
    setup = Setup()
    setup.node = await setup.broker.start()
    yield setup
    decoding.release()
    await setup.channels.close()
    await setup.broker.stop()
    for thread in threading.enumerate():
        if thread.name.startswith("asyncrevoke-decode"):
            thread.join(LONG)
            assert not thread.is_alive()


def partitions_of(response: Replied | Failed) -> int:
    assert isinstance(response, Replied)
    assert isinstance(response.message, messages.MetadataResponse)
    return len(response.message.topics[0].partitions)


async def test_a_large_response_is_decoded_in_another_thread(
    setup: Setup, decoding: Decoding
) -> None:
    assert len(BODY) > codec.LARGE_RESPONSE
    setup.responses = [metadata_response]
    assert partitions_of(await setup.send(METADATA)) == PARTITIONS
    assert threading.get_ident() not in decoding.threads
    assert len(decoding.threads) == 1


async def test_a_small_response_is_decoded_at_once(setup: Setup, decoding: Decoding) -> None:
    setup.responses = [lambda correlation: metadata_response(correlation, metadata_body(5))]
    assert partitions_of(await setup.send(METADATA)) == 5
    assert decoding.threads == [threading.get_ident()]


async def test_a_large_usual_fetch_stays_on_the_event_loop(
    setup: Setup, decoding: Decoding
) -> None:
    made: Any = fetch11
    partition = made.PartitionData(
        partition_index=0,
        error_code=ErrorCode.none,
        high_watermark=1,
        last_stable_offset=1,
        log_start_offset=0,
        aborted_transactions=None,
        preferred_read_replica=-1,
        records=bytes(2 * codec.LARGE_RESPONSE),
    )
    body = frames.body(
        made.FetchResponse(
            throttle_time=frames.NO_THROTTLE,
            error_code=ErrorCode.none,
            session_id=0,
            responses=(made.FetchableTopicResponse(topic="orders", partitions=(partition,)),),
        )
    )
    setup.responses = [lambda correlation: framed(struct.pack(">i", correlation) + body)]
    fetch = messages.FetchRequest(
        partitions=(
            messages.FetchPartition(
                partition=TopicPartition("orders", 0), offset=0, max_bytes=2 * codec.LARGE_RESPONSE
            ),
        ),
        max_wait=0.0,
        min_bytes=1,
        max_bytes=2 * codec.LARGE_RESPONSE,
    )
    response = await setup.send(fetch, Channel.FETCH)
    assert isinstance(response, Replied)
    assert decoding.threads == []


async def test_the_event_loop_runs_while_a_response_is_decoded(
    setup: Setup, decoding: Decoding
) -> None:
    setup.responses = [metadata_response, heartbeat_response]
    decoding.hold()
    large = setup.send(METADATA)
    await decoding.until_begun()
    # Another connection, for which the response comes and is decoded now.
    assert isinstance(await setup.send(HEARTBEAT, Channel.HEARTBEAT), Replied)
    assert not large.done()
    decoding.release()
    assert partitions_of(await large) == PARTITIONS


async def test_responses_keep_their_order_behind_a_large_one(
    setup: Setup, decoding: Decoding
) -> None:
    setup.responses = [heartbeat_response, metadata_response, heartbeat_response, metadata_response]
    await setup.send(HEARTBEAT)
    decoding.hold()
    finished: list[int] = []

    async def note(number: int, request: asyncio.Task[Replied | Failed]) -> Replied | Failed:
        response = await request
        finished.append(number)
        return response

    sent = [setup.send(message) for message in (METADATA, HEARTBEAT, METADATA)]
    requests = [note(number, request) for number, request in enumerate(sent)]
    waiting = asyncio.gather(*requests)
    await decoding.until_begun()
    await setup.broker.until(lambda: setup.broker.requests == 4)
    assert finished == []
    decoding.release()
    responses = await waiting
    assert finished == [0, 1, 2]
    assert partitions_of(responses[0]) == partitions_of(responses[2]) == PARTITIONS
    assert isinstance(responses[1], Replied)


async def test_no_request_is_overdue_because_a_response_is_decoded(
    setup: Setup, decoding: Decoding
) -> None:
    setup.responses = [heartbeat_response, metadata_response, heartbeat_response]
    await setup.send(HEARTBEAT)
    decoding.hold()
    within = 0.1
    requests = [setup.send(message, timeout=within) for message in (METADATA, HEARTBEAT)]
    await decoding.until_begun()
    await asyncio.sleep(3 * within)  # so long are both overdue
    decoding.release()
    assert all(isinstance(response, Replied) for response in await asyncio.gather(*requests))


async def test_a_large_response_that_is_none_fails_its_request(setup: Setup) -> None:
    setup.responses = [lambda correlation: metadata_response(correlation, BODY[:-3])]
    response = await setup.send(METADATA)
    assert isinstance(response, Failed)
    assert response.kind is FailureKind.MALFORMED
    assert "no MetadataResponse" in response.detail


async def test_closing_does_not_wait_for_a_response_that_is_decoded(
    setup: Setup, decoding: Decoding
) -> None:
    setup.responses = [metadata_response]
    decoding.hold()
    large = setup.send(METADATA)
    await decoding.until_begun()
    await setup.channels.close()
    response = await large
    assert isinstance(response, Failed)
    assert response.kind is FailureKind.DISCONNECTED
