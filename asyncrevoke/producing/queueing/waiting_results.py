"""Results that cannot be queued yet: their topic is unknown, or memory is full."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple


class WaitingResult(NamedTuple):
    """``try_queue`` queues it, returns False if it has to wait longer, and raises PublishError.

    ``queued`` has the outcome. It is cancelled with the call that waits for it.
    """

    try_queue: Callable[[], bool]
    queued: asyncio.Future[None]


class WaitingResults:
    """By topic, in the order of the calls. A call comes after all that wait for its topic."""

    def __init__(self) -> None:
        self._by_topic: dict[str, deque[WaitingResult]] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._by_topic

    def add(self, topic: str, try_queue: Callable[[], bool]) -> WaitingResult:
        """The last one of its topic."""
        waiting = WaitingResult(try_queue, asyncio.get_running_loop().create_future())
        self._by_topic.setdefault(topic, deque()).append(waiting)
        return waiting

    def remove(self, topic: str, waiting: WaitingResult) -> None:
        """Its call has ended, with whatever outcome."""
        results = self._by_topic.get(topic)
        if results is not None and waiting in results:
            results.remove(waiting)
            if not results:
                del self._by_topic[topic]

    def retry(self, why_not: Callable[[str, bool], Exception | None]) -> None:
        """Queue what can be queued now. ``why_not`` says why a result of a topic fails at once; its
        second argument: whether others wait for the topic."""
        for topic, results in list(self._by_topic.items()):
            while results:
                if results[0].queued.done() or _queue(results[0]):
                    results.popleft()
                elif (error := why_not(topic, len(results) > 1)) is not None:
                    results.popleft().queued.set_exception(error)
                else:
                    break
            if not results:
                del self._by_topic[topic]


def _queue(waiting: WaitingResult) -> bool:
    """Whether it has an outcome."""
    try:
        if not waiting.try_queue():
            return False
    except Exception as error:  # noqa: BLE001 - raised by the call that waits
        waiting.queued.set_exception(error)
    else:
        waiting.queued.set_result(None)
    return True
