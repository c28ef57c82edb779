"""Chooses the handler of each record of a topic that several handlers share: by a predicate, such
as a header, or by the tag of its value, which is read without decoding the rest of the value."""

from __future__ import annotations

import inspect
import types
import typing
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeGuard, cast

import msgspec

from asyncrevoke.client.config.annotations import members
from asyncrevoke.client.config.record_function import function_name
from asyncrevoke.client.errors import ConfigError, DecodeError, UnmatchedRecordError
from asyncrevoke.client.printable import is_caught_by, shown_option
from asyncrevoke.handlers.decoding.decode_failure import decode_error
from asyncrevoke.handlers.policy.registration import Handler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.client.model import Record
    from asyncrevoke.handlers.policy.middleware import Middleware


class TagField(NamedTuple):
    """The place of a tag: a field of a JSON object, or the first element of an array."""

    name: str
    array: bool = False


class ValueTags(NamedTuple):
    """The tags of the values that a handler takes, by the field that has them.

    ``tombstones``: the handler takes null values, too.
    """

    by_field: dict[TagField, frozenset[object]]
    tombstones: bool


def value_tags(annotation: object) -> ValueTags | None:
    """The tags of an annotation; None if it has none.

    A ``msgspec.Struct`` with ``tag`` has them, a pydantic model with ``Literal`` fields, and a
    union of these.
    """
    of = members(annotation)
    tombstones = types.NoneType in of
    by_field: dict[TagField, set[object]] | None = None
    for member in of:
        if member is types.NoneType:
            continue
        own = _tags_of_class(member)
        if by_field is None:
            by_field = {field: set(values) for field, values in own.items()}
        else:
            by_field = {
                field: values | own[field] for field, values in by_field.items() if field in own
            }
    if not by_field:
        return None
    return ValueTags({field: frozenset(tags) for field, tags in by_field.items()}, tombstones)


def common_field(tags: Sequence[ValueTags]) -> TagField | None:
    """The first field in which no two of these have the same tag; None if there is none."""
    for field in tags[0].by_field:
        of_all = [tag.by_field.get(field) for tag in tags]
        named = [values for values in of_all if values is not None]
        if len(named) == len(tags) and len({tag for values in named for tag in values}) == sum(
            map(len, named)
        ):
            return field
    return None


class TagReader:
    """Reads the tag of a record's value."""

    def __init__(self, field: TagField) -> None:
        self._field = field
        kind = msgspec.defstruct(
            "_Tag",
            [("tag", Any, msgspec.UNSET)],
            rename={"tag": field.name},
            array_like=field.array,
        )
        decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)
        self._decode = cast("Callable[[bytes], Any]", decoder.decode)

    def read(self, record: Record) -> object:
        """The tag; ``msgspec.UNSET`` if the value has none. Raises DecodeError."""
        value = record.value
        assert value is not None
        try:
            tag: object = self._decode(value).tag
            hash(tag)
        except TypeError:
            return msgspec.UNSET  # a list or an object
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            failure = decode_error(record, f'the tag "{self._field.name}" cannot be read', error)
        else:
            return tag
        raise failure


def _is_struct(annotation: object) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)


def _tags_of_class(annotation: object) -> dict[TagField, frozenset[object]]:
    if _is_struct(annotation):
        config = annotation.__struct_config__
        if config.tag is None or config.tag_field is None:
            return {}
        return {TagField(config.tag_field, config.array_like): frozenset([config.tag])}
    found: dict[TagField, frozenset[object]] = {}
    fields: object = cast("object", getattr(annotation, "__pydantic_fields__", None))
    if fields is None and hasattr(annotation, "__pydantic_validator__"):
        # Models of pydantic before 2.10.
        fields = cast("object", getattr(annotation, "model_fields", None))
    if isinstance(fields, dict):
        for name, field in cast("dict[str, Any]", fields).items():
            if typing.get_origin(field.annotation) is Literal:
                alias = field.validation_alias or field.alias
                key = alias if isinstance(alias, str) else name
                values = (
                    cast("object", get_arg.value) if isinstance(get_arg, Enum) else get_arg
                    for get_arg in typing.get_args(field.annotation)
                )
                found[TagField(key)] = frozenset(values)
    return found


class HeaderMatch:
    """A predicate on a record's header, see :func:`by_header`."""

    __slots__ = ("_values", "name", "written")

    def __init__(self, name: str, values: tuple[str | bytes, ...]) -> None:
        self.name = name
        self.written = values
        self._values = frozenset(
            value.encode() if isinstance(value, str) else value for value in values
        )

    def __call__(self, record: Record) -> bool:
        """Whether the last header of this name has one of the values."""
        name = self.name
        for header, value in reversed(record.headers):
            if header == name:
                return not self._values or value in self._values
        return False

    def __repr__(self) -> str:
        """The call of :func:`by_header`."""
        return f"by_header({', '.join(map(repr, (self.name, *self.written)))})"


def by_header(name: str, *values: str | bytes) -> HeaderMatch:
    """Match records by a header, as in ``where=by_header("type", "paid")``.

    The header matches with one of ``values``, or with any value if none is given. Text is compared
    in UTF-8. If a record has several headers of this name, the last one counts, as in Kafka's
    ``Headers.lastHeader``.

    Raises ConfigError.
    """
    if not isinstance(cast("object", name), str) or not name:
        raise ConfigError(
            f'by_header({shown_option(name)}): use the header\'s name, as in by_header("type")'
        )
    for value in values:
        if not isinstance(cast("object", value), (str, bytes)):
            raise ConfigError(
                f"by_header({shown_option(name)}, {shown_option(value)}): values of headers are "
                "bytes, so give str (compared in UTF-8) or bytes, each as a separate argument"
            )
    return HeaderMatch(name, values)


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


class HandlerLookup(Protocol):
    """All handlers of a consumer, and the handler of each topic. Implemented by :class:`Router`."""

    @property
    def handlers(self) -> tuple[Handler, ...]:
        """All handlers, in the order of registration."""
        ...

    def get(self, topic: str, /) -> Handler | None:
        """The handler of a topic, or the first of several; None if there is none."""
        ...

    def handlers_of(self, topic: str, /) -> Sequence[Handler]:
        """The handlers of a topic, in the order of registration."""
        ...

    def find(self, topic: str, /) -> Handler:
        """The handler of a topic, or the first of several; ConfigError if there is none."""
        ...

    def matcher_of(self, topic: str, /) -> SharedTopic | None:
        """The matcher of a topic's records; None if one handler gets all of them."""
        ...

    def middleware_of(self, handler: Handler, /) -> tuple[Middleware, ...]:
        """The middleware around a handler, the outermost first."""
        ...
