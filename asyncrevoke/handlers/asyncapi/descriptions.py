"""What a handler does with its records, in sentences."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, NamedTuple, cast

from asyncrevoke.client.config.inherit import Inherit
from asyncrevoke.client.config.record_function import function_name
from asyncrevoke.client.printable import counted
from asyncrevoke.handlers.matching import HeaderMatch
from asyncrevoke.handlers.policy.handler_function import innermost
from asyncrevoke.handlers.policy.retry import Pause

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.handlers.policy.registration import Handler


class Documentation(NamedTuple):
    """The first paragraph of a docstring, and the rest."""

    summary: str
    rest: str


def documentation(handler: Handler) -> Documentation:
    """The docstring of the registered function."""
    text = inspect.getdoc(innermost(handler.registered)) or ""
    summary, _, rest = text.partition("\n\n")
    return Documentation(" ".join(summary.split()), rest.strip())


def handling(handler: Handler, config: ConsumerConfig) -> list[str]:
    """Which records the handler takes, and what happens when it fails."""
    sentences: list[str] = []
    if handler.where is not None:
        where = handler.where
        shown = repr(where) if isinstance(where, HeaderMatch) else function_name(where)
        sentences.append(f"Receives the records that match {shown}.")
    if handler.batch is not None:
        sentences.append(
            f"Receives batches of at most {counted(handler.batch.max_records, 'record')}."
        )
    if handler.retry is not None:
        most = handler.retry.attempts
        limit = "until it succeeds" if most is None else f"at most {counted(most, 'time')}"
        sentences.append(f"Is called {limit}.")
    if handler.retry_topic is not None:
        topic = handler.retry_topic
        times = "" if topic.attempts is None else f", at most {counted(topic.attempts, 'time')}"
        sentences.append(
            f"A failed record is sent to {topic.topic} and handled again after "
            f"{topic.delay:g} s{times}."
        )
    sentences.append(_end_of_failures(handler, config))
    return sentences


def key_description(handler: Handler, config: ConsumerConfig) -> str:
    """What keys mean for the order in which a handler gets records."""
    order = config.order_by if isinstance(handler.order_by, Inherit) else handler.order_by
    if handler.batch is not None and order is not None:
        order = "partition"
    if order == "key":
        return "Records of a key are handled one after another, in the order of their offsets."
    if order == "partition":
        return "Records of a partition are handled one after another, whatever their keys."
    if order is None:
        return "Records of a key may be handled at the same time, in any order."
    named = function_name(cast("object", order))
    return f"Records for which {named} returns the same are handled one after another."


def _end_of_failures(handler: Handler, config: ConsumerConfig) -> str:
    if handler.dead_letter is not None:
        return f"A record that fails for good is sent to {handler.dead_letter}."
    if isinstance(handler.on_error, Pause):
        return "If a record fails for good, its partition is paused until the record succeeds."
    default = "release" if config.group_type == "share" else "stop"
    return {
        "stop": "If a record fails for good, the consumer stops.",
        "skip": "A record that fails for good is skipped.",
        "pause": "If a record fails for good, its partition is paused.",
        "release": "A record that fails for good is released, and delivered again.",
        "reject": "A record that fails for good is rejected, and not delivered again.",
    }[handler.on_error or default]
