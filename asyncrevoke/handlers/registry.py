"""Which function handles which topic: registered, checked, and compiled to one call."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, TypeVar, cast, get_args

from asyncrevoke.config import OrderBy, checks
from asyncrevoke.config.topics import check_topics
from asyncrevoke.errors import ConfigError
from asyncrevoke.handlers.policy.decoding import Decoder, check_decoder
from asyncrevoke.handlers.policy.handler_function import HandlerFunction
from asyncrevoke.handlers.policy.limits import Limits, check_limits
from asyncrevoke.handlers.policy.middleware import M, Middleware, check_middleware
from asyncrevoke.handlers.policy.retry import Retry
from asyncrevoke.handlers.policy.retry_topic import RetryTopic
from asyncrevoke.handlers.policy.signature import (
    BatchCall,
    Call,
    compile_batch_call,
    compile_call,
    handler_name,
    takes_records,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.handlers.policy.rate_limit import RateLimit

OnError: TypeAlias = Literal["stop", "skip", "pause"]
AsConfigured: TypeAlias = Literal["as configured"]
F = TypeVar("F", bound=HandlerFunction)

_BACKREFERENCE = re.compile(r"\\[1-9]|\(\?\(")
_OPTIONS = (
    "pattern",
    "retry",
    "retry_topic",
    "dead_letter",
    "on_error",
    "batch",
    "max_records",
    "max_wait",
    "max_handler_time",
    "decoder",
    "order_by",
    "concurrency",
    "rate_limit",
    "max_in_flight",
)
_MAX_RECORDS = 500
_MAX_WAIT = 0.2


class BatchHandling(NamedTuple):
    """How a handler takes batches: at most ``max_records``, the first of which has waited at most
    ``max_wait`` seconds. ``decode`` makes each value, ``call`` takes all of them."""

    max_records: int
    max_wait: float
    decode: Decoder
    call: BatchCall


class Handler(NamedTuple):
    """A registered function. ``call`` decodes a record's value and calls the function with it.

    Exactly one of ``topics`` (not empty) and ``pattern`` is given, and one of ``call`` and
    ``batch``. ``decoder`` is None if values are decoded by annotation.
    """

    name: str
    function: HandlerFunction
    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    retry: Retry | None
    retry_topic: RetryTopic | None
    dead_letter: str | None
    on_error: OnError
    call: Call | None
    wants_context: bool
    batch: BatchHandling | None
    max_handler_time: float | None
    decoder: Decoder | None
    order_by: OrderBy | AsConfigured | None
    limits: Limits
    # Of the routers that it was registered with, the outermost first.
    middleware: tuple[Middleware, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The topics whose records it handles by name, its retry topic included."""
        return self.topics if self.retry_topic is None else (*self.topics, self.retry_topic.topic)


