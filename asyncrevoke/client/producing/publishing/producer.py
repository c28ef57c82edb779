"""The producer that users have: a consumer's, or one with connections of its own."""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Final, Self, Unpack

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.config.consumer_options import ProducerOptions
from asyncrevoke.client.config.names import old_producer_name
from asyncrevoke.client.core.io.effects import Node
from asyncrevoke.client.errors import (
    ConfigError,
    ConsumerClosedError,
    IllegalStateError,
    PublishError,
)
from asyncrevoke.client.printable import shown_option, some_names
from asyncrevoke.client.producing.publishing.acknowledgement import Acknowledgement
from asyncrevoke.client.producing.publishing.producer_probe import probe
from asyncrevoke.client.producing.publishing.publisher import Publisher
from asyncrevoke.client.producing.record_producer import MEMORY, RecordProducer
from asyncrevoke.client.runtime.hooks.application_calls import is_called_by
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.client.runtime.hooks.observers import ObservedProducer, Observers, check_observer
from asyncrevoke.client.runtime.net.channels import Channels

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from asyncrevoke.client.model import ProducerHealth
    from asyncrevoke.client.producing.message import Headers, Published
    from asyncrevoke.client.producing.publishing.producer_probe import ProducerProbe
    from asyncrevoke.client.producing.transactions.producer_transaction import ProducerTransaction
    from asyncrevoke.client.runtime.hooks.observers import Observer
    from asyncrevoke.client.runtime.session.entered_session import EnteredSession

# Seconds: the broker's int32 of milliseconds.
_LONGEST_TIMEOUT: Final = (2**31 - 1) / 1000
_MOST_MEMORY: Final = 1 << 60


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
        memory: int = MEMORY,
        observers: Sequence[Observer] = (),
        look: Callable[[], ProducerHealth] | None = None,
    ) -> None:
        bootstrap = [Node(-1 - n, host, port) for n, (host, port) in enumerate(config.addresses)]
        self.log = EventLog()
        self._channels = Channels(config, self.log)
        self._observers: Observers | None = None
        if observers and look is not None:
            observed = ObservedProducer(look, config.client_id)
            self._observers = Observers(observers, self.log, observed)
        self._producer = RecordProducer(
            config,
            self._channels,
            bootstrap,
            time.time,
            self._observers,
            None if self._observers is None else self._observers.tracer,
            transactional_id=transactional_id,
            transaction_timeout=transaction_timeout,
            memory=memory,
        )
        self._producer.log_to(self.log, brokers=True)

    async def __aenter__(self) -> RecordProducer:
        if self._observers is not None:
            self._observers.on_open()
        return self._producer

    async def __aexit__(self, *_error: object) -> None:
        try:
            await self._producer.aclose()
        finally:
            await self._channels.close()
            if self._observers is not None:
                self._observers.on_close()


