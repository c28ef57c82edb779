"""Large answers about groups are decoded in a thread: the dashboard shares its event loop."""

from __future__ import annotations

import io
import threading
from typing import TYPE_CHECKING, Any, cast

import pytest
from kio.schema.offset_fetch.v7 import response as offsets7
from wire.frames import response_frames as frames

from asyncrevoke.config import ConsumerConfig
from asyncrevoke.groups import kio_request, requests
from asyncrevoke.groups.cluster import GroupsClient
from asyncrevoke.groups.errors import GroupsError
from asyncrevoke.protocol import guard
from asyncrevoke.protocol.codec import LARGE_RESPONSE
from asyncrevoke.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

COMMITTED = requests.committed("g")


def answer(partitions: int) -> bytes:
    made: Any = offsets7
    topic = made.OffsetFetchResponseTopic(
        name="orders",
        partitions=tuple(
            made.OffsetFetchResponsePartition(
                partition_index=number,
                committed_offset=number,
                committed_leader_epoch=0,
                metadata="",
                error_code=ErrorCode.none,
            )
            for number in range(partitions)
        ),
    )
    response = made.OffsetFetchResponse(
        throttle_time=frames.NO_THROTTLE, topics=(topic,), error_code=ErrorCode.none
    )
    return frames.header(flexible=True) + frames.body(response)


class Client:
    """Answers every request with one frame, decoded on the event loop as aiokafka does it."""

    def __init__(self, frame: bytes) -> None:
        self.frame = frame

    async def send(self, _node: int, request: Any) -> object:
        prepared = request.prepare({9: (0, 99)})
        return prepared.decode(io.BytesIO(self.frame))

    async def close(self) -> None:
        pass


@pytest.fixture
async def cluster() -> AsyncIterator[GroupsClient]:
    cluster = GroupsClient(ConsumerConfig(bootstrap_servers="127.0.0.1:1"))
    await cast("Any", cluster)._client.close()
    yield cluster
    await cluster.__aexit__()
    for thread in threading.enumerate():
        if thread.name.startswith("asyncrevoke-decode"):
            thread.join(20)
            assert not thread.is_alive()


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where answers are decoded."""
    found: list[int] = []
    read = guard.read_response

    def noted(frame: bytes, answer: Any) -> Any:
        found.append(threading.get_ident())
        return read(frame, answer)

    monkeypatch.setattr(kio_request, "read_response", noted)
    return found


async def test_a_large_answer_about_groups_is_decoded_in_another_thread(
    cluster: GroupsClient, threads: list[int]
) -> None:
    frame = answer(10_000)
    assert len(frame) > LARGE_RESPONSE
    cluster._client = Client(frame)
    found = await cluster.ask(1, COMMITTED)
    assert len(found.topics[0].partitions) == 10_000
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_a_small_answer_about_groups_is_decoded_at_once(
    cluster: GroupsClient, threads: list[int]
) -> None:
    cluster._client = Client(answer(3))
    assert len((await cluster.ask(1, COMMITTED)).topics[0].partitions) == 3
    assert threads == [threading.get_ident()]


@pytest.mark.parametrize("partitions", [3, 10_000])
async def test_an_answer_about_groups_that_is_none_is_an_error(
    cluster: GroupsClient, partitions: int
) -> None:
    cluster._client = Client(answer(partitions)[:-5])
    with pytest.raises(GroupsError, match="no OffsetFetchResponse"):
        await cluster.ask(1, COMMITTED)
