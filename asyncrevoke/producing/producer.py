"""Publishes results over the consumer's connections."""

from __future__ import annotations

import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from asyncrevoke.core.io.effects import Channel, Send
from asyncrevoke.errors import ConsumerClosedError, PublishError
from asyncrevoke.producing.delivery import Delivery
from asyncrevoke.producing.encoding import encode_key, encode_value
from asyncrevoke.producing.producer_core import ProducerCore
from asyncrevoke.producing.publish_spans import PublishSpans
from asyncrevoke.producing.queueing.waiting_results import WaitingResults
from asyncrevoke.producing.trace_context import result_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.io.effects import Node
    from asyncrevoke.model import TopicPartition
    from asyncrevoke.producing.delivery import ResultObserver
    from asyncrevoke.producing.encoded_records import EncodedRecords
    from asyncrevoke.producing.message import Headers
    from asyncrevoke.producing.producer_core import Outgoing
    from asyncrevoke.producing.publish_spans import ResultTracer
    from asyncrevoke.producing.queueing.result_group import ResultGroup
    from asyncrevoke.producing.queueing.result_topic import TopicPartitions
    from asyncrevoke.producing.queueing.waiting_results import WaitingResult
    from asyncrevoke.runtime.net.requests import Requests

    EncodedHeaders: TypeAlias = Sequence[tuple[str, bytes | None]]

# Bytes of results that are not acknowledged; beyond them, calls wait.
_MEMORY: Final = 32 * 1024 * 1024
# A result is given up after so many times ``request_timeout``.
_DELIVERY_ATTEMPTS: Final = 3
# As numbered in the attributes of a record batch.
_COMPRESSIONS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


