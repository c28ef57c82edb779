"""Waits for topics whose results are written in transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.errors import ConsumerClosedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.client.producing.record_producer import RecordProducer


async def wait_for_topic(
    producer: Callable[[], RecordProducer], topic: str, longest_wait: float | None = None
) -> None:
    """Wait until the partitions of a topic are known to the present producer.

    A fenced producer is replaced by one with another transactional id, and the wait begins again.
    Raises PublishError as :meth:`RecordProducer.partitions` does, and ConsumerClosedError.
    """
    while True:
        asked = producer()
        try:
            await asked.partitions(topic, longest_wait)
        except ConsumerClosedError:
            if producer() is asked:
                raise
        else:
            return
