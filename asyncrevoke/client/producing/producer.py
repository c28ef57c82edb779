"""The producer that users have: a consumer's, or one with connections of its own."""

from __future__ import annotations

import time
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Final, Self, Unpack

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.config.consumer_options import ProducerOptions
from asyncrevoke.client.core.io.effects import Node
from asyncrevoke.client.errors import ConfigError, ConsumerClosedError, IllegalStateError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.client.producing.record_producer import RecordProducer
from asyncrevoke.client.runtime.hooks.application_calls import is_called_by
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.client.runtime.net.channels import Channels

if TYPE_CHECKING:
    from asyncrevoke.client.producing.message import Headers
    from asyncrevoke.client.producing.transactions.producer_transaction import ProducerTransaction

# Seconds: the broker's int32 of milliseconds.
_LONGEST_TIMEOUT: Final = (2**31 - 1) / 1000


class ProducerWithOwnConnections(AbstractAsyncContextManager[RecordProducer]):
    """A producer with the connection options of ``config``; it connects at the first record.

    Records that are not acknowledged when the block is left fail. A class: contextlib's generators
    write into exceptions, and a user's class may forbid that.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        transactional_id: str | None = None,
        transaction_timeout: float = 60.0,
    ) -> None:
        bootstrap = [Node(-1 - n, host, port) for n, (host, port) in enumerate(config.addresses)]
        self._channels = Channels(config, EventLog())
        self._producer = RecordProducer(
            config,
            self._channels,
            bootstrap,
            time.time,
            transactional_id=transactional_id,
            transaction_timeout=transaction_timeout,
        )

    async def __aenter__(self) -> RecordProducer:
        return self._producer

    async def __aexit__(self, *_error: object) -> None:
        try:
            await self._producer.aclose()
        finally:
            await self._channels.close()


class Producer:
    """Writes records with ``acks=all``, and with idempotence (KIP-98) unless ``idempotent=False``.

    ``async with Producer(bootstrap_servers="localhost:9092") as producer`` has connections of its
    own, and connects at the first record; ``consumer.producer`` uses those of the consumer. With a
    ``transactional_id``, :meth:`transaction` writes records that become visible together (KIP-98);
    one producer at a time may use the id: its first transaction fences those that used it before.
    ``transaction_timeout``: seconds after which the coordinator aborts a transaction that has not
    ended, at most ``transaction.max.timeout.ms`` of the brokers (15 minutes by default). The other
    options are those of the same name of ``Consumer``. Raises ConfigError.
    """

    def __init__(
        self,
        *,
        transactional_id: str | None = None,
        transaction_timeout: float = 60.0,
        **options: Unpack[ProducerOptions],
    ) -> None:
        _check(transactional_id, transaction_timeout, options)
        self._config = ConsumerConfig.from_options(**options)
        if transactional_id is not None and not self._config.idempotent:
            raise ConfigError("a transactional_id needs idempotent=True")
        self._transactional_id = transactional_id
        self._transaction_timeout = transaction_timeout
        self._connections: ProducerWithOwnConnections | None = None
        self._records: RecordProducer | None = None
        self._outside: type[IllegalStateError] = IllegalStateError
        self._why = "enter the producer first: async with Producer(...) as producer"

    async def __aenter__(self) -> Self:
        if self._connections is not None or self._records is not None:
            raise IllegalStateError("a producer is entered once: make another one")
        own = ProducerWithOwnConnections(
            self._config,
            transactional_id=self._transactional_id,
            transaction_timeout=self._transaction_timeout,
        )
        self._records, self._connections = await own.__aenter__(), own
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._connections is not None
        self._records = None
        self._outside = ConsumerClosedError
        self._why = "the producer is closed"
        await self._connections.__aexit__(*error)

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
        """Write a record, and return when all in-sync replicas have it: outside of any transaction.

        Bytes and None are written unchanged, text as UTF-8, pydantic models and all else as JSON.
        Without ``partition`` the key decides, as in Java's producer. ``timestamp`` is in
        milliseconds since the epoch. A tracer adds the context of the span, unless ``headers`` have
        one. Raises PublishError. If cancelled, the record may still be written.
        """
        records = self._entered()
        await records.publish(
            topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp
        )

    def transaction(self) -> ProducerTransaction:
        """A transaction, in which records are published by its own ``publish``.

        ``async with`` commits it at the end of the block, and raises PublishError for a record that
        is refused, TransactionError if it could not be committed, and ProducerFencedError if
        another producer uses the ``transactional_id``. In each case nothing of it is visible to
        readers with ``read_committed``, unless the error is ``in_doubt``. If cancelled, it is
        aborted, or committed if that has been requested. Raises ConfigError without a
        ``transactional_id``.
        """
        return self._entered().transaction()

    def _entered(self) -> RecordProducer:
        if self._records is None:
            raise self._outside(self._why)
        return self._records


class ConsumerProducer(Producer):
    """The producer of a consumer, which writes by ``records`` while the consumer is open.

    ``inside``: an object whose handlers may not use it, as their results are written in
    transactions.
    """

    def __init__(self, records: RecordProducer, inside: object = None) -> None:
        self._connections, self._records = None, records
        self.records = records
        self._inside = inside

    def _entered(self) -> RecordProducer:
        if self._inside is not None and is_called_by(self._inside):
            raise IllegalStateError(
                'with processing="exactly_once" a handler publishes by what it returns or by '
                "context.publish(), which are in the transaction of its record: "
                "consumer.producer is for code outside of handlers, where it writes at least once"
            )
        return super()._entered()


def _check(transactional_id: object, timeout: object, options: ProducerOptions) -> None:
    """Raise ConfigError for an option that a producer does not have, or a wrong value."""
    known = ProducerOptions.__annotations__
    for name in options:
        if name not in known:
            names = ", ".join(known)
            raise ConfigError(f"Producer has no option {name}: it has transactional_id, {names}")
    if transactional_id is not None and not (
        isinstance(transactional_id, str) and transactional_id
    ):
        raise ConfigError(
            f"transactional_id must be text that is not empty, not {shown_option(transactional_id)}"
        )
    if (
        isinstance(timeout, bool)
        or not isinstance(timeout, int | float)
        or not 0.001 <= timeout <= _LONGEST_TIMEOUT
    ):
        raise ConfigError(
            f"transaction_timeout must be seconds, from 0.001 to {_LONGEST_TIMEOUT:g}, not "
            f"{shown_option(timeout)}"
        )
