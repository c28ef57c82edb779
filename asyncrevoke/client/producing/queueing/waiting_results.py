"""Results that cannot be queued yet: their topic is unknown, or memory is full."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple


class WaitingResult(NamedTuple):
    """A result that waits to be queued.

    ``try_queue`` queues it, returns False if it has to wait longer, and raises PublishError.
    ``queued`` ends with the result of that, and is cancelled with the call that waits for it.
    """

    try_queue: Callable[[], bool]
    queued: asyncio.Future[None]


class WaitingResults:
    """Waiting results by topic, in the order of the calls."""

    def __init__(self) -> None:
        self._by_topic: dict[str, deque[WaitingResult]] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._by_topic

    def add(self, topic: str, try_queue: Callable[[], bool]) -> WaitingResult:
        """Add a result behind all that wait for its topic."""
        waiting = WaitingResult(try_queue, asyncio.get_running_loop().create_future())
        self._by_topic.setdefault(topic, deque()).append(waiting)
        return waiting

    def remove(self, topic: str, waiting: WaitingResult) -> None:
        """Remove a result whose call has ended."""
        results = self._by_topic.get(topic)
        if results is not None and waiting in results:
            results.remove(waiting)
            if not results:
                del self._by_topic[topic]

    def retry(self, why_not: Callable[[str, bool], Exception | None]) -> None:
        """Queue the results that can be queued now.

        ``why_not(topic, others_wait)`` returns the error of a result that must not wait longer;
        ``others_wait``: further results wait for the topic.
        """
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
    """Try to queue a result; False if it has to wait longer."""
    try:
        if not waiting.try_queue():
            return False
    except Exception as error:  # noqa: BLE001 - raised by the call that waits
        waiting.queued.set_exception(error)
    else:
        waiting.queued.set_result(None)
    return True
