"""Writes dead letters and records of retry topics to Kafka, with aiokafka's producer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, cast

from asyncrevoke.config.security import client_options
from asyncrevoke.runtime.net.kafka_clients import kafka_producer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.handlers.dead_letters.dead_letter import DeadLetter
    from asyncrevoke.handlers.policy.log import HandlerLogger

# Kafka's own limit of a request; the broker enforces the limit of each topic.
_MAX_REQUEST_BYTES = 2_147_483_647
# Seconds that stopping a producer may take.
_STOP_TIMEOUT = 2.0


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
    """Sends with ``acks=all`` and idempotence, with the consumer's connection options.

    It connects when the first message is sent. Each message is a batch of its own, so that one that
    the broker rejects (as too large, say) fails alone. After a failure another producer is made: an
    idempotent producer cannot continue after a gap in its sequence numbers.
    """

    def __init__(self, config: ConsumerConfig, log: HandlerLogger) -> None:
        self._config = config
        self._log = log
        self._producer: _Producer | None = None
        self._starting = asyncio.Lock()
        self._stopping: set[asyncio.Task[None]] = set()

    async def send(self, topic: str, message: DeadLetter) -> None:
        """Write a message; TimeoutError if that takes longer than ``request_timeout``.

        Raises aiokafka's errors. If cancelled, it may be written all the same.
        """
        seconds = self._config.request_timeout
        try:
            async with asyncio.timeout(seconds):
                try:
                    await self._send(topic, message)
                except _SequenceGapError:
                    # The failure of another message has stopped the producer that both used.
                    await self._send(topic, message)
        except TimeoutError as error:
            raise TimeoutError(
                f"{topic} did not acknowledge it within {seconds:g} s: does the topic exist, and "
                "has it enough in-sync replicas?"
            ) from error

    async def aclose(self) -> None:
        """Disconnect; takes 2 seconds at most."""
        if self._producer is not None:
            self._retire(self._producer)
        if self._stopping:
            await asyncio.wait(self._stopping, timeout=2 * _STOP_TIMEOUT)

    async def _send(self, topic: str, message: DeadLetter) -> None:
        from aiokafka import errors
        from aiokafka.partitioner import DefaultPartitioner

        producer = await self._started()
        timestamp = message.timestamp if message.timestamp >= 0 else None
        batch = producer.create_batch()
        batch.append(
            timestamp=timestamp, key=message.key, value=message.value, headers=message.headers
        )
        try:
            known = sorted(await producer.partitions_for(topic))
            partition = cast("int", DefaultPartitioner()(message.key, known, known))
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
                max_request_size=_MAX_REQUEST_BYTES,
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
            async with asyncio.timeout(_STOP_TIMEOUT):
                await producer.stop()
        except TimeoutError:
            # stop() waits until a broker has taken what is pending: close its parts instead.
            await producer._sender.close()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
            await producer.client.close()
        except Exception as error:  # noqa: BLE001 - a connection that is broken already
            self._log.warning("dead letter producer did not close cleanly", exc_info=error)


class _SequenceGapError(Exception):
    """The broker has not rejected the message: the producer was stopped meanwhile."""
