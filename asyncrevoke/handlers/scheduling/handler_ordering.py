"""The lanes and the limits of each handler: which records wait for each other, how many calls run
at once, how many begin within a time, and how many records may be in flight."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from asyncrevoke.client.config.inherit import INHERIT
from asyncrevoke.client.config.record_function import function_name
from asyncrevoke.client.model import Record, UnreadableRecord
from asyncrevoke.handlers.blocking.run_in import default_calls
from asyncrevoke.handlers.decoding.decode_failure import decode_error
from asyncrevoke.handlers.policy.batch import HandlerBatch, Item
from asyncrevoke.handlers.scheduling.partition_lanes import NO_LANE, LaneKeys, lane_keys_by_name

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from asyncrevoke.client.config import NullKeys, OrderBy
    from asyncrevoke.handlers.matching import HandlerLookup
    from asyncrevoke.handlers.policy.limits import HandlerLimits, RateLimit
    from asyncrevoke.handlers.policy.registration import Handler
    from asyncrevoke.handlers.scheduling.backlog import Backlog
    from asyncrevoke.handlers.scheduling.partition_lanes import Entry


Place: TypeAlias = Literal["first", "put_order", "last"]

# Seconds for which a timer that fired a rounding error too early is at least set again.
_LEAST_WAIT = 1e-6


class HandlerLimiter:
    """Permits entries to start, or keeps them waiting in order.

    ``concurrency`` limits the permitted entries whose calls have not ended. ``rate`` limits the sum
    of the calls that began within the last ``per`` seconds and of the permitted entries whose calls
    have not begun. So no more than ``calls`` begin within ``per`` seconds, even if permitted
    entries waited long for a worker.

    The end of a call, or a timer, permits waiting entries.
    """

    def __init__(
        self,
        clock: AbstractEventLoop,
        concurrency: int | None,
        rate: RateLimit | None,
        backlog: Backlog,
    ) -> None:
        self._clock = clock
        self._concurrency = concurrency
        self._rate = rate
        self._backlog = backlog
        self._timer: TimerHandle | None = None
        # Permitted items, and whether the call of each has begun.
        self._permitted: dict[object, bool] = {}
        self._not_begun = 0
        # When the calls of the last ``per`` seconds began.
        self._began: deque[float] = deque()
        self.waiting: deque[Entry] = deque()

    def try_start(self, entry: Entry, place: Place = "last") -> bool:
        """Return whether the entry is permitted; otherwise it waits.

        ``place`` is its place among the waiting entries: ``"put_order"`` is before those that were
        put at the same time or later.
        """
        if self._has_capacity():
            self._permit(entry[1])
            return True
        waiting = self.waiting
        if place == "first" or (place == "put_order" and waiting and entry[2] <= waiting[0][2]):
            waiting.appendleft(entry)
        else:
            waiting.append(entry)
        self._set_timer()
        return False

    def next_permitted(self) -> Entry | None:
        """Permit and return the first waiting entry; None if none waits, or a limit is reached."""
        entry = None
        if self.waiting and self._has_capacity():
            entry = self.waiting.popleft()
            self._permit(entry[1])
        self._set_timer()
        return entry

    def call_started(self, item: object) -> None:
        """The call of an item begins. Ignored for an item that was not permitted here."""
        if self._permitted.get(item) is False:
            self._permitted[item] = True
            self._not_begun -= 1
            if self._rate is not None:
                self._began.append(self._clock.time())
                self._set_timer()

    def call_ended(self, item: object) -> None:
        """An item no longer counts, whether its call has begun or not. Idempotent."""
        if self._permitted.pop(item, None) is False:
            self._not_begun -= 1

    def drop(self, unwanted: Callable[[Entry], bool]) -> list[Entry]:
        """Remove and return the waiting entries for which ``unwanted`` is true."""
        dropped = [entry for entry in self.waiting if unwanted(entry)]
        if dropped:
            self.waiting = deque(entry for entry in self.waiting if not unwanted(entry))
            self._set_timer()
        return dropped

    def _permit(self, item: object) -> None:
        self._permitted[item] = False
        self._not_begun += 1

    def _has_capacity(self) -> bool:
        if self._concurrency is not None and len(self._permitted) >= self._concurrency:
            return False
        return self._rate is None or self._rate_permits(self._rate)

    def _rate_permits(self, rate: RateLimit) -> bool:
        began, now = self._began, self._clock.time()
        while began and began[0] + rate.per <= now:
            began.popleft()
        return len(began) + self._not_begun < rate.calls

    def _set_timer(self) -> None:
        if not self.waiting:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            return
        rate = self._rate
        if (
            self._timer is None
            and rate is not None
            and not self._rate_permits(rate)
            and self._began
        ):
            wait = self._began[0] + rate.per - self._clock.time()
            self._timer = self._clock.call_later(max(wait, _LEAST_WAIT), self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._backlog.limiter_permits(self)


def call_limits(lookup: HandlerLookup, handler: Handler) -> HandlerLimits:
    """The limits of a handler's calls.

    A handler without ``concurrency`` that runs in processes or interpreters is limited to one call
    per CPU, unless it shares a topic: a limit would delay the records of the other handlers.
    """
    limits, run_in = handler.limits, handler.run_in
    if run_in is None or limits.concurrency is not None:
        return limits
    if any(lookup.matcher_of(topic) is not None for topic in handler.topics):
        return limits
    return limits._replace(concurrency=default_calls(run_in))


class HandlerInFlightLimits:
    """How many records of each handler may be in flight, by the handler's number and name.

    A handler with limits, but without ``max_in_flight``, gets an equal share of the consumer's:
    otherwise its waiting records would leave no room for those of other handlers.
    """

    def __init__(self, lookup: HandlerLookup, max_in_flight: int) -> None:
        self._lookup = lookup
        self._limits: dict[int, tuple[str, int]] = {}
        handlers = lookup.handlers
        share = max(1, max_in_flight // len(handlers)) if handlers else max_in_flight
        for number, handler in enumerate(handlers):
            most = handler.limits.max_in_flight
            if most is None and call_limits(lookup, handler).delay_calls:
                most = max(share, 1 if handler.batch is None else handler.batch.max_records)
            if most is not None and most < max_in_flight:
                self._limits[id(handler)] = f"{number}: {handler.name}", most

    def __bool__(self) -> bool:
        return bool(self._limits)

    def of_topic(self, topic: str) -> tuple[str, int] | None:
        """The limit of the topic's handler; None if it has none."""
        handler = self._lookup.get(topic)
        return None if handler is None else self._limits.get(id(handler))


