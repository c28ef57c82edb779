"""One registered handler: its function and its options."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias, TypedDict

from asyncrevoke.config import OrderBy
from asyncrevoke.config.inherit import Inherit
from asyncrevoke.handlers.decoding.decoders import Decoder
from asyncrevoke.handlers.policy.handler_function import HandlerFunction
from asyncrevoke.handlers.policy.limits import HandlerLimits
from asyncrevoke.handlers.policy.middleware import Middleware
from asyncrevoke.handlers.policy.retry import Pause, Retry
from asyncrevoke.handlers.policy.retry_topic import RetryTopic
from asyncrevoke.handlers.policy.signature import BatchHandlerCall, HandlerCall
from asyncrevoke.model import Record

if TYPE_CHECKING:
    from asyncrevoke.handlers.policy.limits import RateLimit

OnError: TypeAlias = Literal["stop", "skip", "pause"]
Unmatched: TypeAlias = Literal["stop", "skip", "dead_letter"]
RunIn: TypeAlias = Literal["thread", "process", "interpreter"]


class HandlerOptions(TypedDict, total=False):
    """What ``handler(...)`` takes by name."""

    pattern: str | re.Pattern[str] | None
    """A regular expression for topics, instead of their names."""
    retry: Retry | None
    """Calls the function again if it raises. The lane of the record waits meanwhile."""
    run_in: RunIn | None
    """Where a sync function (``def``) runs, so that it does not block the event loop: in a
    ``"thread"``; in a ``"process"``, for work that uses the CPU; in an ``"interpreter"`` of its own
    (Python 3.14). In the last two, function, values and results are pickled, and as many calls run
    at once as there are CPUs, unless ``concurrency`` says another number."""
    where: Callable[[Record], object] | None
    """A sync predicate of the record whose value is not decoded, or ``by_header("type", "paid")``.
    Of several handlers of a topic, the first whose predicate is true gets the record; a handler
    without ``where`` gets what no other one takes. If it raises, the record has failed."""
    unmatched: Unmatched | None
    """What follows for records of its topics that no handler takes. ``"stop"`` (default): the
    consumer ends, ``run`` raises UnmatchedRecordError. ``"skip"``: the record is done.
    ``"dead_letter"``: it goes to the ``dead_letter`` topic of this handler. Say it once a topic."""
    retry_topic: RetryTopic | None
    """Takes a record after the last attempt of ``retry``. The consumer reads it from there after a
    delay; later records of its partition do not wait for that."""
    dead_letter: str | None
    """A topic for records that have failed for good, or do not decode. Such a record is done when
    the topic has it. If it cannot be written, its partition is paused."""
    on_error: OnError | Pause | None
    """What follows without ``dead_letter``. ``"stop"`` (default): the consumer ends, ``run`` raises
    the error, and the next owner reads the record again. ``"skip"``: the error is logged, and the
    record is done. ``"pause"``: its partition is paused until ``resume`` reads the record again.
    ``Pause(probe_after=30.0)``: its partition is paused until the record succeeds, which is tried
    again and again."""
    publish_to: str | None
    """A topic for what the function returns or yields, see :class:`~asyncrevoke.Message`: a value,
    or several in a list; None publishes nothing. The record is done when all in-sync replicas have
    its results. A result that cannot be published is a failure like an exception."""
    batch: bool
    """The first parameter is a list of values (``list[Order]``) of one partition, in offset order;
    ``list[Record]`` receives the records. Batches of a partition are handled one at a time unless
    ``order_by=None``. ``BatchError({index: exception})`` says which values failed; any other
    exception fails all of them."""
    max_records: int | None
    """A batch is handled when it has so many records (default 500)."""
    max_wait: float | None
    """Or when so many seconds have passed since its first record arrived (default 0.2)."""
    max_handler_time: float | None
    """Cancels a call after so many seconds, which is a failure (HandlerTimeoutError); a line of the
    log warns at half of it. The partition of a call that still runs 5 s later is paused."""
    decoder: Decoder | None
    """A sync function that returns the value of a ``Record``, tombstones included. It runs in the
    event loop, so it must not block. If it raises, the value does not decode."""
    order_by: OrderBy | Inherit | None
    """Which records wait for each other; by default the consumer's ``order_by``."""
    concurrency: int | None
    """How many calls of this handler run at once, within the consumer's ``concurrency``. A call
    that waits for this or for ``rate_limit`` takes none of the latter."""
    rate_limit: RateLimit | None
    """How many calls begin within a time."""
    max_in_flight: int | None
    """How many records of this handler are taken and not done (one more for each partition at
    most), within the consumer's ``max_in_flight``. By default an equal share of that if the handler
    has one of the other two limits, so that its waiting records leave room for other handlers."""


class BatchOptions(NamedTuple):
    """How a handler takes batches.

    A batch is handled when it has ``max_records``, or ``max_wait`` seconds after its first record
    arrived. ``decode`` returns the value of one record, ``call`` receives all values.
    """

    max_records: int
    max_wait: float
    decode: Decoder
    call: BatchHandlerCall


class Handler(NamedTuple):
    """A registered function. ``call`` decodes a record's value and calls the function with it.

    Either ``topics`` or ``pattern`` is given, and either ``call`` or ``batch``. ``decoder`` is None
    if values are decoded by annotation; ``value_type`` is the annotation of one value.
    ``middleware`` is that of the routers through which the handler was included, the outermost
    first. ``registered`` is what was decorated, ``function`` what is called.
    """

    name: str
    registered: object
    function: HandlerFunction
    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    retry: Retry | None
    retry_topic: RetryTopic | None
    dead_letter: str | None
    on_error: OnError | Pause
    call: HandlerCall | None
    wants_context: bool
    batch: BatchOptions | None
    max_handler_time: float | None
    decoder: Decoder | None
    order_by: OrderBy | Inherit | None
    limits: HandlerLimits
    middleware: tuple[Middleware, ...] = ()
    publish_to: str | None = None
    where: Callable[[Record], object] | None = None
    unmatched: Unmatched | None = None
    value_type: object = None
    run_in: RunIn | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The topics that it handles by name, its retry topic included."""
        return self.topics if self.retry_topic is None else (*self.topics, self.retry_topic.topic)


class RecordMatcher(Protocol):
    """The handlers of a topic, each record of which goes to exactly one of them.

    The policy of ``fallback`` decides about records that cannot be read.

    Implemented by :class:`SharedTopic`.
    """

    handlers: tuple[Handler, ...]
    fallback: Handler

    def choose(self, record: Record, /) -> tuple[Handler, BaseException | None]:
        """The handler that gets a record, or whose policy decides about it, and the error in the
        second case."""
        ...


class HandlerLookup(Protocol):
    """All handlers of a consumer, and the handler of each topic. Implemented by :class:`Router`."""

    @property
    def handlers(self) -> tuple[Handler, ...]:
        """All handlers, in the order of registration."""
        ...

    def get(self, topic: str, /) -> Handler | None:
        """The handler of a topic, the first one of several, None if there is none."""
        ...

    def find(self, topic: str, /) -> Handler:
        """The handler of a topic, the first one of several; ConfigError if there is none."""
        ...

    def matcher_of(self, topic: str, /) -> RecordMatcher | None:
        """Chooses the handler of each record of a topic; None if one handler gets all of them."""
        ...

    def middleware_of(self, handler: Handler, /) -> tuple[Middleware, ...]:
        """The middleware around a handler, the outermost first."""
        ...
