"""The objects of an AsyncAPI 3.0 document, as far as a consumer has them."""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict

# A JSON Schema (draft 7, which AsyncAPI extends), and the bindings of a protocol by their names.
Schema: TypeAlias = dict[str, object]
Bindings: TypeAlias = dict[str, dict[str, object]]

Reference = TypedDict("Reference", {"$ref": str})


class Tag(TypedDict):
    """A tag."""

    name: str


class Info(TypedDict, total=False):
    """What the document is about."""

    title: str
    version: str
    description: str
    tags: list[Tag]


class Server(TypedDict, total=False):
    """A bootstrap server."""

    host: str
    protocol: Literal["kafka", "kafka-secure"]
    security: list[Reference]


class Message(TypedDict, total=False):
    """The records of one kind in a topic."""

    name: str
    title: str
    description: str
    contentType: str
    headers: Schema
    payload: Schema
    bindings: Bindings


class Channel(TypedDict, total=False):
    """A topic; the ``address`` of several topics that a pattern matches is None."""

    address: str | None
    description: str
    messages: dict[str, Message]
    tags: list[Tag]
    bindings: Bindings


class Operation(TypedDict, total=False):
    """What a handler receives from a channel, or sends to one."""

    action: Literal["receive", "send"]
    channel: Reference
    title: str
    summary: str
    description: str
    tags: list[Tag]
    messages: list[Reference]
    bindings: Bindings


class Components(TypedDict, total=False):
    """What other objects refer to."""

    schemas: dict[str, Schema]
    securitySchemes: dict[str, dict[str, str]]


class About(TypedDict, total=False):
    """The keyword arguments of ``Consumer.asyncapi``."""

    title: str
    """The title of the document; by default the ``group_id``."""
    version: str
    """The version of your application; by default ``"1.0.0"``."""
    description: str
    """What your application does; CommonMark."""


class AsyncApi(TypedDict):
    """An AsyncAPI document. Its values are those of JSON."""

    asyncapi: str
    info: Info
    defaultContentType: str
    servers: dict[str, Server]
    channels: dict[str, Channel]
    operations: dict[str, Operation]
    components: Components
