"""Checks the options of ``handler(...)``. Each mistake raises ConfigError with the fix."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, cast, get_args

from asyncrevoke.client.config import ConsumerOptions, OrderBy, checks
from asyncrevoke.client.config.inherit import INHERIT, Inherit
from asyncrevoke.client.config.record_function import check_record_function
from asyncrevoke.client.config.topics import check_topic, check_topics
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.model import Record
from asyncrevoke.client.printable import shown_option
from asyncrevoke.handlers.decoding.decoders import HandlerDecoder, check_decoder
from asyncrevoke.handlers.policy.encoders import Encoder, check_encoder
from asyncrevoke.handlers.policy.limits import HandlerLimits, check_limits
from asyncrevoke.handlers.policy.registration import HandlerOptions, OnError, RunIn, Unmatched
from asyncrevoke.handlers.policy.retry import Pause, Retry
from asyncrevoke.handlers.policy.retry_topic import RetryTopic
from asyncrevoke.handlers.policy.signature import handler_name

if TYPE_CHECKING:
    from asyncrevoke.handlers.policy.registration import Handler

_TOPICS_FIRST = 'topics come first, without a name: handler("orders")'
_DEAD_LETTER = 'use dead_letter="orders.dlq"'
_ATTEMPTS = "use retry=Retry(attempts=3)"

# Names that other clients use, FastStream and faust among them -> what to write instead.
_OTHER_NAMES = {
    "topic": _TOPICS_FIRST,
    "topics": _TOPICS_FIRST,
    "max_workers": "use concurrency=..., or leave it out: the consumer's concurrency applies",
    "workers": "use concurrency=..., or leave it out: the consumer's concurrency applies",
    "dead_letter_topic": _DEAD_LETTER,
    "dlq": _DEAD_LETTER,
    "retries": _ATTEMPTS,
    "max_retries": _ATTEMPTS,
    "acks": "results are acknowledged by all in-sync replicas: leave it out",
    "ack_policy": "leave it out: a record is committed after its handler, see retry and on_error",
    "no_ack": "leave it out: a record is committed after its handler, see retry and on_error",
    "filter": "use where=...",
    "batch_timeout_ms": "use max_wait=..., in seconds",
    "middlewares": "register each of them by @consumer.middleware or @router.middleware",
    "dependencies": "give the handler parameters with Depends",
    "sink": "use publish_to=...",
}
_BACKREFERENCE = re.compile(r"\\[1-9]|\(\?\(")
_MAX_RECORDS = 500
_MAX_WAIT = 0.2
RELEASE_DELAY = 30.0


class CheckedOptions(NamedTuple):
    """The checked options of a handler. ``batch`` is ``max_records`` and ``max_wait``."""

    pattern: re.Pattern[str] | None
    retry: Retry | None
    retry_topic: RetryTopic | None
    dead_letter: str | None
    on_error: OnError | Pause | None
    batch: tuple[int, float] | None
    max_handler_time: float | None
    decoder: HandlerDecoder | None
    order_by: OrderBy | Inherit | None
    limits: HandlerLimits
    publish_to: str | None
    encoder: Encoder | None
    only_replays_keep_results: bool
    where: Callable[[Record], object] | None
    unmatched: Unmatched | None
    run_in: RunIn | None
    release_delay: float


def check_options(topics: tuple[str, ...], options: HandlerOptions) -> CheckedOptions:
    """Check the arguments of ``handler(...)``."""
    _check_names(options)
    _check_topics(topics, options.get("pattern"))
    pattern = _checked_pattern(options.get("pattern"))
    retry, retry_topic = options.get("retry"), options.get("retry_topic")
    dead_letter, on_error = options.get("dead_letter"), options.get("on_error")
    pauses = isinstance(on_error, Pause)
    check_failure_options(retry, dead_letter, "pause" if pauses else on_error)
    decoder, order_by = options.get("decoder"), options.get("order_by", INHERIT)
    batch = options.get("batch", False)
    if decoder is not None:
        check_decoder(decoder)
    _check_retry_topic(retry_topic, retry, topics, dead_letter)
    max_handler_time = checks.optional(checks.seconds())(
        "max_handler_time", options.get("max_handler_time")
    )
    batch_options = _checked_batch_options(
        batch, options.get("max_records"), options.get("max_wait")
    )
    limits = check_limits(
        options.get("concurrency"), options.get("rate_limit"), options.get("max_in_flight")
    )
    _check_order_by(order_by, batch=batch)
    check_encoder(options.get("encoder"), options.get("publish_to"))
    _check_dead_letter_is_not_handled(dead_letter, topics, pattern)
    return CheckedOptions(
        pattern=pattern,
        retry=retry,
        retry_topic=retry_topic,
        dead_letter=dead_letter,
        on_error=on_error,
        batch=batch_options,
        max_handler_time=cast("float | None", max_handler_time),
        decoder=decoder,
        order_by=order_by,
        limits=limits,
        publish_to=_checked_publish_to(options.get("publish_to"), topics, pattern),
        encoder=options.get("encoder"),
        only_replays_keep_results=options.get("publish_to", "") is None,
        where=_checked_where(options.get("where")),
        unmatched=_checked_unmatched(options.get("unmatched"), dead_letter),
        run_in=_checked_run_in(options.get("run_in")),
        release_delay=_checked_release_delay(options.get("release_delay"), on_error),
    )


def _check_names(options: HandlerOptions) -> None:
    known = list(HandlerOptions.__annotations__)
    for name in options:
        if name not in known:
            raise ConfigError(f"a handler has no option {shown_option(name)}: {_hint(name, known)}")


def _hint(name: str, known: list[str]) -> str:
    if name in ConsumerOptions.__annotations__:
        return f"it is an option of the consumer: Consumer({name}=...)"
    if (hint := _OTHER_NAMES.get(name)) is not None:
        return hint
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"


def _check_topics(topics: tuple[object, ...], pattern: object) -> None:
    for topic in topics:
        if callable(topic):
            raise ConfigError(
                f'@handler needs its topics: write @handler("orders") above {handler_name(topic)}'
            )
        if isinstance(topic, (list, tuple, set, frozenset)):
            raise ConfigError(
                'topics are separate arguments: handler("a", "b"), or handler(*names)'
            )
        if not isinstance(topic, str) or not topic:
            raise ConfigError(f"a topic is a name, not {shown_option(topic)}")
    check_topics(topics, "handler")
    if len(set(topics)) < len(topics):
        raise ConfigError(f"a topic is named twice: {', '.join(map(str, topics))}")
    if topics and pattern is not None:
        raise ConfigError("a handler has topics or a pattern, not both: register it twice")
    if not topics and pattern is None:
        raise ConfigError('a handler needs topics or a pattern: handler("orders")')


def _checked_pattern(pattern: str | re.Pattern[str] | None) -> re.Pattern[str] | None:
    given = cast("object", pattern)
    if given is None:
        return None
    if isinstance(given, str):
        try:
            given = re.compile(given)
        except re.error as error:
            raise ConfigError(
                f"pattern {shown_option(given)} is not a regular expression: {error}"
            ) from error
    if not isinstance(given, re.Pattern):
        raise ConfigError(f"a pattern is a regular expression, not {shown_option(given)}")
    compiled = cast("re.Pattern[str] | re.Pattern[bytes]", given)
    if isinstance(compiled.pattern, bytes):
        raise ConfigError("a pattern is a str, not bytes: topics are names")
    if compiled.groupindex or _BACKREFERENCE.search(compiled.pattern):
        raise ConfigError(
            "named groups and backreferences do not work in a handler's pattern, as patterns "
            "are joined for the subscription: use (?:...)"
        )
    if compiled.flags & ~re.UNICODE:
        raise ConfigError(
            "flags of a compiled pattern are not kept, as handlers' patterns are joined for "
            'the subscription: write them inline for a part of it, as in "(?i:orders)-.*"'
        )
    return re.compile(compiled.pattern)


def check_failure_options(retry: object, dead_letter: object, on_error: object) -> None:
    """Check ``retry``, ``dead_letter`` and ``on_error``."""
    if retry is not None and not isinstance(retry, Retry):
        raise ConfigError(
            f"retry={shown_option(retry)}: use retry=Retry(attempts=3), or leave it out"
        )
    if on_error is not None and on_error not in get_args(OnError):
        raise ConfigError(
            f'on_error={shown_option(on_error)} is unknown: use "stop", "skip" or "pause", in a '
            'share group "release", "reject" or "stop"'
        )
    if dead_letter is None:
        return
    check_topic(dead_letter, "dead_letter", 'dead_letter="orders.dlq"')
    if on_error is not None:
        raise ConfigError(
            "dead_letter says what happens to a record that has failed for good, and so does "
            "on_error: leave out one of them"
        )


def _check_dead_letter_is_not_handled(
    dead_letter: str | None, topics: tuple[str, ...], pattern: re.Pattern[str] | None
) -> None:
    if dead_letter is None:
        return
    if dead_letter in topics or (pattern is not None and pattern.fullmatch(dead_letter)):
        raise ConfigError(
            f'dead_letter="{dead_letter}" is handled by the same handler, so a record that always '
            "fails would be read again for ever: use another topic"
        )


def _checked_publish_to(
    publish_to: str | None, topics: tuple[str, ...], pattern: re.Pattern[str] | None
) -> str | None:
    if publish_to is None:
        return None
    check_topic(
        publish_to,
        "publish_to",
        "for results to other topics return or yield Message(value, topic=...)",
    )
    if publish_to in topics or (pattern is not None and pattern.fullmatch(publish_to)):
        raise ConfigError(
            f'publish_to="{publish_to}" is handled by the same handler, which would read its own '
            "results for ever: use another topic"
        )
    return publish_to


def _checked_where(
    where: Callable[[Record], object] | None,
) -> Callable[[Record], object] | None:
    if where is not None:
        instead = "match by what the record has, or decide in the handler"
        check_record_function("where", where, "value", instead)
    return where


def _checked_unmatched(unmatched: Unmatched | None, dead_letter: str | None) -> Unmatched | None:
    if unmatched is not None and unmatched not in get_args(Unmatched):
        raise ConfigError(
            f'unmatched={shown_option(unmatched)} is unknown: use "stop", "skip" or "dead_letter"'
        )
    if unmatched == "dead_letter" and dead_letter is None:
        raise ConfigError(
            'unmatched="dead_letter" sends records that no handler takes to the dead letter topic '
            'of this handler: give it dead_letter="..."'
        )
    return unmatched


def _checked_release_delay(given: object, on_error: object) -> float:
    if given is None:
        return RELEASE_DELAY
    if on_error not in (None, "release"):
        raise ConfigError('release_delay is for on_error="release": leave out one of them')
    return cast("float", checks.seconds(zero=True, most=checks.HOUR)("release_delay", given))


def _checked_run_in(run_in: RunIn | None) -> RunIn | None:
    if run_in is not None and run_in not in get_args(RunIn):
        raise ConfigError(
            f'run_in={shown_option(run_in)} is unknown: use "thread", "process" or "interpreter"'
        )
    return run_in


def _check_retry_topic(
    retry_topic: object, retry: Retry | None, topics: tuple[str, ...], dead_letter: str | None
) -> None:
    if retry_topic is None:
        return
    if not isinstance(retry_topic, RetryTopic):
        raise ConfigError(
            f'retry_topic={shown_option(retry_topic)}: use retry_topic=RetryTopic("orders.retry", '
            "delay=60)"
        )
    name = retry_topic.topic
    if name in topics:
        raise ConfigError(
            f'RetryTopic("{name}") is also one of the handler\'s topics, so a new record could not '
            "be distinguished from a delayed one: use another topic, and leave it out of topics"
        )
    if name == dead_letter:
        raise ConfigError(
            f'"{name}" is both retry_topic and dead_letter: dead letters would be read again, so '
            "use another topic for one of them"
        )
    if retry is not None and retry.attempts is None:
        raise ConfigError(
            "Retry(attempts=None) never ends, so no record would go to retry_topic: give it a "
            "number of attempts, or leave out retry_topic"
        )


def _check_order_by(order_by: object, *, batch: bool) -> None:
    if order_by is INHERIT:
        return
    checks.optional(checks.order)("order_by", order_by)
    if batch and callable(order_by):
        raise ConfigError(
            "a batch holds records of many keys, so no function can say its order: use "
            'order_by="partition" for one batch of a partition at a time, or None for several'
        )


def _checked_batch_options(
    batch: object, max_records: object, max_wait: object
) -> tuple[int, float] | None:
    if not checks.flag("batch", batch):
        for name, value in (("max_records", max_records), ("max_wait", max_wait)):
            if value is not None:
                raise ConfigError(f"{name} is for batches: use batch=True, or leave it out")
        return None
    most = checks.count()("max_records", _MAX_RECORDS if max_records is None else max_records)
    wait = checks.seconds(zero=True)("max_wait", _MAX_WAIT if max_wait is None else max_wait)
    return cast("int", most), cast("float", wait)


def check_consumer_limits(handler: Handler, concurrency: int, max_in_flight: int) -> None:
    """Check the handler's limits against those of its consumer."""
    limits = handler.limits
    for name, own, consumers in (
        ("concurrency", limits.concurrency, concurrency),
        ("max_in_flight", limits.max_in_flight, max_in_flight),
    ):
        if own is not None and own > consumers:
            raise ConfigError(
                f"{handler.name} has {name}={own}, and the consumer's {name}={consumers} limits "
                f"all handlers together: raise that, or lower the handler's"
            )
    most = limits.max_in_flight or max_in_flight
    if handler.batch is not None and handler.batch.max_records > most:
        raise ConfigError(
            f"{handler.name} has max_records={handler.batch.max_records}, but never more than "
            f"max_in_flight={most} records are taken: use max_in_flight="
            f"{handler.batch.max_records} or more, or lower max_records"
        )
