"""Writes dead letters and delayed retries to Kafka, by aiokafka's producer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, cast

from asyncrevoke.config.security import client_options
from asyncrevoke.runtime.net.kafka_clients import kafka_producer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.handlers.dead_letters.dead_letter import DeadLetter
    from asyncrevoke.handlers.policy.log import Log

# Kafka's own limit of a request; what a topic admits is the broker's to say.
_MOST_BYTES = 2_147_483_647
# Seconds that stopping a producer may take.
_STOP = 2.0


class _Batch(Protocol):
    def append(
        self,
        *,
        timestamp: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> object: ...


class _Client(Protocol):
    def close(self) -> Awaitable[None]: ...


class _Sender(Protocol):
    def close(self) -> Awaitable[None]: ...


class _Producer(Protocol):
    client: _Client
    _sender: _Sender

    def start(self) -> Awaitable[None]: ...
    def stop(self) -> Awaitable[None]: ...
    def partitions_for(self, topic: str) -> Awaitable[set[int]]: ...
    def create_batch(self) -> _Batch: ...
    def send_batch(
        self, batch: _Batch, topic: str, *, partition: int
    ) -> Awaitable[Awaitable[object]]: ...


class DeadLetterProducer:
    """Sends with ``acks=all`` and idempotence, over the consumer's connection options.

    It connects when the first dead letter is sent. Each goes as a batch of its own, so that one
    that the broker refuses (as too large, say) takes no other with it. After a failure the next
    one goes by another producer: an idempotent one cannot go on after a gap in its sequence.
    """

    def __init__(self, config: ConsumerConfig, log: Log) -> None:
        self._config = config
        self._log = log
        self._producer: _Producer | None = None
        self._starting = asyncio.Lock()
        self._stopping: set[asyncio.Task[None]] = set()

    async def send(self, topic: str, letter: DeadLetter) -> None:
        """Write a dead letter; TimeoutError if that takes longer than ``request_timeout``.

        Raises aiokafka's errors. If cancelled, it may be written all the same.
        """
        seconds = self._config.request_timeout
        try:
            async with asyncio.timeout(seconds):
                try:
                    await self._send(topic, letter)
                except _SequenceGapError:
                    # Another letter's failure has ended the producer that both used.
                    await self._send(topic, letter)
        except TimeoutError as error:
            raise TimeoutError(
                f"{topic} has not taken it within {seconds:g} s: does the topic exist, and has it "
                "enough replicas in sync?"
            ) from error

    async def aclose(self) -> None:
        """Disconnect; takes 2 seconds at most."""
        if self._producer is not None:
            self._retire(self._producer)
        if self._stopping:
            await asyncio.wait(self._stopping, timeout=2 * _STOP)

    async def _send(self, topic: str, letter: DeadLetter) -> None:
        from aiokafka import errors  # noqa: PLC0415 - if used
        from aiokafka.partitioner import DefaultPartitioner  # noqa: PLC0415

        producer = await self._started()
        timestamp = letter.timestamp if letter.timestamp >= 0 else None
        batch = producer.create_batch()
        batch.append(
            timestamp=timestamp, key=letter.key, value=letter.value, headers=letter.headers
        )
        try:
            known = sorted(await producer.partitions_for(topic))
            partition = cast("int", DefaultPartitioner()(letter.key, known, known))
            await (await producer.send_batch(batch, topic, partition=partition))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            shared = producer is not self._producer
            self._retire(producer)
            gap = (errors.OutOfOrderSequenceNumber, errors.ProducerClosed, errors.ProducerFenced)
            if shared or isinstance(error, gap):
                raise _SequenceGapError from error
            raise

    async def _started(self) -> _Producer:
        async with self._starting:
            if self._producer is None:
                producer = self._make()
                try:
                    await producer.start()
                except BaseException:
                    self._retire(producer)
                    raise
                self._producer = producer
            return self._producer

    def _make(self) -> _Producer:
        config = self._config
        return cast(
            "_Producer",
            kafka_producer(
                acks="all",
                enable_idempotence=True,
                max_request_size=_MOST_BYTES,
                metadata_max_age_ms=int(config.metadata_max_age * 1000),
                request_timeout_ms=max(1, int(config.request_timeout * 1000)),
                **client_options(config),
            ),
        )

    def _retire(self, producer: _Producer) -> None:
        if self._producer is producer:
            self._producer = None
        task = asyncio.get_running_loop().create_task(self._stop(producer))
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def _stop(self, producer: _Producer) -> None:
        try:
            async with asyncio.timeout(_STOP):
                await producer.stop()
        except TimeoutError:
            # It waits for a broker to take what is pending: end its parts one by one instead.
            await producer._sender.close()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
            await producer.client.close()
        except Exception as error:  # noqa: BLE001 - a connection that is broken already
            self._log.warning("the producer of dead letters did not end well", exc_info=error)


class _SequenceGapError(Exception):
    """The letter was not refused; the producer was ended meanwhile."""
