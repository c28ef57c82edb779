"""Registers handlers, and finds the handler of a topic."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar, Unpack, cast

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.handlers.blocking.run_in import check_blocking
from asyncrevoke.handlers.decoding.column_decoder import ColumnDecoder
from asyncrevoke.handlers.decoding.decoders import HandlerDecoder, check_decoder
from asyncrevoke.handlers.matching import SharedTopic, check_shared_topic, is_shared
from asyncrevoke.handlers.policy.encoders import encoded_batch_call, encoded_call
from asyncrevoke.handlers.policy.middleware import M, Middleware, check_middleware
from asyncrevoke.handlers.policy.options import CheckedOptions, check_options
from asyncrevoke.handlers.policy.registration import BatchOptions, Handler, HandlerOptions
from asyncrevoke.handlers.policy.results import check_results, collecting
from asyncrevoke.handlers.policy.signature import (
    compile_batch_call,
    compile_call,
    handler_name,
    takes_context,
    takes_records,
    value_type,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.handlers.policy.handler_function import HandlerFunction

F = TypeVar("F", bound="Callable[..., object]")


class Router:
    """Collects handlers, for example of one module; ``Consumer.include_router`` adds them.

    ``decoder`` decodes the records of handlers without a ``decoder``.
    """

    def __init__(self, *, decoder: HandlerDecoder | None = None) -> None:
        if decoder is not None:
            check_decoder(decoder)
        self._decoder = decoder
        self._handlers: list[Handler] = []
        self._by_topic: dict[str, list[Handler]] = {}
        self._shared: dict[str, SharedTopic] = {}
        self._replace: Callable[[Handler], Handler] | None = None
        self._middleware: list[Middleware] = []

    @property
    def handlers(self) -> tuple[Handler, ...]:
        """All handlers, in the order of registration."""
        return tuple(self._handlers)

    @property
    def topics(self) -> frozenset[str]:
        """The topics that handlers name, retry topics included."""
        return frozenset(self._by_topic)

    @property
    def pattern(self) -> str | None:
        """One pattern that matches all topics of the handlers; None if no handler has a pattern.

        A subscription has topics or one pattern. The pattern has to match a topic fully.
        """
        patterns = [handler.pattern.pattern for handler in self._handlers if handler.pattern]
        if not patterns:
            return None
        alternatives = [re.escape(topic) for topic in sorted(self._by_topic)] + patterns
        return "|".join(f"(?:{alternative})" for alternative in alternatives)

    def handler(self, *topics: str, **options: Unpack[HandlerOptions]) -> Callable[[F], F]:
        """Register a function for topics, or for each topic that ``pattern`` matches fully.

        The function is async, or sync with ``run_in``. The decorator returns it unchanged. Handlers
        that name a topic take precedence over patterns. Of several patterns that match, the first
        one registered counts. A call is cancelled when its partition is lost, or when
        ``close_timeout`` is reached.

        The first parameter is the value, decoded by its annotation (``bytes``, ``str``, ``dict``,
        dataclass, ``msgspec.Struct``, pydantic model; ``T | None`` for tombstones), or the whole
        ``Record``. Further parameters are annotated ``Record`` or ``HandlerContext``.

        See :class:`HandlerOptions` for the options. Decorating raises ConfigError.
        """
        checked = check_options(topics, options)

        def register(function: F) -> F:
            self._add(_compiled(cast("HandlerFunction", function), topics, checked, self._decoder))
            return function

        return register

    def middleware(self, function: M) -> M:
        """Put an async function around each call of this router's handlers.

        ::

            @router.middleware
            async def timing(context: HandlerContext, call_next: CallNext) -> None:
                began = time.perf_counter()
                await call_next()
                took.labels(context.handler).observe(time.perf_counter() - began)

        ``await call_next()`` calls the middleware that was registered next, or the handler. The
        middleware that was registered first is outermost. It runs once for each call (of a record
        or a batch, retries included), within ``max_handler_time``. If it raises, the call has
        failed. If it returns without ``call_next()``, the record is done. ``call_next()`` raises
        DecodeError for a value that does not decode, except for batches.

        Raises ConfigError for another kind of function.
        """
        check_middleware(function)
        self._middleware.append(function)
        return function

    def middleware_of(self, handler: Handler) -> tuple[Middleware, ...]:
        """The middleware around a handler of this router, the outermost first."""
        return (*self._middleware, *handler.middleware)

    def include_router(self, router: Router) -> None:
        """Add the handlers that ``router`` has now.

        Handlers without a decoder get the decoder of this router. The middleware of ``router`` runs
        inside the middleware of this router, for the added handlers only.

        Raises ConfigError if both routers handle a topic, and neither predicates nor tags choose
        between their handlers.
        """
        included = [
            _with_decoder(handler, self._decoder)._replace(middleware=router.middleware_of(handler))
            for handler in router.handlers
        ]
        self._check_topics(included)
        for handler in included:
            self._add(handler)

    def map_handlers(self, change: Callable[[Handler], Handler]) -> Router:
        """Return a router with the same middleware, and with ``change`` applied to each handler and
        to the policy for records that no handler takes."""
        router = Router(decoder=self._decoder)
        router._replace = change
        router._middleware.extend(self._middleware)
        for handler in self._handlers:
            router._add(change(handler))
        return router

    def get(self, topic: str) -> Handler | None:
        """The handler of a topic, or the first of several; None if there is none."""
        handlers = self.handlers_of(topic)
        return handlers[0] if handlers else None

    def handlers_of(self, topic: str) -> Sequence[Handler]:
        """The handlers of a topic, in the order of registration.

        These are the handlers that name the topic; if there are none, the handlers with the first
        pattern that matches it.
        """
        handlers = self._by_topic.get(topic)
        if handlers is not None:
            return handlers
        for candidate in self._handlers:
            pattern = candidate.pattern
            if pattern is not None and pattern.fullmatch(topic):
                return [handler for handler in self._handlers if handler.pattern == pattern]
        return ()

    def matcher_of(self, topic: str) -> SharedTopic | None:
        """The matcher of a topic's records; None if one handler gets all of them."""
        handlers = self.handlers_of(topic)
        if not is_shared(handlers) or _is_retry_topic(topic, handlers[0]):
            return None
        shared = self._shared.get(topic)
        if shared is None:
            shared = self._shared[topic] = SharedTopic(handlers, self._replace)
        return shared

    def find(self, topic: str) -> Handler:
        """The handler of a topic, or the first of several; ConfigError if there is none."""
        handler = self.get(topic)
        if handler is not None:
            return handler
        raise ConfigError(
            f'no handler for topic "{topic}": register one with @consumer.handler("{topic}"), '
            "or do not subscribe to it"
        )

    def _add(self, handler: Handler) -> None:
        if handler.dead_letter or handler.publish_to or handler.retry_topic:
            # Imported here, so that the event loop, which runs handlers, need not.
            import_module("asyncrevoke.client.producing.record_producer")
        self._check_topics([handler])
        self._handlers.append(handler)
        self._shared.clear()
        for topic in handler.names:
            self._by_topic.setdefault(topic, []).append(handler)

    def _check_topics(self, added: Sequence[Handler]) -> None:
        for topic in dict.fromkeys(topic for handler in added for topic in handler.names):
            new = [handler for handler in added if topic in handler.names]
            _check_topic(topic, [*self._by_topic.get(topic, ()), *new])
        patterns = dict.fromkeys(handler.pattern for handler in added if handler.pattern)
        for pattern in patterns:
            of_pattern = [
                registered
                for registered in (*self._handlers, *added)
                if registered.pattern == pattern
            ]
            check_shared_topic(pattern.pattern, of_pattern)


