"""The bookkeeping of the benchmark of producers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from benchmarks import producing
from benchmarks.clients.producing_clients import (
    CLIENTS,
    OURS,
    TIMED,
    Client,
    Writing,
    Written,
    write_all,
    write_at,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

    import pytest

WRITING = Writing("", "", 200, 10, (b"a", b"b", None))


class Topic:
    """A client whose acknowledgements take some milliseconds."""

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []
        self.acknowledged = 0

    async def _acknowledge(self) -> None:
        await asyncio.sleep(0.005)
        self.acknowledged += 1

    async def send(self, key: bytes | None) -> Awaitable[object]:
        self.keys.append(key)
        return asyncio.create_task(self._acknowledge())

    async def publish(self) -> None:
        await self._acknowledge()

    async def flush(self) -> None:
        pass

    def client(self) -> Client:
        return Client(self.send, self.publish, self.flush)


async def test_all_records_are_queued_and_all_acknowledgements_awaited() -> None:
    topic = Topic()
    found = await write_all(topic.client(), WRITING)
    assert topic.keys[:4] == [b"a", b"b", None, b"a"]
    assert len(topic.keys) + 1 == topic.acknowledged == 200
    assert 0 < found.clock < 199 / 0.005


async def test_calls_are_begun_at_the_rate_whatever_they_take() -> None:
    topic = Topic()
    delays = await write_at(topic.client(), WRITING, 2000)
    assert topic.acknowledged == 200
    assert len(delays) == 180
    assert min(delays) >= 0.005


def test_every_client_of_the_rate_is_timed_too() -> None:
    assert TIMED.keys() >= CLIENTS.keys()
    assert next(iter(CLIENTS)) == OURS


def test_the_report_has_the_ratio_of_each_round(capsys: pytest.CaptureFixture[str]) -> None:
    options = producing._Options(records=10, size=1, keys=0, rate=10.0, seconds=1.0, rounds=2)
    options.json = False
    rates = {OURS: [Written(300, 30), Written(400, 40)], "other": [Written(100, 10)] * 2}
    delays = {OURS: [[0.001] * 100] * 2, "other": [[0.002] * 100] * 2}
    assert producing._report(options, rates, delays, {}) == 0
    shown = capsys.readouterr().out
    assert "3.50 (3.00 to 4.00)" in shown
    assert "0.50 (0.50 to 0.50)" in shown
    assert producing._report(options, rates, delays, {"other": "died"}) == 1
