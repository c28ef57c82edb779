"""The AsyncAPI document of a consumer: its topics, and what its handlers receive and send."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final, Literal

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.handlers.asyncapi.descriptions import documentation, handling, key_description
from asyncrevoke.handlers.asyncapi.json_schemas import JsonSchemas, identifier
from asyncrevoke.handlers.asyncapi.message_headers import (
    dead_letter_headers,
    dispatch_headers,
    retry_headers,
)
from asyncrevoke.handlers.asyncapi.objects import Tag
from asyncrevoke.handlers.asyncapi.payloads import BINARY, JSON, Payload, published, received
from asyncrevoke.handlers.asyncapi.servers import security_schemes, servers_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.handlers.asyncapi.objects import (
        About,
        AsyncApi,
        Bindings,
        Channel,
        Components,
        Info,
        Message,
        Operation,
        Reference,
        Schema,
    )
    from asyncrevoke.handlers.policy.registration import Handler
    from asyncrevoke.handlers.registry import Router

# Every tool for AsyncAPI 3 reads it; 3.1 has nothing that a consumer needs.
_VERSION: Final = "3.0.0"
_BINDING: Final = "0.5.0"
_DEAD_LETTER: Final = "DeadLetter"
_OF_FAILED: Final = "The key of the failed record."
_OF_RECORD: Final = "The key of the record that the handler received"


class Description:
    """Describes handlers, and has what the document says of all of them."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._config = config
        self._schemas = JsonSchemas()
        self._channels: dict[str, Channel] = {}
        self._patterns: dict[str, str] = {}
        self._operations: dict[str, Operation] = {}
        # What handlers send to each dead letter topic.
        self._dead_letters: dict[str, list[Payload]] = {}

    def add(self, handler: Handler) -> None:
        """Describe a handler: what it receives and sends."""
        name = _unused(identifier(handler.name), self._operations)
        payloads = received(handler, self._schemas)
        self._receive(name, handler, payloads)
        if handler.retry_topic is not None:
            self._retry(name, handler, handler.retry_topic.topic, payloads)
        if handler.dead_letter is not None:
            known = self._dead_letters.setdefault(handler.dead_letter, [])
            known += [payload for payload in payloads if payload not in known]
            channel = self._topic(handler.dead_letter, "dead letter topic")
            self._operate(f"{name}.dead_letters", "send", channel, handler, [_DEAD_LETTER])
        if handler.publish_to is not None:
            channel = self._topic(handler.publish_to)
            key = f"{_OF_RECORD}, unless the handler returns a Message with another."
            results = [
                self._message(channel, payload, None, key)
                for payload in published(handler, self._schemas)
            ]
            self._operate(f"{name}.results", "send", channel, handler, results)

    def document(self, info: Info) -> AsyncApi:
        """The document of all handlers that were added."""
        for topic, payloads in self._dead_letters.items():
            messages = self._channels[topic].setdefault("messages", {})
            messages[_DEAD_LETTER] = self._dead_letter(payloads)
        components: Components = {"schemas": self._schemas.components}
        if schemes := security_schemes(self._config):
            components["securitySchemes"] = schemes
        return {
            "asyncapi": _VERSION,
            "info": info,
            "defaultContentType": JSON,
            "servers": servers_of(self._config),
            "channels": self._channels,
            "operations": self._operations,
            "components": components,
        }

    def _receive(self, name: str, handler: Handler, payloads: Sequence[Payload]) -> None:
        channels = [self._topic(topic) for topic in handler.topics]
        if handler.pattern is not None:
            channels.append(self._topics_of(handler.pattern.pattern))
        key = key_description(handler, self._config)
        for channel in channels:
            messages = [
                self._message(channel, payload, dispatch_headers(handler), key)
                for payload in payloads
            ]
            operation_id = name if len(channels) == 1 else f"{name}.{channel}"
            operation = self._operate(operation_id, "receive", channel, handler, messages)
            summary, rest = documentation(handler)
            if summary:
                operation["summary"] = summary
            facts = " ".join(handling(handler, self._config))
            operation["description"] = f"{rest}\n\n{facts}" if rest else facts

    def _retry(self, name: str, handler: Handler, topic: str, payloads: Sequence[Payload]) -> None:
        channel = self._topic(topic, "retry topic")
        headers = self._schemas.named("RetryHeaders", retry_headers())
        messages = [self._message(channel, payload, headers, _OF_FAILED) for payload in payloads]
        self._operate(f"{name}.failures", "send", channel, handler, messages)
        self._operate(f"{name}.retries", "receive", channel, handler, messages)

    def _topic(self, topic: str, kind: str | None = None) -> str:
        """The channel of a topic; ``kind`` becomes a tag."""
        channel = self._channels.setdefault(
            topic, {"address": topic, "messages": {}, "bindings": _kafka(topic=topic)}
        )
        if kind is not None and (tag := Tag(name=kind)) not in channel.get("tags", []):
            channel.setdefault("tags", []).append(tag)
        return topic

    def _topics_of(self, pattern: str) -> str:
        """The channel of all topics that a pattern matches."""
        if pattern not in self._patterns:
            channel = _unused(f"pattern.{identifier(pattern)}", self._channels)
            self._patterns[pattern] = channel
            self._channels[channel] = {
                "address": None,
                "description": f"The topics whose whole name matches {pattern}",
                "messages": {},
            }
        return self._patterns[pattern]

    def _message(self, channel: str, payload: Payload, headers: Schema | None, key: str) -> str:
        """The id of a message in a channel, which is added unless the channel has it."""
        message: Message = {"name": payload.name, "title": payload.name, "payload": payload.schema}
        if payload.content_type is not None:
            message["contentType"] = payload.content_type
        if headers is not None:
            message["headers"] = headers
        messages = self._channels[channel].setdefault("messages", {})
        for message_id, known in messages.items():
            if {**known, "bindings": {}} == {**message, "bindings": {}}:
                return message_id
        message["bindings"] = _key(key)
        if payload.has_schema_id:
            binding = message["bindings"]["kafka"]
            binding |= {"schemaIdLocation": "payload", "schemaIdPayloadEncoding": "4"}
        message_id = _unused(payload.name, messages)
        messages[message_id] = message
        return message_id

    def _dead_letter(self, payloads: Sequence[Payload]) -> Message:
        """A failed record: its value is one of the handlers', or one that does not decode."""
        kinds = {payload.content_type for payload in payloads if payload.content_type is not None}
        undecodable: Schema = {"description": "A value that does not decode."}
        return {
            "name": _DEAD_LETTER,
            "title": _DEAD_LETTER,
            "contentType": kinds.pop() if len(kinds) == 1 else BINARY,
            "headers": self._schemas.named("DeadLetterHeaders", dead_letter_headers()),
            "payload": {"anyOf": [*(payload.schema for payload in payloads), undecodable]},
            "bindings": _key(_OF_FAILED),
        }

    def _operate(
        self,
        operation_id: str,
        action: Literal["receive", "send"],
        channel: str,
        handler: Handler,
        messages: Sequence[str],
    ) -> Operation:
        module = handler.name.rpartition(".")[0]
        operation: Operation = {
            "action": action,
            "channel": _reference("channels", channel),
            "title": handler.name,
            "tags": [{"name": module}],
            "messages": [_reference("channels", channel, "messages", of) for of in messages],
        }
        if action == "receive":
            operation["bindings"] = _kafka(
                groupId={"type": "string", "enum": [self._config.group_id]},
                clientId={"type": "string", "enum": [self._config.client_id]},
            )
        else:
            operation["bindings"] = _kafka(
                clientId={"type": "string", "enum": [self._config.client_id]}
            )
        self._operations[_unused(operation_id, self._operations)] = operation
        return operation