def _is_retry_topic(topic: str, handler: Handler) -> bool:
    return handler.retry_topic is not None and handler.retry_topic.topic == topic


def _check_topic(topic: str, handlers: Sequence[Handler]) -> None:
    if not any(_is_retry_topic(topic, handler) for handler in handlers):
        check_shared_topic(topic, handlers)
    elif len(handlers) > 1:
        raise ConfigError(
            f'topic "{topic}" is handled by {handlers[0].name} already, and {handlers[-1].name} '
            "would handle it too: a retry topic belongs to one handler"
        )


def _compiled(
    function: HandlerFunction,
    topics: tuple[str, ...],
    options: CheckedOptions,
    default_decoder: HandlerDecoder | None,
) -> Handler:
    name = handler_name(function)
    registered = function
    function = _called_function(function, name, options)
    call, wants_context, batch = None, False, None
    decoder = options.decoder or default_decoder
    if options.batch is None:
        call, wants_context = compile_call(function, name, decoder)
    else:
        decode, batch_call, columns = compile_batch_call(function, name, decoder)
        batch = BatchOptions(*options.batch, decode, batch_call, columns=columns)
    is_of_columns = isinstance(options.decoder, ColumnDecoder)
    if options.decoder is not None and not is_of_columns and takes_records(function):
        raise ConfigError(
            f"the first parameter of {name} is annotated Record, or as columns, and receives "
            "records as they are: leave out decoder=, or annotate what the decoder returns"
        )
    if not options.only_replays_keep_results:
        check_results(function, name, options.publish_to)
    return _with_encoder(
        Handler(
            name=name,
            registered=registered,
            function=function,
            topics=topics,
            pattern=options.pattern,
            retry=options.retry,
            retry_topic=options.retry_topic,
            dead_letter=options.dead_letter,
            on_error=options.on_error,
            call=call,
            wants_context=wants_context,
            batch=batch,
            max_handler_time=options.max_handler_time,
            decoder=decoder,
            order_by=options.order_by,
            limits=options.limits,
            publish_to=options.publish_to,
            encoder=options.encoder,
            where=options.where,
            unmatched=options.unmatched,
            value_type=value_type(function, name, batch=batch is not None),
            run_in=options.run_in,
            only_replays_keep_results=options.only_replays_keep_results,
            release_delay=options.release_delay,
        )
    )


