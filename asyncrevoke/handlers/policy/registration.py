"""One registered handler: its function and its options."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias, TypedDict

from asyncrevoke.client.config import OrderBy
from asyncrevoke.client.config.inherit import Inherit
from asyncrevoke.client.model import Record
from asyncrevoke.handlers.decoding.arrow_values import HandlerColumns
from asyncrevoke.handlers.decoding.decoders import AsyncDecoder, Decoder, HandlerDecoder
from asyncrevoke.handlers.policy.encoders import Encoder
from asyncrevoke.handlers.policy.handler_function import HandlerFunction
from asyncrevoke.handlers.policy.limits import HandlerLimits, RateLimit
from asyncrevoke.handlers.policy.middleware import Middleware
from asyncrevoke.handlers.policy.retry import Pause, Retry
from asyncrevoke.handlers.policy.retry_topic import RetryTopic
from asyncrevoke.handlers.policy.signature import BatchHandlerCall, HandlerCall

OnError: TypeAlias = Literal["stop", "skip", "pause", "release", "reject"]
Unmatched: TypeAlias = Literal["stop", "skip", "dead_letter"]
RunIn: TypeAlias = Literal["thread", "process", "interpreter"]


class HandlerOptions(TypedDict, total=False):
    """The keyword arguments of ``handler(...)``."""

    pattern: str | re.Pattern[str] | None
    """A regular expression for topics, instead of their names."""
    retry: Retry | None
    """Calls the function again if it raises. The lane of the record waits meanwhile."""
    run_in: RunIn | None
    """Where a sync function (``def``) runs, so that it does not block the event loop: a
    ``"thread"``; a ``"process"``, for work that uses the CPU; or an ``"interpreter"`` (Python
    3.14), which few C extensions support. In the last two, function, values and results are
    pickled, and one call per CPU runs at once, unless ``concurrency`` is given."""
    where: Callable[[Record], object] | None
    """A sync predicate of the record with its undecoded value, or ``by_header("type", "paid")``.
    Of several handlers of a topic, the first whose predicate is true gets the record; a handler
    without ``where`` gets the records that no other handler takes. If the predicate raises, the
    record has failed."""
    unmatched: Unmatched | None
    """Decides about records of the handler's topics that no handler takes. ``"stop"`` (default):
    the consumer ends, and ``run`` raises UnmatchedRecordError. ``"skip"``: the record is done.
    ``"dead_letter"``: it goes to the ``dead_letter`` topic of this handler. Give it to one handler
    of a topic."""
    retry_topic: RetryTopic | None
    """A topic for a record after the last attempt of ``retry``. The consumer reads it from there
    after a delay; later records of its partition do not wait for this."""
    dead_letter: str | None
    """A topic for records that have failed after all attempts, or do not decode. Such a record is
    done when it is written there. If it cannot be written, its partition is paused."""
    on_error: OnError | Pause | None
    """Decides about such a record without ``dead_letter``. ``"stop"`` (default): the consumer ends,
    ``run`` raises the error, and the next owner processes the record again. ``"skip"``: the error
    is logged, and the record is done. ``"pause"``: its partition is paused; ``resume`` reads the
    record again. ``Pause(probe_after=30.0)``: its partition is paused, and the record is retried
    every 30 s until it succeeds. A share group has ``"release"`` (its default), ``"reject"`` and
    ``"stop"`` instead. ``"release"``: the record is delivered again, to any member, until the group
    archives it. ``"reject"``: it is not delivered again."""
    release_delay: float | None
    """In a share group: seconds for which ``on_error="release"`` holds a record before it releases
    it (default 30.0), so that an outage does not use up its deliveries. Its lock is renewed
    meanwhile, and it uses no slot; a stop releases it at once."""
    encoder: Encoder | None
    """A function, sync or async, of a topic and a result's value that returns bytes, instead of the
    encoding as JSON. It does not get null values. If it raises, the call has failed."""
    publish_to: str | None
    """A topic for the results that the function returns or yields, see
    :class:`~asyncrevoke.Message`: a value, or a list of values; None publishes nothing. The record
    is done when all in-sync replicas have its results. A result that cannot be published is a
    failure like an exception. ``publish_to=None`` says that only replays keep the results."""
    batch: bool
    """The first parameter is a list of values (``list[Order]``) of one partition, in offset order;
    ``list[Record]`` receives the records, and ``pyarrow.RecordBatch`` or ``polars.DataFrame`` their
    columns. Batches of a partition are handled one at a time unless
    ``order_by=None``. ``BatchError({index: exception})`` says which values failed; any other
    exception fails all of them."""
    max_records: int | None
    """A batch is handled when it has this many records (default 500)."""
    max_wait: float | None
    """A batch is also handled this many seconds after its first record arrived (default 0.2)."""
    max_handler_time: float | None
    """Cancels a call after this many seconds, which is a failure (HandlerTimeoutError). A log line
    warns at half of the time. If the call still runs 5 s later, its partition is paused."""
    decoder: HandlerDecoder | None
    """A function, sync or async, that returns the value of a ``Record``; it receives tombstones,
    too. It runs in the event loop, so it must not block, and its time counts for
    ``max_handler_time``. If it raises, the value does not decode. For a handler that receives
    columns: an ``ArrowJson`` or ``ArrowRegistry``, which makes structs of the column
    ``value``."""
    order_by: OrderBy | Inherit | None
    """Which records wait for each other; by default the consumer's ``order_by``."""
    concurrency: int | None
    """How many calls of this handler run at once, within the consumer's ``concurrency``. A call
    that waits for this limit or for ``rate_limit`` does not count for the consumer's."""
    rate_limit: RateLimit | None
    """How many calls begin within a time."""
    max_in_flight: int | None
    """How many records of this handler are in flight (at most one more for each partition), within
    the consumer's ``max_in_flight``. A handler with one of the other two limits has an equal share
    of the consumer's by default, so that its waiting records leave room for other handlers."""


