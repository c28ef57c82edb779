"""Chooses the handler of each record of a topic that several handlers share."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, NamedTuple, cast

from asyncrevoke.client.config.record_function import function_name
from asyncrevoke.client.errors import ConfigError, DecodeError, UnmatchedRecordError
from asyncrevoke.client.printable import is_caught_by
from asyncrevoke.handlers.decoding.decode_failure import decode_error
from asyncrevoke.handlers.matching.header_match import HeaderMatch
from asyncrevoke.handlers.matching.value_tags import TagReader, ValueTags, common_field, value_tags
from asyncrevoke.handlers.policy.registration import Handler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.client.model import Record


class SharedTopic:
    """The handlers of one topic; each record goes to exactly one of them.

    The first predicate that matches, in the order of registration, chooses its handler. Otherwise
    the handler for values with the record's tag gets it, otherwise the default handler, which has
    neither predicate nor tags.

    The policy of ``fallback`` decides about records that no handler takes, and about those that
    cannot be read. It is the default handler, or a handler that is never called and has the policy
    of ``unmatched``.
    """

    def __init__(
        self, handlers: Sequence[Handler], replace: Callable[[Handler], Handler] | None = None
    ) -> None:
        parts = _divided(handlers)
        self.handlers = tuple(handlers)
        self._predicates = [
            (_checked(handler), handler) for handler in handlers if handler.where is not None
        ]
        self._default = parts.default
        self._tagged = tuple(handler for handler, _ in parts.tagged)
        self._by_tag: dict[object, Handler] = {}
        self._for_tombstones: Handler | None = None
        self._reader: TagReader | None = None
        if parts.tagged:
            field = common_field([tags for _, tags in parts.tagged])
            assert field is not None
            self._reader = TagReader(field)
            for handler, tags in parts.tagged:
                self._by_tag |= dict.fromkeys(tags.by_field[field], handler)
                if tags.tombstones and self._for_tombstones is None:
                    self._for_tombstones = handler
        if parts.default is None:
            fallback = _unmatched_policy(handlers)
            self.fallback = fallback if replace is None else replace(fallback)
        else:
            self.fallback = parts.default

    def choose(self, record: Record) -> tuple[Handler, BaseException | None]:
        """The handler that gets a record, and None; or an error, and the handler whose policy
        decides about it."""
        for matches, handler in self._predicates:
            try:
                if matches(record):
                    return handler, None
            except BaseException as error:  # noqa: BLE001 - whatever the user's function raises
                return handler, _predicate_error(record, handler, error)
        if self._reader is not None:
            tagged, failure = self._of_tag(self._reader, record)
            if tagged is not None:
                return tagged, failure
        if self._default is not None:
            return self._default, None
        return self.fallback, UnmatchedRecordError(record.topic_partition, record.offset)

    def _of_tag(
        self, reader: TagReader, record: Record
    ) -> tuple[Handler | None, DecodeError | None]:
        if record.value is None:
            return self._for_tombstones, None
        try:
            return self._by_tag.get(reader.read(record)), None
        except DecodeError as error:
            # The default handler takes values of any kind.
            return (self._tagged[0], error) if self._default is None else (None, None)


def check_shared_topic(topic: str, handlers: Sequence[Handler]) -> None:
    """ConfigError, with the fix, if these cannot be the handlers of one topic."""
    first = handlers[0]
    for other in handlers[1:]:
        _check_common_options(topic, first, other)
    parts = _divided(handlers)
    tagged = [handler.name for handler, _ in parts.tagged]
    if parts.untagged:
        raise ConfigError(
            f'topic "{topic}" is handled by {parts.untagged[0].name} already, and '
            f"{parts.untagged[1].name} would handle it too: exactly one handler gets a record, so "
            "give all but one of them where=, or annotate their values with types that have tags"
        )
    if len(tagged) > 1 and common_field([tags for _, tags in parts.tagged]) is None:
        raise ConfigError(
            f'topic "{topic}" is handled by {" and ".join(tagged)}, and no tag tells their values '
            "apart: give their types one tag field with different tags, or the handlers where="
        )
    if len(tagged) == 1 and parts.default is None and len(parts.tagged[0][1].by_field) > 1:
        fields = ", ".join(field.name for field in parts.tagged[0][1].by_field)
        raise ConfigError(
            f'several fields could be the tag of values of {tagged[0]} in topic "{topic}" '
            f"({fields}): give the handler where="
        )
    _check_unmatched(topic, handlers, parts.default)


def is_shared(handlers: Sequence[Handler]) -> bool:
    """Whether the handler of a record depends on the record, and not on its topic alone."""
    return len(handlers) > 1 or any(
        handler.where is not None or handler.unmatched is not None for handler in handlers
    )


class _Parts(NamedTuple):
    """The handlers without ``where``: with their tags, and the default handler without tags.

    ``untagged`` are all handlers without tags if there are several, which is an error.
    """

    tagged: list[tuple[Handler, ValueTags]]
    default: Handler | None
    untagged: list[Handler]


def _divided(handlers: Sequence[Handler]) -> _Parts:
    without = [handler for handler in handlers if handler.where is None]
    if len(without) == 1 and all(handler.unmatched is None for handler in handlers):
        return _Parts([], without[0], [])
    tagged: list[tuple[Handler, ValueTags]] = []
    untagged: list[Handler] = []
    for handler in without:
        tags = None if handler.decoder is not None else value_tags(handler.value_type)
        if tags is None:
            untagged.append(handler)
        else:
            tagged.append((handler, tags))
    default = untagged[0] if untagged else None
    return _Parts(tagged, default, untagged if len(untagged) > 1 else [])


def _check_common_options(topic: str, first: Handler, other: Handler) -> None:
    both = f'{first.name} and {other.name} both handle topic "{topic}"'
    if first.order_by != other.order_by:
        raise ConfigError(
            f"{both}, and have a different order_by: both handle records of a key in one order, so "
            "give both the same"
        )
    if (first.batch is None) != (other.batch is None):
        raise ConfigError(
            f"{both}, and only one of them takes batches: order could not be kept between them, so "
            "use batch=True for both, or for none"
        )
    if first.batch is not None:
        raise ConfigError(
            f"{both}, and take batches, which hold consecutive records of a partition: use one "
            "batch handler, and divide its values there"
        )
    for handler in (first, other):
        if any(limit is not None for limit in handler.limits):
            raise ConfigError(
                f"{both}, and {handler.name} has concurrency, rate_limit or max_in_flight: its "
                "records would delay those of the other handler, so limit the consumer instead, or "
                "leave it out"
            )


def _check_unmatched(topic: str, handlers: Sequence[Handler], default: Handler | None) -> None:
    saying = [handler for handler in handlers if handler.unmatched is not None]
    if not saying:
        return
    if default is not None:
        raise ConfigError(
            f'{saying[0].name} has unmatched="{saying[0].unmatched}", and {default.name} gets each '
            f'record of topic "{topic}" that no other handler takes: leave out unmatched, or give '
            "that handler where="
        )
    first = saying[0]
    for other in saying[1:]:
        dead_letters = first.unmatched == other.unmatched == "dead_letter"
        if first.unmatched != other.unmatched or (
            dead_letters and first.dead_letter != other.dead_letter
        ):
            raise ConfigError(
                f"{first.name} and {other.name} say differently what happens to records of topic "
                f'"{topic}" that no handler takes: give unmatched= to one of them'
            )


def _unmatched_policy(handlers: Sequence[Handler]) -> Handler:
    saying = next((handler for handler in handlers if handler.unmatched is not None), handlers[0])
    return saying._replace(
        name="(none)",
        retry=None,
        retry_topic=None,
        dead_letter=saying.dead_letter if saying.unmatched == "dead_letter" else None,
        on_error="skip" if saying.unmatched == "skip" else "stop",
        publish_to=None,
        where=None,
    )


def _checked(handler: Handler) -> Callable[[Record], object]:
    where = handler.where
    assert where is not None
    if isinstance(where, HeaderMatch):
        return where

    def matches(record: Record) -> object:
        matched = where(record)
        if inspect.isawaitable(matched):
            if inspect.iscoroutine(matched):
                matched.close()
            raise TypeError("where= is sync, and returned an awaitable")
        return matched

    return matches


def _predicate_error(record: Record, handler: Handler, error: BaseException) -> BaseException:
    if is_caught_by(error, (SystemExit, KeyboardInterrupt)):
        return error
    name = function_name(cast("object", handler.where))
    return decode_error(record, f"where={name} of {handler.name} failed", error)
