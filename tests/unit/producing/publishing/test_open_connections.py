"""Requests that are sent at once, over a connection that is open."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from typing_extensions import override
from unit.handlers.results.scripted_results_broker import ScriptedResultsBroker
from unit.producing.publishing.scripted_producer import entered, values

from asyncrevoke import ConsumerClosedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.client.core.io.effects import Failed, Replied, Send

pytestmark = pytest.mark.timeout(20)


class OpenConnections(ScriptedResultsBroker):
    """Takes each request at once; ``replies`` are the tasks that respond."""

    def __init__(self) -> None:
        super().__init__()
        self.replies: set[asyncio.Task[None]] = set()

    @override
    def begin(self, send: Send, on_reply: object) -> bool:
        self.replies.add(asyncio.create_task(self._respond(send, on_reply)))  # type: ignore[arg-type]
        return True

    async def _respond(self, send: Send, on_reply: Callable[[Replied | Failed], object]) -> None:
        on_reply(await self.request(send))


def of_producer() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if "produce" in task.get_name()]


async def test_no_task_waits_for_a_response() -> None:
    broker = OpenConnections()
    async with entered(broker) as producer:
        await producer.publish("t", b"0")
        broker.responding.clear()
        record = await producer.publish_soon("t", b"1")
        while broker.received < 2:  # noqa: ASYNC110 - it is sent soon
            await asyncio.sleep(0)
        waiting = of_producer()
        broker.responding.set()
        assert waiting == []
        await record
    assert values(broker) == [0, 1]


async def test_a_response_after_closing_changes_nothing() -> None:
    broker = OpenConnections()
    async with entered(broker) as producer:
        await producer.publish("t", b"0")
        broker.responding.clear()
        record = await producer.publish_soon("t", b"1")
        publishing = asyncio.create_task(producer.publish("t", b"2"))
        await asyncio.sleep(0)
        closing = asyncio.create_task(producer.aclose(0.01))
        with pytest.raises(ConsumerClosedError):
            await record
        with pytest.raises(ConsumerClosedError):
            await publishing
        await closing
        broker.responding.set()
        await asyncio.gather(*broker.replies)
        with pytest.raises(ConsumerClosedError):
            await record


async def test_a_defect_in_processing_a_response_is_raised_by_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = OpenConnections()
    async with entered(broker) as producer:
        await producer.publish("t", b"0")

        def defect(*_: object, **__: object) -> None:
            raise LookupError("defect")

        core = producer._entered().producer._core
        monkeypatch.setattr(core, "response_received", defect)
        with pytest.raises(LookupError, match="defect"):
            await producer.publish("t", b"1")