class HandlerOrdering(NamedTuple):
    """The lanes and limits of a handler's items.

    ``lane_keys`` is None for the default lane keys of the queue, ``limiter`` None for a handler
    without limits. ``one_batch_at_a_time``: a batch waits for the end of the partition's batch
    before it.
    """

    lane_keys: LaneKeys | None
    limiter: HandlerLimiter | None
    one_batch_at_a_time: bool


def lane_key(order_by: Callable[[Record], Hashable], nulls: NullKeys, record: Record) -> Hashable:
    """The lane key of a record by a user's function; DecodeError if the function fails."""
    what = f"order_by={function_name(order_by)} gives no key"
    try:
        key = order_by(record)
        hash(key)
    except TypeError as error:
        hashable = not str(error).startswith("unhashable type")
        failure = decode_error(
            record, what if hashable else f"{what}, but an unhashable one", error
        )
    except Exception as error:  # noqa: BLE001 - whatever a user's code raises
        failure = decode_error(record, what, error)
    else:
        return NO_LANE if key is None and nulls == "unordered" else key
    raise failure


def handler_ordering(
    handler: Handler,
    order_by: OrderBy | None,
    nulls: NullKeys,
    limiter: HandlerLimiter | None,
    backlog: Backlog,
) -> HandlerOrdering:
    """The ordering of a handler in a consumer with this ``order_by``."""
    is_the_queues = handler.order_by in (INHERIT, order_by)
    if handler.order_by is not INHERIT:
        order_by = handler.order_by
    if handler.batch is not None:
        # A batch has records of many keys: batches are ordered by partition, or not at all.
        one_at_a_time = order_by is not None
        by_partition = lane_keys_by_name("partition" if one_at_a_time else None, nulls)
        return HandlerOrdering(by_partition, limiter, one_at_a_time)
    if callable(order_by):
        by_function = _lane_keys_by_function(order_by, nulls, backlog)
        return HandlerOrdering(by_function, limiter, one_batch_at_a_time=True)
    own_keys = None if is_the_queues else lane_keys_by_name(order_by, nulls)
    return HandlerOrdering(own_keys, limiter, one_batch_at_a_time=order_by is not None)


def _lane_keys_by_function(
    order_by: Callable[[Record], Hashable], nulls: NullKeys, backlog: Backlog
) -> LaneKeys:
    def key_of(item: Item) -> Hashable:
        assert not isinstance(item, HandlerBatch)
        if isinstance(item, UnreadableRecord):
            return NO_LANE
        try:
            return lane_key(order_by, nulls, item)
        except BaseException as error:  # noqa: BLE001 - whatever the user's function raises
            backlog.fail_when_taken(item, error)
            return NO_LANE

    def keys(items: Sequence[Item]) -> Iterable[Hashable]:
        return [key_of(item) for item in items]

    return keys