def _with_encoder(handler: Handler) -> Handler:
    """A handler whose results are encoded by its encoder, if it has one."""
    encoder, topic = handler.encoder, handler.publish_to
    if encoder is None or topic is None:
        return handler
    if handler.batch is not None:
        call = encoded_batch_call(handler.batch.call, encoder, topic)
        return handler._replace(batch=handler.batch._replace(call=call))
    assert handler.call is not None
    return handler._replace(call=encoded_call(handler.call, encoder, topic))


def _called_function(
    function: HandlerFunction, name: str, options: CheckedOptions
) -> HandlerFunction:
    """An async function that calls the decorated one, which may be sync or a generator."""
    run_in = options.run_in
    if run_in is None:
        return function if options.publish_to is None else collecting(function)
    check_blocking(function, name, run_in, publishes=options.publish_to is not None)
    from asyncrevoke.handlers.blocking.blocking_function import BlockingFunction

    blocking = BlockingFunction(function, name, run_in, options.limits.concurrency)
    if run_in != "thread" and takes_context(blocking):
        raise ConfigError(
            f'{name} has run_in="{run_in}" and a parameter annotated HandlerContext, which belongs '
            'to this process: leave it out, or use run_in="thread"'
        )
    return blocking


def inline(handler: Handler) -> Handler:
    """Return a handler that runs a sync function in the event loop; others are unchanged."""
    batch = handler.batch
    if batch is not None and batch.columns is not None:
        handler = handler._replace(batch=batch._replace(columns=batch.columns.inline()))
    if handler.run_in is None:
        return handler
    from asyncrevoke.handlers.blocking.blocking_function import BlockingFunction

    assert isinstance(handler.function, BlockingFunction)
    return _compiled_again(handler._replace(function=handler.function.inline()), handler.decoder)


def without_encoder(handler: Handler) -> Handler:
    """Return a handler whose results are not encoded by its encoder; others are unchanged."""
    if handler.encoder is None:
        return handler
    return _compiled_again(handler._replace(encoder=None), handler.decoder)


def _with_decoder(handler: Handler, decoder: HandlerDecoder | None) -> Handler:
    if decoder is None or handler.decoder is not None:
        return handler
    return _compiled_again(handler, decoder)


def _compiled_again(handler: Handler, decoder: HandlerDecoder | None) -> Handler:
    if handler.batch is None:
        call, _ = compile_call(handler.function, handler.name, decoder)
        return _with_encoder(handler._replace(call=call, decoder=decoder))
    decode, batch_call, columns = compile_batch_call(handler.function, handler.name, decoder)
    batch = handler.batch._replace(decode=decode, call=batch_call, columns=columns)
    return _with_encoder(handler._replace(batch=batch, decoder=decoder))
