"""The option ``encoder``: a user's function that makes bytes of a result's value."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias, cast

from asyncrevoke.client.config.record_function import function_name
from asyncrevoke.client.errors import ConfigError, PublishError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.client.producing.message import Message
from asyncrevoke.handlers.decoding.arrow_values import columns_kind
from asyncrevoke.handlers.decoding.decode_failure import described
from asyncrevoke.handlers.decoding.decoders import is_temporary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.model import Record
    from asyncrevoke.handlers.policy.context import HandlerContext
    from asyncrevoke.handlers.policy.signature import BatchHandlerCall, HandlerCall

# Returns the bytes of a value for a topic, or an awaitable of them.
Encoder: TypeAlias = Callable[[str, object], object]


def check_encoder(encoder: object, publish_to: str | None) -> None:
    """Raise ConfigError, with the fix, for what cannot encode results, or has none to encode."""
    if encoder is None:
        return
    if publish_to is None:
        raise ConfigError("encoder encodes results, and there are none: give publish_to=..., too")
    example = "use a function of the topic and the value, as in encoder=lambda topic, value: ..."
    if not callable(encoder):
        raise ConfigError(f"encoder={shown_option(encoder)} cannot be called: {example}")
    try:
        signature = inspect.signature(encoder)
    except (TypeError, ValueError):  # some that are written in C have none
        return
    try:
        signature.bind(publish_to, None)
    except TypeError as error:
        name = f"{function_name(encoder)}{signature}"
        raise ConfigError(f"encoder={name} takes something else: {example}") from error


def encoded_call(call: HandlerCall, encoder: Encoder, topic: str) -> HandlerCall:
    """A call whose results are encoded."""

    async def encoded(record: Record, context: HandlerContext | None = None, /) -> object:
        return await _encoded(await call(record, context), encoder, topic)

    return encoded


def encoded_batch_call(call: BatchHandlerCall, encoder: Encoder, topic: str) -> BatchHandlerCall:
    """A call of a batch handler whose results are encoded."""

    async def encoded(
        values: object, records: Sequence[Record], context: HandlerContext, /
    ) -> object:
        return await _encoded(await call(values, records, context), encoder, topic)

    return encoded


async def _encoded(result: object, encoder: Encoder, topic: str) -> object:
    if result is None:
        return None
    if isinstance(result, list):
        several = cast("list[object]", result)
        return [await _encoded(one, encoder, topic) for one in several if one is not None]
    if columns_kind(type(result)) is not None:
        raise PublishError(topic, "an encoder gets single values, and this result has columns")
    if not isinstance(result, Message):
        return await _encoded_value(result, encoder, topic)
    message = cast("Message[object]", result)
    value = message.value
    if value is not None:
        value = await _encoded_value(value, encoder, message.topic or topic)
    return Message(
        value,
        key=message.key,
        headers=message.headers,
        partition=message.partition,
        timestamp=message.timestamp,
        topic=message.topic,
    )


async def _encoded_value(value: object, encoder: Encoder, topic: str) -> bytes:
    """Raises PublishError, or the encoder's error if the same value may be encoded later."""
    name = function_name(encoder)
    try:
        encoded = encoder(topic, value)
        if isinstance(encoded, Awaitable):
            encoded = await cast("Awaitable[object]", encoded)
    except PublishError:
        raise
    except Exception as error:
        if is_temporary(error):
            raise
        raise PublishError(topic, f"the encoder {name} failed: {described(error)}") from error
    if not isinstance(encoded, bytes):
        kind = type(encoded).__name__
        raise PublishError(topic, f"the encoder {name} returned a {kind}: it has to return bytes")
    return encoded