class Producer:
    """Writes with ``acks=all`` and idempotence; nothing is sent before something is published.

    A result is tried for three times ``request_timeout``, a topic that does not exist is waited
    for ``request_timeout``. ``wall_clock`` returns seconds since the epoch. With
    ``compress_in_thread``, large batches are compressed there.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        requests: Requests,
        bootstrap: Sequence[Node],
        wall_clock: Callable[[], float],
        observer: ResultObserver | None = None,
        tracer: ResultTracer | None = None,
        *,
        compress_in_thread: bool = True,
    ) -> None:
        self._config = config
        self._requests = requests
        self._wall_clock = wall_clock
        self.observer = observer
        self._tracer = tracer
        self._loop = asyncio.get_running_loop()
        self._core = ProducerCore(
            bootstrap,
            request_timeout=config.request_timeout,
            delivery_timeout=_DELIVERY_ATTEMPTS * config.request_timeout,
            metadata_max_age=config.metadata_max_age,
            compression=_COMPRESSIONS[config.compression],
            memory=_MEMORY,
            compress_apart=compress_in_thread,
        )
        self._now = 0.0
        self._timestamp = 0
        self._ids = itertools.count()
        # A thread, when the first large batch is compressed.
        self._compressor: ThreadPoolExecutor | None = None
        self._compressions: set[asyncio.Future[None]] = set()
        self._exchanges: set[asyncio.Task[None]] = set()
        self._pump_scheduled = False
        # Those that were begun in this iteration of the event loop, and may have results.
        self._groups: dict[ResultGroup, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        # Those who wait for metadata or for memory, and those for the last acknowledgement.
        self._waiting_results = WaitingResults()
        self._waiting: set[asyncio.Future[None]] = set()
        self._closed: Exception | None = None

    async def publish(
        self,
        topic: str,
        value: object,
        *,
        key: bytes | str | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Write a record, and return when all in-sync replicas have it.

        Bytes and None are written unchanged, text as UTF-8, pydantic models and all else as JSON.
        Without ``partition`` the key decides, as in Java's producer. ``timestamp`` is in
        milliseconds since the epoch. A tracer adds the context of the span, unless
        ``headers`` have one. Raises PublishError. If cancelled, it may be written all the same.
        """
        delivery = self.delivery("")
        with self.spans(in_call=False) as spans:
            await self.queue(
                topic,
                partition,
                encode_key(topic, key),
                encode_value(topic, value),
                result_headers(topic, spans.begin(topic), headers),
                timestamp,
                delivery,
            )
            await delivery.wait()

    def delivery(self, handler: str) -> Delivery:
        """Waits for results of this handler, which are counted as such."""
        return Delivery(handler, self.observer)

    def spans(self, *, in_call: bool) -> PublishSpans:
        """Begins the spans of results, if there is a tracer; ``in_call``: of a handler's call."""
        return PublishSpans(self._tracer, in_call=in_call)

    async def queue(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
        timestamp: int | None,
        delivery: Delivery,
        token: object = None,
    ) -> None:
        """Queue a record, when its topic is known and there is memory; ``delivery`` waits for its
        acknowledgement, and is told of it with ``token``.

        Raises PublishError after ``request_timeout`` for a topic that does not exist, and after
        three of them for memory. Results for one topic are queued in the order of the calls.
        """

        def try_queue() -> bool:
            now, at = self._turn(), self._timestamp if timestamp is None else timestamp
            queued = self._core.append(
                now, topic, partition, key, value, headers, at, delivery, token
            )
            if queued:
                delivery.expect()
            return queued

        await self._queue_in_turn(topic, try_queue)

    async def queue_batch(
        self,
        partition: TopicPartition,
        records: EncodedRecords,
        delivery: Delivery,
        tokens: Sequence[object],
    ) -> None:
        """Queue encoded records as one batch, when there is memory; they are acknowledged together,
        and ``delivery`` is told of them with ``tokens``, one for each.

        A batch that the broker finds too large is split. Raises PublishError as :meth:`queue`.
        """

        def try_queue() -> bool:
            queued = self._core.append_batch(self._turn(), partition, records, delivery, tokens)
            if queued:
                delivery.expect(records.count)
            return queued

        await self._queue_in_turn(partition.topic, try_queue)

    async def partitions(self, topic: str) -> TopicPartitions:
        """The partitions of a topic. Raises PublishError after ``request_timeout`` for a topic that
        does not exist."""

        def is_known() -> bool:
            return self._core.partitions(self._turn(), topic) is not None

        await self._queue_in_turn(topic, is_known)
        known = self._core.partitions(self._now, topic)
        assert known is not None
        return known

    def begin_group(self, group: ResultGroup) -> bool:
        """Queue what the group has; False if its topic takes no further results now.

        What is added to it in this iteration of the event loop is queued at its end, or before any
        other result. Raises PublishError.
        """
        now = self._turn()
        self._queue_groups()
        if group.topic in self._waiting_results or not self._core.has_room(now, group.topic):
            return False
        self._groups[group] = None
        return True

    async def flush(self) -> None:
        """Wait until all that was queued is acknowledged or has failed."""
        while self.queued:
            await self._change(float("inf"))

    @property
    def queued(self) -> int:
        """Results that are neither acknowledged nor have failed."""
        return self._core.queued + sum(len(group.results) for group in self._groups)

    def stop(self) -> None:
        """Send nothing more; what is not acknowledged fails."""
        self._end(ConsumerClosedError("the consumer was closed before a result was acknowledged"))

    async def aclose(self) -> None:
        """Send nothing more, and end all requests."""
        self.stop()
        for task in self._exchanges:
            task.cancel()
        # The thread ends with the batch that it compresses now.
        if under_way := [*self._exchanges, *self._compressions]:
            await asyncio.wait(under_way)

    # --- requests --------------------------------------------------------------------------------

    def _turn(self) -> float:
        """The time by the event loop's clock at which this iteration of it began to queue."""
        if not self._pump_scheduled:
            self._begin_turn()
        return self._now

    def _begin_turn(self) -> None:
        """The first result is queued in this iteration of the event loop, which sends it at its
        end. The clocks are read once for all of them."""
        if self._closed is not None:
            raise self._closed
        self._pump_scheduled = True
        self._now = self._loop.time()
        self._timestamp = int(self._wall_clock() * 1000)
        self._loop.call_soon(self._pump)

    def _queue_groups(self) -> None:
        """Queue what they have, before any other result."""
        if self._groups:
            groups, self._groups = list(self._groups), {}
            for group in groups:
                self._core.append_group(self._now, group, self._timestamp)

    def _pump(self) -> None:
        """Send what is due. An error in this room ends the producer: nobody may wait for ever."""
        self._pump_scheduled = False
        if self._closed is None:
            try:
                self._queue_groups()
                self._send()
            except Exception as error:  # noqa: BLE001 - all that wait are told
                self._end(error)

    def _send(self) -> None:
        core, now = self._core, self._loop.time()
        queued = core.queued
        core.expire(now)
        if core.queued < queued:
            self._changed()
        for outgoing in core.requests(now):
            task = self._loop.create_task(self._exchange(outgoing), name="asyncrevoke produce")
            self._exchanges.add(task)
            task.add_done_callback(self._exchange_ended)
        for batch in core.to_compress():
            if self._compressor is None:
                self._compressor = ThreadPoolExecutor(1, "asyncrevoke compress")
            compressed = self._loop.run_in_executor(self._compressor, batch.compress)
            self._compressions.add(compressed)
            compressed.add_done_callback(self._compressed)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = core.next_at(now)
        if due < float("inf"):
            self._timer = self._loop.call_at(due, self._pump)

    async def _exchange(self, outgoing: Outgoing) -> None:
        """Send one request, and take in its answer."""
        send = Send(
            next(self._ids),
            outgoing.message,
            outgoing.node,
            Channel.PRODUCE,
            self._config.request_timeout,
        )
        reply = await self._requests.request(send)
        self._core.answered(self._loop.time(), outgoing, reply)
        self._changed()
        self._pump()

    def _compressed(self, compressed: asyncio.Future[None]) -> None:
        self._compressions.discard(compressed)
        if compressed.cancelled() or self._closed is not None:
            return
        error = compressed.exception()
        if error is not None:
            self._end(error if isinstance(error, Exception) else RuntimeError(repr(error)))
        else:
            self._pump()

    def _exchange_ended(self, task: asyncio.Task[None]) -> None:
        self._exchanges.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A mistake in this room: nobody may wait for ever.
            self._end(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    def _end(self, error: Exception) -> None:
        if self._closed is not None:
            return
        self._closed = error
        # The next result is rejected.
        self._pump_scheduled = False
        if self._timer is not None:
            self._timer.cancel()
        if self._compressor is not None:
            self._compressor.shutdown(wait=False, cancel_futures=True)
        self._core.fail_all(error)
        groups, self._groups = list(self._groups), {}
        for group in groups:
            group.fail(error)
        self._changed()

    # --- waiting ---------------------------------------------------------------------------------

    async def _queue_in_turn(self, topic: str, try_queue: Callable[[], bool]) -> None:
        """Call ``try_queue`` until it returns True, after those that wait for this topic."""
        self._queue_groups()
        if topic in self._waiting_results or not try_queue():
            await self._wait_until_queued(topic, self._waiting_results.add(topic, try_queue))

    async def _wait_until_queued(self, topic: str, waiting: WaitingResult) -> None:
        started = self._loop.time()
        try:
            while not waiting.queued.done():
                known = self._core.is_known(topic)
                seconds = self._config.request_timeout * (_DELIVERY_ATTEMPTS if known else 1)
                left = started + seconds - self._loop.time()
                if left > 0:
                    await asyncio.wait([waiting.queued], timeout=left)
                else:
                    self._waiting_results.remove(topic, waiting)
                    others = topic in self._waiting_results
                    error = self._core.why_not(topic, in_time=False, others_wait=others)
                    raise error or PublishError(topic, "its partitions are unknown")
            waiting.queued.result()
        finally:
            waiting.queued.cancel()
            self._waiting_results.remove(topic, waiting)

    async def _change(self, until: float) -> bool:
        """Wait until something was answered; False if that takes until ``until``."""
        if self._loop.time() >= until:
            return False
        change: asyncio.Future[None] = self._loop.create_future()
        self._waiting.add(change)
        try:
            async with asyncio.timeout_at(None if until == float("inf") else until):
                await change
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(change)
        return True

    def _changed(self) -> None:
        self._waiting_results.retry(self._why_not_now)
        for change in self._waiting:
            if not change.done():
                change.set_result(None)

    def _why_not_now(self, topic: str, others_wait: bool) -> PublishError | None:
        return self._core.why_not(topic, in_time=True, others_wait=others_wait)
