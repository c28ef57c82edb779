"""The lanes of each handler: which records wait for each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.client.config.inherit import INHERIT
from asyncrevoke.client.config.record_function import function_name
from asyncrevoke.client.model import Record, UnreadableRecord
from asyncrevoke.handlers.decoding.decode_failure import decode_error
from asyncrevoke.handlers.policy.batch import HandlerBatch, Item
from asyncrevoke.handlers.scheduling.handler_limiter import HandlerLimiter
from asyncrevoke.handlers.scheduling.partition_lanes import NO_LANE, LaneKeys, lane_keys_by_name

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from asyncrevoke.client.config import NullKeys, OrderBy
    from asyncrevoke.handlers.policy.registration import Handler
    from asyncrevoke.handlers.scheduling.backlog import Backlog


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