class Router:
    """Collects handlers, in a module of their own if you like; a consumer includes it.

    ``decoder`` decodes the records of those handlers that have none of their own.
    """

    def __init__(self, *, decoder: Decoder | None = None) -> None:
        if decoder is not None:
            check_decoder(decoder)
        self._decoder = decoder
        self._handlers: list[Handler] = []
        self._by_topic: dict[str, Handler] = {}
        self._middleware: list[Middleware] = []

    @property
    def handlers(self) -> tuple[Handler, ...]:
        """All of them, in the order of registration."""
        return tuple(self._handlers)

    @property
    def topics(self) -> frozenset[str]:
        """The topics that are handled by name, retry topics included."""
        return frozenset(self._by_topic)

    @property
    def pattern(self) -> str | None:
        """One pattern for all that is handled, names included; None if no handler has a pattern.

        A subscription is either by topics or by one pattern. It is meant for a full match.
        """
        patterns = [handler.pattern.pattern for handler in self._handlers if handler.pattern]
        if not patterns:
            return None
        alternatives = [re.escape(topic) for topic in sorted(self._by_topic)] + patterns
        return "|".join(f"(?:{alternative})" for alternative in alternatives)

    def handler(
        self,
        *topics: str,
        pattern: str | re.Pattern[str] | None = None,
        retry: Retry | None = None,
        retry_topic: RetryTopic | None = None,
        dead_letter: str | None = None,
        on_error: OnError | None = None,
        batch: bool = False,
        max_records: int | None = None,
        max_wait: float | None = None,
        max_handler_time: float | None = None,
        decoder: Decoder | None = None,
        order_by: OrderBy | AsConfigured | None = "as configured",
        concurrency: int | None = None,
        rate_limit: RateLimit | None = None,
        max_in_flight: int | None = None,
        **options: object,
    ) -> Callable[[F], F]:
        r"""Register an async function for topics, or for every topic that fully matches a pattern.

        The first parameter is the value, decoded by its annotation (``bytes``, ``str``, ``dict``,
        dataclass, ``msgspec.Struct``, pydantic model; ``T | None`` for tombstones), or the whole
        ``Record``. Further parameters annotated ``Record`` and ``HandlerContext`` receive the
        record and what is known of the call.

        ``decoder`` makes the value instead, whatever the annotation: a sync function of the whole
        ``Record`` (so that topic and headers are there), also of one whose value is null. It runs
        in the event loop, so it must not block. Whatever it raises is a value that does not decode.

        ``retry`` calls the function again if it raises. After its last attempt the record goes to
        ``retry_topic``, which the consumer reads as well, and comes back when its delay has
        passed; its partition goes on meanwhile. A record that has failed for good, or
        does not decode, is written to the topic ``dead_letter``, and is done when the broker has
        acknowledged that; if it cannot be written, its partition pauses. Without such a topic it
        goes by ``on_error``. ``"stop"`` (the default): no partition
        takes new records, what runs drains, offsets are committed, the group is left, and the
        error is raised from ``run``. Hazard: the next owner meets the same record. ``"skip"``
        logs it and goes on. ``"pause"``: nothing more of its partition is handled, which stays
        ours while the others flow; ``health()`` names it, and ``resume`` goes on with the record.

        ``batch=True``: the first parameter is a list of values (``list[Order]``) of one partition,
        in offset order; ``list[Record]`` beside it receives the records. A batch is handled when
        it has ``max_records`` (500), or ``max_wait`` seconds (0.2) after its first record, one at
        a time per partition unless ``order_by=None``. ``BatchError({index: exception})`` says
        which values failed; any other exception fails all of them.

        ``max_handler_time`` (None: no limit) bounds each call, in seconds: a warning at half of it,
        at the end the call is cancelled, which is a failure (HandlerTimeoutError). One that has
        not ended 5 s later has its partition paused.

        ``order_by`` is another one than the consumer's (see its options). ``concurrency`` bounds
        how many calls of this handler run at once, and ``rate_limit`` how many begin within a time,
        beside the consumer's ``concurrency``; what waits for one of them takes none of the latter.
        ``max_in_flight`` bounds its records taken and not finished (one more for each partition at
        most), within the consumer's; with one of the other two it is by default its equal share of
        that, so that a backlog of one handler leaves room for the others.

        A topic named by a handler goes to it even if it matches a pattern; of several patterns
        the first one registered counts. The function itself is returned unchanged. It may be
        cancelled when its partition is lost or the consumer ends without draining.

        Raises ConfigError for what cannot work, when the function is decorated.
        """
        _check_options(topics, pattern, options)
        check_policy(retry, dead_letter, on_error)
        if decoder is not None:
            check_decoder(decoder)
        _check_retry_topic(retry_topic, retry, topics, dead_letter)
        longest = cast(
            "float | None", checks.optional(checks.seconds())("max_handler_time", max_handler_time)
        )
        batch_options = _batch_options(batch, max_records, max_wait)
        limits = check_limits(concurrency, rate_limit, max_in_flight)
        _check_order(order_by, batch=batch)
        compiled = re.compile(pattern) if isinstance(pattern, str) else pattern
        if dead_letter is not None and (
            dead_letter in topics or (compiled is not None and compiled.fullmatch(dead_letter))
        ):
            raise ConfigError(
                f'dead_letter="{dead_letter}" is handled by the same handler, which would go round '
                "for ever: use another topic"
            )

        def register(function: F) -> F:
            name = handler_name(function)
            call, wants_context, batches = None, False, None
            decode = decoder or self._decoder
            if batch:
                batches = BatchHandling(*batch_options, *compile_batch_call(function, name, decode))
            else:
                call, wants_context = compile_call(function, name, decode)
            if decoder is not None and takes_records(function):
                raise ConfigError(
                    f"the first parameter of {name} is annotated Record, which receives the record "
                    "as it is: leave out decoder=, or annotate what the decoder returns"
                )
            self._add(
                Handler(
                    name=name,
                    function=function,
                    topics=topics,
                    pattern=compiled,
                    retry=retry,
                    retry_topic=retry_topic,
                    dead_letter=dead_letter,
                    on_error=on_error or "stop",
                    call=call,
                    wants_context=wants_context,
                    batch=batches,
                    max_handler_time=longest,
                    decoder=decode,
                    order_by=order_by,
                    limits=limits,
                )
            )
            return function

        return register

    def middleware(self, function: M) -> M:
        """Put an async function around each call of this router's handlers.

        ``await call_next()`` in it calls what comes next: the middleware registered after it, at
        last the handler. What is registered first is outermost. It runs once per call, retries
        included, and once for a batch, inside ``max_handler_time``. If it raises, the call has
        failed; if it does not call ``call_next``, the record counts as handled. What a value that
        does not decode raises (DecodeError) comes out of ``call_next()`` too, but for batches.

        Raises ConfigError for what is no such function.
        """
        check_middleware(function)
        self._middleware.append(function)
        return function

    def middleware_of(self, handler: Handler) -> tuple[Middleware, ...]:
        """All that goes around a handler of this router, the outermost first."""
        return (*self._middleware, *handler.middleware)

    def include_router(self, router: Router) -> None:
        """Take over the handlers of another router; a topic handled by both is a ConfigError.

        Those without a decoder, of their own or of that router, get the decoder of this one.
        What is there by now is taken over. Its middleware goes around its handlers alone, inside of
        our own.
        """
        for handler in router.handlers:
            self._refuse_twice(handler)
        for handler in router.handlers:
            with_decoder = _with_decoder(handler, self._decoder)
            self._add(with_decoder._replace(middleware=router.middleware_of(handler)))

    def adapted(self, change: Callable[[Handler], Handler]) -> Router:
        """The same handlers and middleware, each handler as ``change`` returns it."""
        router = Router(decoder=self._decoder)
        router._middleware = list(self._middleware)
        for handler in self._handlers:
            router._add(change(handler))
        return router

    def get(self, topic: str) -> Handler | None:
        """The handler of a topic, None if there is none."""
        handler = self._by_topic.get(topic)
        if handler is not None:
            return handler
        for candidate in self._handlers:
            if candidate.pattern is not None and candidate.pattern.fullmatch(topic):
                return candidate
        return None

    def find(self, topic: str) -> Handler:
        """The handler of a topic; ConfigError if there is none."""
        handler = self.get(topic)
        if handler is not None:
            return handler
        raise ConfigError(
            f'no handler for topic "{topic}": register one with @consumer.handler("{topic}"), '
            "or do not subscribe to it"
        )

    def _add(self, handler: Handler) -> None:
        self._refuse_twice(handler)
        self._handlers.append(handler)
        for topic in handler.names:
            self._by_topic[topic] = handler

    def _refuse_twice(self, handler: Handler) -> None:
        for topic in handler.names:
            if topic in self._by_topic:
                raise ConfigError(
                    f'topic "{topic}" is handled by {self._by_topic[topic].name} already, and '
                    f"{handler.name} would handle it too: a topic has one handler, which may call "
                    "several functions, and a retry topic belongs to one handler"
                )


