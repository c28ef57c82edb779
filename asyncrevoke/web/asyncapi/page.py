"""Renders the page of an AsyncAPI document. It has no script and loads nothing."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec
from markupsafe import Markup

from asyncrevoke.handlers.asyncapi.objects import Channel, Message, Operation, Schema
from asyncrevoke.web.asyncapi.schema_table import limits_of, rows, type_of
from asyncrevoke.web.pages.templates import render

if TYPE_CHECKING:
    from asyncrevoke.handlers.asyncapi.objects import AsyncApi


class ShownMessage(NamedTuple):
    """A message with its place in the page."""

    anchor: str
    message: Message
    headers: Schema
    key: str


class ShownOperation(NamedTuple):
    """An operation with its messages."""

    operation: Operation
    messages: Sequence[ShownMessage]


class ShownChannel(NamedTuple):
    """A channel with all that is received from it and sent to it."""

    name: str
    title: str
    channel: Channel
    operations: Sequence[ShownOperation]
    messages: Sequence[ShownMessage]


def page(document: AsyncApi) -> str:
    """The page in HTML."""
    schemas = document["components"].get("schemas", {})
    return render(
        "web/asyncapi/page.html",
        document=document,
        channels=[
            _shown(name, channel, document) for name, channel in document["channels"].items()
        ],
        schemas=schemas,
        rows=rows,
        type_of=type_of,
        limits_of=limits_of,
        paragraphs=_paragraphs,
        # Letters, digits and +/= alone; long texts would be cut.
        download=Markup(  # noqa: S704
            base64.b64encode(msgspec.json.format(msgspec.json.encode(document))).decode()
        ),
    )


def _paragraphs(text: str) -> list[str]:
    return [paragraph for paragraph in text.split("\n\n") if paragraph.strip()]


def _shown(name: str, channel: Channel, document: AsyncApi) -> ShownChannel:
    messages: dict[str, ShownMessage] = {}
    for message_id, message in channel.get("messages", {}).items():
        place = f"#/channels/{name}/messages/{message_id}"
        kafka = message.get("bindings", {}).get("kafka", {})
        key = cast("dict[str, str]", kafka.get("key", {}))
        messages[place] = ShownMessage(
            f"message-{name}-{message_id}",
            message,
            message.get("headers", {}),
            key.get("description", ""),
        )
    operations = [
        ShownOperation(operation, [messages[of["$ref"]] for of in operation.get("messages", [])])
        for operation in document["operations"].values()
        if operation.get("channel") == {"$ref": f"#/channels/{name}"}
    ]
    title = channel.get("address") or channel.get("description") or name
    return ShownChannel(name, title, channel, operations, list(messages.values()))
