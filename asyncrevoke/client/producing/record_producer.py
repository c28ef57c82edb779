"""Writes results and dead letters over the consumer's connections, or records over its own."""

from __future__ import annotations

import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

from asyncrevoke.client.core.io.effects import Channel, Failed, Node, Replied, Send
from asyncrevoke.client.errors import ConfigError, ConsumerClosedError
from asyncrevoke.client.model import ProducerHealth
from asyncrevoke.client.producing.delivery import Delivery
from asyncrevoke.client.producing.producer_core import NO_RESPONSE, ProducerCore
from asyncrevoke.client.producing.queueing.waiting_results import WaitingResults
from asyncrevoke.client.producing.trace_context import PublishSpans

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.log_events import Log
    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.client.producing.encoded_records import EncodedRecords
    from asyncrevoke.client.producing.message import RecordFields
    from asyncrevoke.client.producing.queueing.result_group import ResultGroup
    from asyncrevoke.client.producing.queueing.result_topics import OutputPartitions
    from asyncrevoke.client.producing.record_batch import ResultSink
    from asyncrevoke.client.producing.transactions.group_offsets import GroupOffsets
    from asyncrevoke.client.producing.transactions.transaction import PlacedRecord
    from asyncrevoke.client.producing.transactions.transaction_commits import TransactionCommits
    from asyncrevoke.client.protocol.messages import Request
    from asyncrevoke.client.runtime.hooks.observers import Observers, Tracer
    from asyncrevoke.client.runtime.net.requests import Requests

# Most bytes of results that are not acknowledged; further calls wait.
MEMORY: Final = 32 * 1024 * 1024
# Bytes of single records that are queued in one iteration of the event loop: then some are sent.
_TURN_BYTES: Final = 256 * 1024
# A result fails after this many times ``request_timeout``.
_DELIVERY_ATTEMPTS: Final = 3
# The numbers in the attributes of a record batch.
_COMPRESSIONS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