def _with_decoder(handler: Handler, decoder: Decoder | None) -> Handler:
    if decoder is None or handler.decoder is not None:
        return handler
    if handler.batch is None:
        call, _ = compile_call(handler.function, handler.name, decoder)
        return handler._replace(call=call, decoder=decoder)
    decode, batch_call = compile_batch_call(handler.function, handler.name, decoder)
    batch = handler.batch._replace(decode=decode, call=batch_call)
    return handler._replace(batch=batch, decoder=decoder)


# -- the options ----------------------------------------------------------------------------------


def _check_options(
    topics: tuple[object, ...],
    pattern: object,
    options: dict[str, object],
) -> None:
    for name in options:
        close = difflib.get_close_matches(name, _OPTIONS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(_OPTIONS)}"
        raise ConfigError(f"a handler has no option {name}: {hint}")
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
            raise ConfigError(f"a topic is a name, not {topic!r}")
    if len(set(topics)) < len(topics):
        raise ConfigError(f"a topic is named twice: {', '.join(map(str, topics))}")
    if topics and pattern is not None:
        raise ConfigError("a handler has topics or a pattern, not both: register it twice")
    if not topics and pattern is None:
        raise ConfigError('a handler needs topics or a pattern: handler("orders")')
    _check_pattern(pattern)


