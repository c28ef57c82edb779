"""Values whose schemas are in a registry, with the deserializers and serializers of
``confluent_kafka.schema_registry``: pip install 'confluent-kafka[avro,json,protobuf]'."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar, cast

from confluent_kafka.serialization import MessageField, SerializationContext

from asyncrevoke.client import log_events
from asyncrevoke.client.config import checks
from asyncrevoke.client.errors import ConfigError, DecodeError
from asyncrevoke.client.model import Outage
from asyncrevoke.client.printable import named_error, printable, shown_option
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.handlers.decoding.decode_failure import decode_error
from asyncrevoke.handlers.decoding.decoders import http_status, is_temporary
from asyncrevoke.handlers.decoding.outages import AskedServer, AsksServer
from asyncrevoke.handlers.policy.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncrevoke.client.model import Record

T = TypeVar("T")

# Between two attempts. A success of another call ends a wait.
_WAITS: Final = Retry(attempts=None, backoff=0.5, max_backoff=5.0)
# Statuses by which a registry refuses the client, whatever it asks.
_REFUSED: Final = (401, 403, 407)
# An outage that nobody has noticed for so many seconds is over.
_FORGOTTEN: Final = 60.0
_MOST_TEXT: Final = 200
_MOST_KEYS: Final = 1000
# Messages are nested no deeper than a few levels.
_MOST_INDEX_BYTES: Final = 64
# The bytes before a payload: a zero byte, and the id of the schema.
FRAMING_SIZE: Final = 5


# What Confluent's types do not say: the constructors of async deserializers and serializers return
# awaitables, and so do their calls.
_Open: TypeAlias = Callable[[], object]
_Function: TypeAlias = Callable[[object, SerializationContext], object]


class _Down(NamedTuple):
    """A registry that does not respond: since when, the last error, by the clock of this loop.

    ``asked`` has the keys of calls that have failed. ``responds`` is set when it responds again.
    """

    loop: asyncio.AbstractEventLoop
    first: float
    last: float
    reason: str
    asked: set[object]
    responds: asyncio.Event


class SchemaRegistry(AskedServer):
    """Makes decoders and encoders of handlers that ask a schema registry without blocking the loop.

    If the registry does not respond within ``timeout`` seconds, cannot be reached, fails (HTTP 408,
    429, 5xx) or refuses the client (401, 403, 407), a call asks it again, after 0.5 s at first and
    5 s at most, for ``patience`` seconds. Meanwhile its record is in flight, and no commit passes
    it. After that the call fails with an error that ``retry`` and ``on_error`` of the handler
    decide about, as about a ``DecodeError`` that is ``temporary``. The time counts for the
    handler's ``max_handler_time``.

    ``name`` names the registry in the log, in ``Health.outages`` and in the reasons of
    ``Consumer.probe``; no secret belongs into it. Raises ConfigError.
    """

    def __init__(self, name: str, *, patience: float = 60.0, timeout: float = 10.0) -> None:
        checks.text("SchemaRegistry(name)", name)
        checks.seconds(zero=True)("SchemaRegistry(patience=...)", patience)
        checks.seconds()("SchemaRegistry(timeout=...)", timeout)
        self._name = printable(name, _MOST_TEXT)
        self._patience = patience
        self._timeout = timeout
        self._log = EventLog()
        self._down: _Down | None = None

    def decoder(self, deserializer: _Open) -> RegistryDecoder:
        """Make a ``decoder`` of handlers.

        ``deserializer`` opens it, once per event loop, before the first value, as in
        ``lambda: AsyncAvroDeserializer(client, schema)``. Raises ConfigError.
        """
        return RegistryDecoder(self, _Opened(deserializer, "decoder"))

    def encoder(self, serializer: _Open) -> RegistryEncoder:
        """Make an ``encoder`` of handlers, in the same way."""
        return RegistryEncoder(self, _Opened(serializer, "encoder"))

    def outage(self) -> Outage | None:
        """Since when the registry does not respond, and why; None if it does, as far as is known.

        Call it in the event loop of the consumer. An outage is forgotten 60 s after its last error.
        """
        down = self._down
        if down is None or down.loop is not asyncio.get_running_loop():
            return None
        now = down.loop.time()
        if now - down.last > _FORGOTTEN:
            return None
        return Outage(self._name, down.reason, now - down.first)

    async def ask(self, call: Callable[[], Awaitable[object]], key: object) -> object:
        """Make a call that may ask the registry, again and again for ``patience`` seconds.

        Calls that ask the same have the same ``key``. Raises the last error. If cancelled, the call
        is cancelled.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._patience
        attempts = 0
        while True:
            try:
                async with asyncio.timeout(self._timeout):
                    result = await call()
            except Exception as error:
                if not is_unavailable(error):
                    raise
                attempts += 1
                down = self._failed(error, loop)
                if len(down.asked) < _MOST_KEYS:
                    down.asked.add(key)
                left = ends - loop.time()
                if left <= 0:
                    raise
                wait = min(_WAITS.delay(attempts, random.random), left)
            else:
                # Of other calls that succeed, it is not known whether they have asked.
                if attempts or (self._down is not None and key in self._down.asked):
                    self._succeeded(loop)
                return result
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await down.responds.wait()

    def _failed(self, error: Exception, loop: asyncio.AbstractEventLoop) -> _Down:
        reason = printable(named_error(error, _MOST_TEXT))
        if self._down is not None and self.outage() is not None:
            down = self._down._replace(last=loop.time(), reason=reason)
        else:
            down = _Down(loop, loop.time(), loop.time(), reason, set(), asyncio.Event())
            log_events.REGISTRY_SILENT.write_to(
                self._log, registry=self._name, reason=reason, patience=self._patience
            )
        self._down = down
        return down

    def _succeeded(self, loop: asyncio.AbstractEventLoop) -> None:
        """What had failed has succeeded."""
        down, self._down = self._down, None
        if down is not None and down.loop is loop:
            down.responds.set()
            log_events.REGISTRY_RESPONDS.write_to(
                self._log, registry=self._name, seconds=round(loop.time() - down.first, 1)
            )


