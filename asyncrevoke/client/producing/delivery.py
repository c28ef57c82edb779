"""Waits for the acknowledgements of published results."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.client.runtime.hooks.observers import Observers


class Delivery:
    """Waits until all of several results are acknowledged, or one has failed.

    ``observer`` counts the acknowledged ones as results of ``handler``.
    """

    def __init__(self, handler: str = "", observer: Observers | None = None) -> None:
        self._handler = handler
        self._observer = observer
        # One more until all are queued.
        self._left = 1
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def expect(self, results: int = 1) -> None:
        """``results`` more results are queued."""
        self._left += results

    async def wait(self) -> None:
        """Wait, and raise the error of the first result that has failed."""
        self._count(1)
        await self._ended

    def results_acknowledged(
        self, tokens: Sequence[object], partition: TopicPartition, _offset: int, /
    ) -> None:
        """Count these results as acknowledged."""
        if self._observer is not None:
            self._observer.on_results_published(self._handler, partition.topic, len(tokens))
        self._count(len(tokens))

    def results_failed(self, tokens: Sequence[object], error: Exception, /) -> None:
        """Let :meth:`wait` raise the error."""
        self._left -= len(tokens)
        if not self._ended.done():
            self._ended.set_exception(error)
            # asyncio would warn if wait() was cancelled.
            self._ended.exception()

    def _count(self, results: int) -> None:
        self._left -= results
        if not self._left and not self._ended.done():
            self._ended.set_result(None)


class CompleteDelivery(Delivery):
    """Waits until each of several results is acknowledged or has failed.

    ``acknowledged`` has their tokens, each with its partition and its offset, -1 if unknown;
    ``failed`` has the tokens of the others, each with its error.
    """

    def __init__(self) -> None:
        super().__init__()
        self.acknowledged: list[tuple[object, TopicPartition, int]] = []
        self.failed: list[tuple[object, Exception]] = []

    def results_acknowledged(
        self, tokens: Sequence[object], partition: TopicPartition, offset: int, /
    ) -> None:
        """Keep the offsets of these results."""
        for number, token in enumerate(tokens):
            self.acknowledged.append((token, partition, offset + number if offset >= 0 else -1))
        self._count(len(tokens))

    def results_failed(self, tokens: Sequence[object], error: Exception, /) -> None:
        """Keep the error of these results, and wait for the others."""
        self.failed += [(token, error) for token in tokens]
        self._count(len(tokens))