def check_policy(retry: object, dead_letter: object, on_error: object) -> None:
    """ConfigError, with the fix, for what cannot be done with failures."""
    if retry is not None and not isinstance(retry, Retry):
        raise ConfigError(f"retry={retry!r}: use retry=Retry(attempts=3), or leave it out")
    if on_error is not None and on_error not in get_args(OnError):
        raise ConfigError(f'on_error={on_error!r} is unknown: use "stop", "skip" or "pause"')
    if dead_letter is None:
        return
    check_topics((dead_letter,), "dead_letter")
    if on_error is not None:
        raise ConfigError(
            "dead_letter says what happens to a record that has failed for good, and so does "
            "on_error: leave out one of them"
        )


def _check_order(order_by: object, *, batch: bool) -> None:
    if order_by == "as configured":
        return
    checks.optional(checks.order)("order_by", order_by)
    if batch and callable(order_by):
        raise ConfigError(
            "a batch holds records of many keys, so no function can say its order: use "
            'order_by="partition" for one batch of a partition at a time, or None for several'
        )


def _check_retry_topic(
    retry_topic: object, retry: Retry | None, topics: tuple[str, ...], dead_letter: str | None
) -> None:
    if retry_topic is None:
        return
    if not isinstance(retry_topic, RetryTopic):
        raise ConfigError(
            f'retry_topic={retry_topic!r}: use retry_topic=RetryTopic("orders.retry", delay=60)'
        )
    name = retry_topic.topic
    if name in topics:
        raise ConfigError(
            f'RetryTopic("{name}") is a topic that the handler handles anyway, so that nothing '
            "would say which of its records wait: use another topic, and leave it out of topics"
        )
    if name == dead_letter:
        raise ConfigError(
            f'"{name}" is both retry_topic and dead_letter: what has failed for good would come '
            "back, so use another topic for one of them"
        )
    if retry is not None and retry.attempts is None:
        raise ConfigError(
            "Retry(attempts=None) goes on for ever, so that nothing would go to retry_topic: say "
            "after how many attempts, or leave out retry_topic"
        )


def _batch_options(batch: object, max_records: object, max_wait: object) -> tuple[int, float]:
    if not checks.flag("batch", batch):
        for name, value in (("max_records", max_records), ("max_wait", max_wait)):
            if value is not None:
                raise ConfigError(f"{name} is for batches: use batch=True, or leave it out")
    most = checks.count()("max_records", _MAX_RECORDS if max_records is None else max_records)
    wait = checks.seconds(zero=True)("max_wait", _MAX_WAIT if max_wait is None else max_wait)
    return cast("int", most), cast("float", wait)


def _check_pattern(pattern: object) -> None:
    if isinstance(pattern, re.Pattern):
        compiled = cast("re.Pattern[str] | re.Pattern[bytes]", pattern)
        if isinstance(compiled.pattern, bytes):
            raise ConfigError("a pattern is of str, not of bytes: topics are names")
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
        return
    if pattern is None:
        return
    if not isinstance(pattern, str):
        raise ConfigError(f"a pattern is a regular expression, not {pattern!r}")
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"pattern {pattern!r} is no regular expression: {error}") from error
    _check_pattern(re.compile(pattern))