class _Opened:
    """What a function opens, once for each event loop: each test has its own."""

    def __init__(self, function: _Open, option: str) -> None:
        if not callable(cast("object", function)):
            raise ConfigError(
                f"{option}({shown_option(function)}) takes a function that opens it, as in "
                f"{option}(lambda: AsyncAvro...(client, schema))"
            )
        self._function = function
        self._found: tuple[asyncio.AbstractEventLoop, _Function] | None = None

    async def call(self, value: object, context: SerializationContext) -> object:
        """Call it, and open it before the first call."""
        loop = asyncio.get_running_loop()
        if self._found is None or self._found[0] is not loop:
            self._found = loop, await self._open()
        function = self._found[1]
        result = function(value, context)
        if not isinstance(result, Awaitable):
            name = type(function).__name__
            raise _NotOpenedError(
                f"{name} is sync, and would block the event loop: use Async{name}"
            )
        return await cast("Awaitable[object]", result)

    async def _open(self) -> _Function:
        try:
            opened = self._function()
            if isinstance(opened, Awaitable):
                opened = await cast("Awaitable[object]", opened)
        except Exception as error:
            if is_unavailable(error):
                raise
            raise _NotOpenedError(named_error(error, _MOST_TEXT)) from error
        return cast("_Function", opened)


class _NotOpenedError(Exception):
    """There is no async deserializer or serializer to call, which is not the fault of a value."""