def describe(router: Router | None, config: ConsumerConfig, about: About) -> AsyncApi:
    """The document of a consumer with the handlers of a router.

    Raises ConfigError if there are none.
    """
    if router is None or not router.handlers:
        raise ConfigError(
            "an AsyncAPI document describes handlers, and this consumer has none: register one "
            'with @consumer.handler("orders")'
        )
    described = Description(config)
    for handler in router.handlers:
        described.add(handler)
    kind = "share group" if config.group_type == "share" else "consumer group"
    info: Info = {
        "title": about.get("title") or config.group_id or config.client_id,
        "version": about.get("version", "1.0.0"),
        "tags": [{"name": kind}],
    }
    if "description" in about:
        info["description"] = about["description"]
    return described.document(info)


def _kafka(**binding: object) -> Bindings:
    return {"kafka": {**binding, "bindingVersion": _BINDING}}


def _key(description: str) -> Bindings:
    return _kafka(key={"type": "string", "format": "binary", "description": description})


def _reference(*path: str) -> Reference:
    return {"$ref": "#/" + "/".join(path)}


def _unused(name: str, known: Mapping[str, object]) -> str:
    """The name, with a number if it is known already."""
    if name not in known:
        return name
    return next(
        numbered for number in itertools.count(2) if (numbered := f"{name}_{number}") not in known
    )
