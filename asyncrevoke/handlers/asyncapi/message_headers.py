"""Schemas of the headers of records: those that choose a handler, and those of failed records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asyncrevoke.handlers.dead_letters import dead_letter, retry_message
from asyncrevoke.handlers.matching import HeaderMatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.handlers.asyncapi.objects import Schema
    from asyncrevoke.handlers.policy.registration import Handler

_TEXTS: Final = {
    dead_letter.ORIGIN_TOPIC: "The topic of the record.",
    dead_letter.ERROR_TYPE: "The type of the exception.",
    dead_letter.ERROR_MESSAGE: "The text of the exception.",
}
_NUMBERS: Final = {
    dead_letter.ORIGIN_PARTITION: "The partition of the record.",
    dead_letter.ORIGIN_OFFSET: "The offset of the record.",
    dead_letter.ORIGIN_TIMESTAMP: "The record's timestamp, in milliseconds since the epoch.",
    dead_letter.ATTEMPTS: "The calls of the handler; 0 if the value does not decode.",
}
_NUMBERS_OF_RETRIES: Final = {
    retry_message.DELAYED_ATTEMPT: "How often the record was written to a retry topic.",
    retry_message.DUE: "When the handler is called, in milliseconds since the epoch.",
}


def dispatch_headers(handler: Handler) -> Schema | None:
    """The header by which records of a topic are chosen for a handler; None if there is none."""
    where = handler.where
    if not isinstance(where, HeaderMatch):
        return None
    schema: Schema = {"type": "string"}
    written = [value for value in where.written if isinstance(value, str)]
    if len(written) == len(where.written) > 0:
        schema["enum"] = written
    return _with_all({where.name: schema})


def dead_letter_headers() -> Schema:
    """The headers of a dead letter, after those of the record."""
    return _with_all({**_texts(_TEXTS), **_numbers(_NUMBERS)})


def retry_headers() -> Schema:
    """The headers of a record in a retry topic, after those of the record."""
    return _with_all({**_texts(_TEXTS), **_numbers({**_NUMBERS, **_NUMBERS_OF_RETRIES})})


def _texts(descriptions: Mapping[str, str]) -> dict[str, Schema]:
    return {name: {"type": "string", "description": what} for name, what in descriptions.items()}


def _numbers(descriptions: Mapping[str, str]) -> dict[str, Schema]:
    number: Schema = {"type": "string", "pattern": "^-?[0-9]+$"}
    return {name: {**number, "description": what} for name, what in descriptions.items()}


def _with_all(properties: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "required": list(properties), "properties": dict(properties)}
