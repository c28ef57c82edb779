"""Results that cannot be queued yet: their topic is unknown, or memory is full."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from asyncrevoke.client.errors import PublishError


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
        self.by_topic: dict[str, deque[WaitingResult]] = {}

    def __len__(self) -> int:
        return sum(map(len, self.by_topic.values()))

    def add(self, topic: str, try_queue: Callable[[], bool]) -> WaitingResult:
        """Add a result behind all that wait for its topic."""
        waiting = WaitingResult(try_queue, asyncio.get_running_loop().create_future())
        self.by_topic.setdefault(topic, deque()).append(waiting)
        return waiting

    def remove(self, topic: str, waiting: WaitingResult) -> None:
        """Remove a result whose call has ended."""
        results = self.by_topic.get(topic)
        if results is not None and waiting in results:
            results.remove(waiting)
            if not results:
                del self.by_topic[topic]

    async def wait(
        self,
        topic: str,
        waiting: WaitingResult,
        longest: Callable[[], float],
        why_not: Callable[..., PublishError | None],
    ) -> None:
        """Wait until a result is queued, for the seconds that ``longest`` returns then. Raises the
        error that ``why_not(topic, others_wait=...)`` returns, and what ``try_queue`` has raised.
        """
        time = asyncio.get_running_loop().time
        started = time()
        try:
            while not waiting.queued.done():
                if (left := started + longest() - time()) > 0:
                    await asyncio.wait([waiting.queued], timeout=left)
                else:
                    self.remove(topic, waiting)
                    error = why_not(topic, others_wait=topic in self.by_topic)
                    raise error or PublishError(topic, "its partitions are unknown")
            waiting.queued.result()
        finally:
            waiting.queued.cancel()
            self.remove(topic, waiting)

    def retry(self, why_not: Callable[..., Exception | None]) -> None:
        """Queue the results that can be queued now.

        ``why_not(topic, others_wait=...)`` returns the error of a result that must not wait longer;
        ``others_wait``: further results wait for the topic.
        """
        for topic, results in list(self.by_topic.items()):
            while results:
                if results[0].queued.done() or _queue(results[0]):
                    results.popleft()
                elif (error := why_not(topic, others_wait=len(results) > 1)) is not None:
                    results.popleft().queued.set_exception(error)
                else:
                    break
            if not results:
                del self.by_topic[topic]


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