class RegistryDecoder(AsksServer):
    """Decodes values; see :meth:`SchemaRegistry.decoder`."""

    def __init__(self, registry: SchemaRegistry, opened: _Opened) -> None:
        super().__init__(registry)
        self._ask = registry.ask
        self._opened = opened

    async def __call__(self, record: Record) -> object:
        """The value of a record. Raises DecodeError."""
        content = None if record.value is None else bytes(record.value)
        headers: list[tuple[str, str | bytes | None]] = list(record.headers)
        context = SerializationContext(record.topic, MessageField.VALUE, headers)

        # The schema of a value is known by its beginning.
        key = None if content is None else content[:FRAMING_SIZE]
        try:
            return await self._ask(partial(self._opened.call, content, context), key)
        except Exception as error:  # noqa: BLE001 - whatever a client raises
            temporary = is_unavailable(error) or isinstance(error, _NotOpenedError)
            failure = decode_error(record, "the value does not decode", error, temporary=temporary)
        raise failure


class RegistryEncoder(AsksServer):
    """Encodes values; see :meth:`SchemaRegistry.encoder`."""

    def __init__(self, registry: SchemaRegistry, opened: _Opened) -> None:
        super().__init__(registry)
        self._ask = registry.ask
        self._opened = opened

    async def __call__(self, topic: str, value: object) -> object:
        """The framed bytes of a value. Raises the serializer's error."""
        context = SerializationContext(topic, MessageField.VALUE)
        return await self._ask(partial(self._opened.call, value, context), topic)


def protobuf_decoder(message: type[T]) -> Callable[[Record], T | None]:
    """Make a sync ``decoder`` of Protobuf values with a schema id, which asks no registry.

    Fields are read by the definition of ``message``, a class that ``protoc`` has generated, as
    Protobuf does with values of other versions of it. A value of another message of its file does
    not decode. The decoder returns None for a tombstone. Raises ConfigError.
    """
    descriptor = getattr(message, "DESCRIPTOR", None)
    if descriptor is None:
        raise ConfigError(
            f"protobuf_decoder({shown_option(message)}) takes a class that protoc has generated"
        )
    own, parse = _indexes(descriptor), cast("Any", message).FromString

    def decode(record: Record) -> T | None:
        if record.value is None:
            return None
        content = bytes(record.value)
        found = _framing(content)
        if found is None or found.indexes != own:
            reason = (
                "the value has no schema id and message indexes"
                if found is None
                else f"the value is message {found.indexes} of its file, not {own}"
            )
            raise DecodeError(record.topic_partition, record.offset, reason)
        return cast("T", parse(content[found.size :]))

    return decode


class _Framing(NamedTuple):
    """What stands before the payload of a Protobuf value: ``size`` bytes, with the indexes of its
    message in its file, and of each message inside in the one around it."""

    size: int
    indexes: tuple[int, ...]


def _framing(content: bytes) -> _Framing | None:
    """The framing of a value; None if it has none."""
    if len(content) <= FRAMING_SIZE or content[0]:
        return None
    numbers = _zigzag_numbers(content[FRAMING_SIZE : FRAMING_SIZE + _MOST_INDEX_BYTES])
    count, size = next(numbers, (-1, 0))
    if count == 0:  # short for the first message
        return _Framing(FRAMING_SIZE + size, (0,))
    found = list(islice(numbers, max(count, 0)))
    if not found or len(found) < count:
        return None
    return _Framing(FRAMING_SIZE + found[-1][1], tuple(index for index, _ in found))


def _zigzag_numbers(content: bytes) -> Iterator[tuple[int, int]]:
    """The numbers of variable length in ``content``, each with its end."""
    number = shift = 0
    for at, byte in enumerate(content):
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            yield (number >> 1) ^ -(number & 1), at + 1
            number = shift = 0


def _indexes(descriptor: Any) -> tuple[int, ...]:  # noqa: ANN401 - protobuf is optional
    """The place of a message in its file."""
    outer = descriptor.containing_type
    if outer is None:
        return (list(descriptor.file.message_types_by_name).index(descriptor.name),)
    beside = [nested.name for nested in outer.nested_types]
    return (*_indexes(outer), beside.index(descriptor.name))


def is_unavailable(error: BaseException) -> bool:
    """Whether a registry does not respond, fails, or refuses the client, whatever it asks."""
    return is_temporary(error) or http_status(error) in _REFUSED