class RecordProducer:
    """Writes records with ``acks=all``, and with idempotence unless the consumer's option
    ``idempotent`` is False; connects at the first record, or before it with :meth:`prepare`.

    A record fails after three times ``request_timeout``, or after ``request_timeout`` if its topic
    does not exist. ``wall_clock`` returns seconds since the epoch. With ``compress_in_thread``, a
    thread compresses large batches.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        requests: Requests,
        bootstrap: Sequence[Node],
        wall_clock: Callable[[], float],
        observer: Observers | None = None,
        tracer: Tracer | None = None,
        *,
        compress_in_thread: bool = True,
        memory: int = MEMORY,
        transactional_id: str | None = None,
        transaction_timeout: float = 60.0,
    ) -> None:
        self._config = config
        self._requests = requests
        self._wall_clock = wall_clock
        self.observer = observer
        self.tracer = tracer
        self._loop = asyncio.get_running_loop()
        self._core = ProducerCore(
            bootstrap,
            request_timeout=config.request_timeout,
            delivery_timeout=_DELIVERY_ATTEMPTS * config.request_timeout,
            metadata_max_age=config.metadata_max_age,
            compression=_COMPRESSIONS[config.compression],
            memory=memory,
            compress_separately=compress_in_thread,
            idempotent=config.idempotent,
        )
        self._transactions = self._begin_transactions(transactional_id, transaction_timeout)
        self._now = 0.0
        self._timestamp = 0
        self._turn_ends_at = 0
        self._waits_for_turn = False
        self._ids = itertools.count()
        self._compressor: ThreadPoolExecutor | None = None
        self._compressions: set[asyncio.Future[None]] = set()
        self._exchanges: set[asyncio.Task[None]] = set()
        self._pump_scheduled = False
        # Those that were begun in this iteration of the event loop, and may have results.
        self._groups: dict[ResultGroup, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._waiting_results = WaitingResults()
        self._changes: set[asyncio.Future[None]] = set()
        self._closed: Exception | None = None

    def _begin_transactions(
        self, transactional_id: str | None, timeout: float
    ) -> TransactionCommits | None:
        if transactional_id is None:
            return None
        from asyncrevoke.client.producing.transactions.transaction_commits import (
            TransactionCommits,
        )

        return TransactionCommits(
            self,
            self._core.topics,
            transactional_id,
            timeout=timeout,
            request_timeout=self._config.request_timeout,
            metadata_max_age=self._config.metadata_max_age,
            compression=_COMPRESSIONS[self._config.compression],
        )

    @property
    def commits(self) -> TransactionCommits:
        """What commits transactions. Raises ConfigError without a ``transactional_id``."""
        if self._transactions is None:
            raise ConfigError("transaction() needs Producer(transactional_id=...)")
        return self._transactions

    async def commit_transaction(
        self,
        records: Sequence[RecordFields],
        offsets: GroupOffsets | None = None,
        written: Callable[[Iterable[PlacedRecord]], None] | None = None,
    ) -> None:
        """Write the records and commit the offsets, together or not at all; nothing if both are
        empty. ``written`` is called each time all records are written, before the commit.

        Waits for the transaction before, and for the acknowledgement of the commit or abort. Raises
        RecordsRefusedError if records are refused, OffsetsRejectedError if the group coordinator
        rejects the offsets, ProducerFencedError, and TransactionError; with ``in_doubt`` it may be
        committed: see :meth:`transaction_settled`. Cancelling aborts it before its commit is sent.
        """
        await self.commits.commit(records, offsets, written)

    def abort_transaction(self, error: Exception) -> bool:
        """Abort the present transaction, so that :meth:`commit_transaction` raises ``error``. False
        without one, or if the commit was sent and may succeed."""
        return self.commits.abort(error)

    @property
    def fatal_error(self) -> Exception | None:
        """Why no further transaction can succeed; None if one may."""
        return self.commits.core.fatal

    async def transaction_settled(self) -> None:
        """Wait until each transaction is committed or aborted, those of former producers with this
        transactional id included. After one that has failed with ``in_doubt``, committed offsets
        that are read then, with ``require_stable``, say which.

        Raises the error that has ended the producer, or TransactionError after three times
        ``request_timeout``.
        """
        await self.commits.settled()

    def log_to(self, log: Log, checked: Container[str] = (), *, brokers: bool = False) -> None:
        """Write to ``log`` which topics do not exist, except for those in ``checked``; with
        ``brokers``, that no broker responds, too."""
        self._core.topics.log_to(log, checked, brokers=brokers)

    def prepare(self, topic: str) -> None:
        """Connect, and request what the first record for this topic would wait for."""
        self._core.prepare(self._turn(), topic)

    def delivery(self, handler: str) -> Delivery:
        """Waits for results of this handler, and counts them."""
        return Delivery(handler, self.observer)

    def spans(self, *, in_call: bool) -> PublishSpans:
        """The spans of results, if there is a tracer; ``in_call``: inside a handler's call."""
        return PublishSpans(self.tracer, in_call=in_call)

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
        longest_wait: float | None = None,
    ) -> None:
        """Queue a record; waits until its topic is known and there is memory.

        ``delivery`` waits for the acknowledgement, and receives it with ``token``. Records for one
        topic are queued in the order of the calls. Raises PublishError if the topic is unknown
        after ``longest_wait`` seconds (by default, and at most, ``request_timeout``), or there is
        no memory after three times ``request_timeout``.
        """

        def try_queue() -> bool:
            now, at = self._turn(), self._timestamp if timestamp is None else timestamp
            queued = self._core.append(
                now, topic, partition, key, value, headers, at, delivery, token
            )
            if queued:
                delivery.expect()
            return queued

        await self.queue_in_turn(topic, try_queue, longest_wait)

    def append(
        self, record: RecordFields, sink: ResultSink, token: object, *, has_waited: bool = False
    ) -> bool:
        """Queue a record; False if it has to wait for its topic, for memory, for records that wait
        for the topic (unless it ``has_waited``), or until what was queued in this iteration of the
        event loop is sent: then :meth:`queue_in_turn`. Raises PublishError."""
        if not self._pump_scheduled:
            self._begin_turn()
        if self._groups:
            self._queue_groups()
        core, waiting = self._core, self._waiting_results.by_topic
        topic, partition, key, value, headers, timestamp = record
        if waiting and not has_waited and topic in waiting:
            return False
        if core.queued_bytes >= self._turn_ends_at:
            self._waits_for_turn = True
            return False
        at = self._timestamp if timestamp is None else timestamp
        return core.append(self._now, topic, partition, key, value, headers, at, sink, token)

    async def queue_batch(
        self,
        partition: TopicPartition,
        records: EncodedRecords,
        delivery: Delivery,
        tokens: Sequence[object],
    ) -> None:
        """Queue encoded records as one batch; waits as :meth:`queue` does, and raises PublishError.

        The records are acknowledged together. ``delivery`` receives ``tokens``, one for each. A
        batch that the broker rejects as too large is split.
        """

        def try_queue() -> bool:
            queued = self._core.append_batch(self._turn(), partition, records, delivery, tokens)
            if queued:
                delivery.expect(records.count)
            return queued

        await self.queue_in_turn(partition.topic, try_queue)

    def is_known(self, topic: str) -> bool:
        """Whether the partitions of a topic are known."""
        return self._core.is_known(topic)

    async def partitions(self, topic: str, longest_wait: float | None = None) -> OutputPartitions:
        """The partitions of a topic. Raises PublishError if it does not exist after
        ``longest_wait`` seconds (by default, and at most, ``request_timeout``).
        """
        await self.queue_in_turn(
            topic, lambda: self._core.partitions(self._turn(), topic) is not None, longest_wait
        )
        known = self._core.partitions(self._now, topic)
        assert known is not None
        return known

    def begin_group(self, group: ResultGroup) -> bool:
        """Queue the results of the group; False if its topic can take no results now.

        Results that are added in this iteration of the event loop are queued at the end of it, or
        before any other result. Raises PublishError.
        """
        now = self._turn()
        self._queue_groups()
        if group.topic in self._waiting_results.by_topic or not self._core.has_room(
            now, group.topic
        ):
            return False
        self._groups[group] = None
        return True

    async def flush(self) -> None:
        """Wait until all results that are queued now are acknowledged or have failed."""
        self._queue_groups()
        last = self._core.active.last_expiry
        while self._core.active.first_expiry <= last:
            await self.change()

    async def change(self) -> None:
        """Wait until a response is processed, or a result has failed."""
        self._changes.add(change := self._loop.create_future())
        try:
            await change
        finally:
            self._changes.discard(change)

    @property
    def queued(self) -> int:
        """Results that are neither acknowledged nor have failed."""
        return self._core.queued + sum(len(group.values) for group in self._groups)

    def health(self, unreceived_errors: int) -> ProducerHealth:
        """The present state."""
        core, now = self._core, self._loop.time()
        first, failing = core.active.first_expiry, core.failing_since
        queued_for = self._config.request_timeout * _DELIVERY_ATTEMPTS - (first - now)
        return ProducerHealth(
            queued_records=self.queued,
            queued_bytes=core.queued_bytes,
            buffer_memory=core.memory,
            oldest_seconds=queued_for if core.active else None,
            waiting_calls=len(self._waiting_results),
            failing_seconds=None if failing is None else now - failing,
            last_failure=None if core.last_failure is NO_RESPONSE else core.last_failure,
            unreceived_errors=unreceived_errors,
            error=self._closed,
            missing_topics=core.topics.missing,
        )

    def stop(self) -> None:
        """Stop sending. Results that are not acknowledged fail."""
        self._end(ConsumerClosedError("closed before the record was acknowledged"))

    async def aclose(self) -> None:
        """Stop as :meth:`stop` does, and cancel all requests. Before, a transaction whose commit
        was cancelled is aborted, for at most ``request_timeout``: until then its records delay
        readers."""
        if self._transactions is not None:
            await self._transactions.aclose()
        self.stop()
        for task in self._exchanges:
            task.cancel()
        # The thread ends with the batch that it compresses now.
        if under_way := [*self._exchanges, *self._compressions]:
            await asyncio.wait(under_way)

    # --- requests --------------------------------------------------------------------------------

    def _turn(self) -> float:
        """The event loop's time of the first result in this iteration of the event loop."""
        if not self._pump_scheduled:
            self._begin_turn()
        return self._now

    def begin_turn(self) -> int:
        """Begin an iteration's results; returns their timestamp, in milliseconds."""
        self._turn()
        return self._timestamp

    def _begin_turn(self) -> None:
        """Schedule :meth:`send_now` at the first result in an iteration of the event loop.

        The clocks are read once for all results of the iteration.
        """
        if self._closed is not None:
            raise self._closed
        self._pump_scheduled = True
        self._now = self._loop.time()
        self._timestamp = int(self._wall_clock() * 1000)
        self._turn_ends_at = self._core.queued_bytes + _TURN_BYTES
        self._loop.call_soon(self.send_now)

    def _queue_groups(self) -> None:
        """Queue the results of groups, before any other result."""
        if groups := self._groups:
            self._groups = {}
            for group in groups:
                self._core.append_group(self._now, group, self._timestamp)

    def send_now(self) -> None:
        """Send the requests that are due. A defect here ends the producer, so no call hangs."""
        self._pump_scheduled = False
        if self._closed is None:
            try:
                self._queue_groups()
                self._send()
                if self._waits_for_turn:
                    self._waits_for_turn = False
                    self._waiting_results.retry(partial(self._core.why_not, in_time=True))
            except Exception as error:  # noqa: BLE001 - all waiting calls raise it
                self._end(error)

    def _send(self) -> None:
        core, now = self._core, self._loop.time()
        queued = core.queued
        core.expire(now)
        requests = core.requests(now)
        if core.queued < queued:
            self._changed()
        for outgoing in requests:
            received = partial(core.response_received, outgoing=outgoing)
            self._exchange(outgoing.node, outgoing.message, received)
        if (transactions := self._transactions) is not None:
            for asked in transactions.core.requests(now):
                received = partial(transactions.core.response_received, outgoing=asked)
                channel = Channel.PRODUCE if asked.batches else Channel.TRANSACTION
                self._exchange(asked.node, asked.message, received, channel)
        for batch in core.to_compress():
            if self._compressor is None:
                self._compressor = ThreadPoolExecutor(1, "asyncrevoke compress")
            compressed = self._loop.run_in_executor(self._compressor, batch.compress)
            self._compressions.add(compressed)
            compressed.add_done_callback(self._compressed)
        due = core.next_at(now)
        if transactions is not None:
            due = min(due, transactions.core.next_at(now))
        if (timer := self._timer) is not None:
            if now < timer.when() <= due:
                return
            timer.cancel()
        self._timer = None if due == float("inf") else self._loop.call_at(due, self.send_now)

    def _exchange(
        self,
        node: Node,
        message: Request,
        received: Callable[..., None],
        channel: Channel = Channel.PRODUCE,
    ) -> None:
        send = Send(next(self._ids), message, node, channel, self._config.request_timeout)
        replied = partial(self._replied, received)
        # Without a task over an open connection: a task begins in the next iteration.
        if not self._requests.begin(send, replied):
            task = self._loop.create_task(self._request(send, replied), name="asyncrevoke produce")
            self._exchanges.add(task)
            task.add_done_callback(self._exchange_ended)

    async def _request(self, send: Send, replied: Callable[[Replied | Failed], None]) -> None:
        replied(await self._requests.request(send))

    def _replied(self, received: Callable[..., None], reply: Replied | Failed) -> None:
        if self._closed is None:
            try:
                received(self._loop.time(), reply=reply)
                self._changed()
                self.send_now()
            except Exception as error:  # noqa: BLE001 - all waiting calls raise it
                self._end(error)

    def _compressed(self, compressed: asyncio.Future[None]) -> None:
        self._compressions.discard(compressed)
        if compressed.cancelled() or self._closed is not None:
            return
        if (error := compressed.exception()) is not None:
            self._end(error)
        else:
            self.send_now()

    def _exchange_ended(self, task: asyncio.Task[None]) -> None:
        self._exchanges.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A defect of the producer: no call may wait for ever.
            self._end(error)

    def _end(self, why: BaseException) -> None:
        if self._closed is not None:
            return
        error = self._closed = why if isinstance(why, Exception) else RuntimeError(repr(why))
        # The next result raises ``error``.
        self._pump_scheduled = False
        if self._timer is not None:
            self._timer.cancel()
        if self._compressor is not None:
            self._compressor.shutdown(wait=False, cancel_futures=True)
        self._core.fail_all(error)
        if self._transactions is not None:
            self._transactions.core.fail_all(error)
        for group in list(self._groups):
            group.fail(error)
        self._groups = {}
        self._changed()

    async def queue_in_turn(
        self, topic: str, try_queue: Callable[[], bool], longest_wait: float | None = None
    ) -> None:
        """Call ``try_queue`` until it returns True, after earlier calls for this topic.

        Waits as :meth:`queue` does, and raises PublishError.
        """
        self._queue_groups()
        waits = self._waiting_results
        if topic in waits.by_topic or not try_queue():
            core, timeout = self._core, self._config.request_timeout
            unknown = timeout if longest_wait is None else min(timeout, longest_wait)

            def longest() -> float:
                return timeout * _DELIVERY_ATTEMPTS if core.is_known(topic) else unknown

            waiting = waits.add(topic, try_queue)
            await waits.wait(topic, waiting, longest, partial(core.why_not, in_time=False))

    def _changed(self) -> None:
        self._waiting_results.retry(partial(self._core.why_not, in_time=True))
        for change in self._changes:
            if not change.done():
                change.set_result(None)