class Producer:
    """Writes records with ``acks=all``, and with idempotence (KIP-98) unless ``idempotent=False``.

    ``async with Producer(bootstrap_servers="localhost:9092") as producer`` has connections of its
    own, and connects at the first record; ``consumer.producer`` uses those of the consumer. At the
    end of the block it is closed, see :meth:`aclose`. At most ``buffer_memory`` bytes of records
    wait for their acknowledgement; further calls wait for memory.

    With a ``transactional_id``, :meth:`transaction` writes records that become visible together
    (KIP-98); one producer at a time may use the id: its first transaction fences those that used it
    before. ``transaction_timeout``: seconds after which the coordinator aborts a transaction that
    has not ended, at most ``transaction.max.timeout.ms`` of the brokers (15 minutes by default).
    The other options are those of the same name of ``Consumer``. Raises ConfigError.
    """

    def __init__(
        self,
        *,
        transactional_id: str | None = None,
        transaction_timeout: float = 60.0,
        buffer_memory: int = MEMORY,
        **options: Unpack[ProducerOptions],
    ) -> None:
        _check(transactional_id, transaction_timeout, buffer_memory, options)
        self._config = ConsumerConfig.from_options(**options)
        if transactional_id is not None and not self._config.idempotent:
            raise ConfigError("a transactional_id needs idempotent=True")
        self._transactional_id = transactional_id
        self._transaction_timeout = transaction_timeout
        self._buffer_memory = buffer_memory
        self._observers: list[Observer] = []
        self._connections: ProducerWithOwnConnections | None = None
        self._publisher: Publisher | None = None
        # The same, or None while calls raise.
        self._unchecked: Publisher | None = None
        self._closed = asyncio.Event()
        self._outside: type[IllegalStateError] = IllegalStateError
        self._why = "enter the producer first: async with Producer(...) as producer"

    def observe(self, observer: Observer) -> None:
        """Add an observer: metrics or tracing, as for ``Consumer.observe``.

        Call this before the producer is entered. Raises ConfigError for an object that is not an
        observer, and IllegalStateError.
        """
        if self._connections is not None or self._publisher is not None:
            raise IllegalStateError("observe() is called before the producer is entered")
        self._observers.append(check_observer(observer))

    def __repr__(self) -> str:
        """The addresses and the state."""
        ended = "not entered" if self._connections is None else "closed"
        servers = some_names(self._config.bootstrap_servers)
        state = ended if self._publisher is None else "entered"
        return f"<{type(self).__name__} at {servers}: {state}>"

    # --- entering and leaving --------------------------------------------------------------------

    async def start(self) -> None:
        """Enter the producer; does not connect. A producer can be entered once. Raises
        IllegalStateError."""
        if self._connections is not None or self._publisher is not None:
            raise IllegalStateError("a producer is entered once: make another one")
        own = ProducerWithOwnConnections(
            self._config,
            transactional_id=self._transactional_id,
            transaction_timeout=self._transaction_timeout,
            memory=self._buffer_memory,
            observers=self._observers,
            look=self.health,
        )
        self._connections = own
        self._publisher = self._unchecked = Publisher(await own.__aenter__(), own.log)

    async def aclose(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - the records fail then
    ) -> None:
        """Close: take no further records, wait until the others are acknowledged, disconnect.

        Waits for ``timeout`` seconds at most, by default ``close_timeout``. Records that are not
        acknowledged then fail with ConsumerClosedError. If no call has received the error of a
        record that failed before or now, raises PublishError, as :meth:`flush` does. If cancelled,
        it closes without waiting for acknowledgements. Later calls wait for the same end.
        """
        connections, publisher = self._connections, self._publisher
        if connections is None:
            return
        if publisher is None:
            await self._closed.wait()
            return
        self._outside, self._why = ConsumerClosedError, "the producer is closed"
        self._publisher = self._unchecked = None
        try:
            async with asyncio.timeout(self._config.close_timeout if timeout is None else timeout):
                await publisher.producer.flush()
        except TimeoutError:
            pass  # the records fail now
        finally:
            try:
                await connections.__aexit__()
            finally:
                self._closed.set()
        publisher.raise_failures()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Like :meth:`aclose`; with an exception, an error of closing is only logged."""
        try:
            await self.aclose()
        except PublishError:
            # Publisher has written it to the log.
            if error is None:
                raise

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncGenerator[None]:
        """The lifespan of an ASGI application: ``FastAPI(lifespan=producer.lifespan)``."""
        del app
        async with self:
            yield

    # --- records ---------------------------------------------------------------------------------

    async def publish(
        self,
        topic: str,
        value: object,
        *,
        key: bytes | str | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Published:
        """Write a record, and return its position when all in-sync replicas have it: outside of any
        transaction.

        Bytes and None are written unchanged, text as UTF-8, pydantic models and all else as JSON.
        Without ``partition`` the key decides, as in Java's producer. ``timestamp`` is in
        milliseconds since the epoch. A tracer adds the context of the span, unless ``headers`` have
        one. Raises PublishError. If cancelled, the record may still be written.
        """
        return await self._entered().publish(topic, value, key, headers, partition, timestamp)

    async def publish_soon(
        self,
        topic: str,
        value: object,
        *,
        key: bytes | str | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Acknowledgement:
        """Queue a record as :meth:`publish` does, and return its acknowledgement without waiting
        for it.

        Waits only while its topic is unknown, while ``buffer_memory`` is full, and now and then
        until what was queued before is sent. Records for one partition are written in the order of
        the calls. ``await`` the acknowledgement, or call :meth:`flush` after many records. If the
        record fails and no call waits for its acknowledgement, the error is logged, and
        :meth:`flush` or closing raises it. Raises PublishError if the record cannot be queued. If
        cancelled, the record may still be written.
        """
        publisher = self._unchecked or self._entered()
        begun = publisher.begin(topic, value, key, headers, partition, timestamp)
        return begun if type(begun) is Acknowledgement else await begun

    async def flush(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - says how many records are left
    ) -> None:
        """Wait until all records that are queued now are acknowledged or have failed.

        A record fails after three times ``request_timeout`` at the latest, which limits the wait.
        Raises TimeoutError after ``timeout`` seconds; the records stay queued. If no call has
        received the error of a record, raises PublishError with the first such error, and with how
        many there are; each is raised once. Cancelling does not affect the records.
        """
        await self._entered().flush(timeout)

    def transaction(self) -> ProducerTransaction:
        """A transaction, in which records are published by its own ``publish``.

        ``async with`` commits it at the end of the block, and raises PublishError for a record that
        is refused, TransactionError if it could not be committed, and ProducerFencedError if
        another producer uses the ``transactional_id``. In each case nothing of it is visible to
        readers with ``read_committed``, unless the error is ``in_doubt``. If cancelled, it is
        aborted, or committed if that has been requested. Raises ConfigError without a
        ``transactional_id``.
        """
        from asyncrevoke.client.producing.transactions.producer_transaction import (
            ProducerTransaction,
        )

        return ProducerTransaction(self._entered().producer.commits.commit)

    # --- state -----------------------------------------------------------------------------------

    def health(self) -> ProducerHealth:
        """The state of the producer. Raises IllegalStateError before it is entered, and
        ConsumerClosedError afterwards."""
        return self._entered().health()

    def probe(self) -> ProducerProbe:
        """Liveness and readiness, for an orchestrator; not ready before it is entered."""
        publisher = self._publisher
        health = None if publisher is None else publisher.health()
        return probe(self._config.client_id, health, self._config.request_timeout, self._why)

    def _entered(self) -> Publisher:
        if self._publisher is None:
            raise self._outside(self._why)
        return self._publisher


class ConsumerProducer(Producer):
    """The producer of a consumer, which writes by ``records`` while the consumer is open.

    ``inside``: an object whose handlers may not use it, as their results are written in
    transactions.
    """

    def __init__(
        self, session: EnteredSession, records: RecordProducer, inside: object = None
    ) -> None:
        self._config = session.config
        self.publisher = Publisher(records, session.application_log)
        self._connections, self._publisher = None, self.publisher
        # With ``inside``, each call is checked.
        self._unchecked = self.publisher if inside is None else None
        self._inside = inside

    async def aclose(self, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109
        """Raises IllegalStateError: the consumer closes it."""
        raise IllegalStateError("consumer.producer is closed with its consumer")

    def _entered(self) -> Publisher:
        if self._inside is not None and is_called_by(self._inside):
            raise IllegalStateError(
                'with processing="exactly_once" a handler publishes by what it returns or by '
                "context.publish(), which are in the transaction of its record: "
                "consumer.producer is for code outside of handlers, where it writes at least once"
            )
        return super()._entered()


def _check(
    transactional_id: object, timeout: object, buffer_memory: object, options: ProducerOptions
) -> None:
    """Raise ConfigError for an option that a producer does not have, or a wrong value."""
    known = ProducerOptions.__annotations__
    names = ("transactional_id", "transaction_timeout", "buffer_memory", *known)
    for name, value in options.items():
        if name not in known:
            raise ConfigError(
                old_producer_name(name, value, names)
                or f"Producer has no option {name}: it has {', '.join(names)}"
            )
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
    if (
        isinstance(buffer_memory, bool)
        or not isinstance(buffer_memory, int)
        or not 1 <= buffer_memory <= _MOST_MEMORY
    ):
        raise ConfigError(
            f"buffer_memory must be bytes, from 1 to {_MOST_MEMORY}, not "
            f"{shown_option(buffer_memory)}"
        )