class BatchOptions(NamedTuple):
    """The batches of a handler.

    A batch is handled when it has ``max_records``, or ``max_wait`` seconds after its first record
    arrived. ``decode`` returns the value of one record, ``call`` receives all values. With
    ``columns`` the function gets an Arrow batch or a DataFrame, and ``decode`` is not called.
    """

    max_records: int
    max_wait: float
    decode: Decoder | AsyncDecoder
    call: BatchHandlerCall
    columns: HandlerColumns | None = None


class Handler(NamedTuple):
    """A registered function. ``call`` decodes a record's value and calls the function with it.

    Either ``topics`` or ``pattern`` is given, and either ``call`` or ``batch``. ``decoder`` is None
    if values are decoded by annotation; ``value_type`` is the annotation of one value.
    ``on_error`` is None if it was not given.
    ``only_replays_keep_results``: ``publish_to=None`` was given. ``middleware`` belongs to the
    routers through which the handler was included, the outermost first. ``registered`` is the
    decorated function; calls call ``function``.
    """

    name: str
    registered: object
    function: HandlerFunction
    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    retry: Retry | None
    retry_topic: RetryTopic | None
    dead_letter: str | None
    on_error: OnError | Pause | None
    call: HandlerCall | None
    wants_context: bool
    batch: BatchOptions | None
    max_handler_time: float | None
    decoder: HandlerDecoder | None
    order_by: OrderBy | Inherit | None
    limits: HandlerLimits
    middleware: tuple[Middleware, ...] = ()
    publish_to: str | None = None
    encoder: Encoder | None = None
    where: Callable[[Record], object] | None = None
    unmatched: Unmatched | None = None
    value_type: object = None
    run_in: RunIn | None = None
    only_replays_keep_results: bool = False
    release_delay: float = 30.0

    @property
    def failure_topics(self) -> tuple[str, ...]:
        """The topics to which failed records are written: its dead letter and retry topics."""
        letters = () if self.dead_letter is None else (self.dead_letter,)
        return letters if self.retry_topic is None else (*letters, self.retry_topic.topic)

    @property
    def names(self) -> tuple[str, ...]:
        """The topics that it handles by name, including its retry topic."""
        return self.topics if self.retry_topic is None else (*self.topics, self.retry_topic.topic)
