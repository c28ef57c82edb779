"""How the records of one handler flow: which wait for each other, and how many run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from asyncrevoke.config.record_function import function_name
from asyncrevoke.handlers.policy.batch import Batch, Item
from asyncrevoke.handlers.policy.decode_failure import decode_error
from asyncrevoke.handlers.scheduling.handler_limiter import Gate
from asyncrevoke.handlers.scheduling.lane_order import NO_LANE, Order, order_by_name
from asyncrevoke.handlers.scheduling.lanes import Entry
from asyncrevoke.model import UnreadableRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from asyncrevoke.config import NullKeys, OrderBy
    from asyncrevoke.handlers.registry import Handler
    from asyncrevoke.model import Record

# Told of each record whose lane cannot be known, and why.
OnRefused: TypeAlias = "Callable[[Record, BaseException], None]"


class Flow(NamedTuple):
    """``order`` is None for that of the queue. ``alone``: one batch of a partition at a time."""

    order: Order[Item] | None
    gate: Gate[Entry[Item]] | None
    alone: bool


def lane_key(order_by: Callable[[Record], Hashable], nulls: NullKeys, record: Record) -> Hashable:
    """The lane of a record by a function of the user; DecodeError if that fails."""
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


def flow_of(
    handler: Handler,
    order_by: OrderBy | None,
    nulls: NullKeys,
    gate: Gate[Entry[Item]] | None,
    on_refused: OnRefused,
) -> Flow:
    """The flow of a handler in a consumer with this ``order_by``."""
    as_configured = handler.order_by in ("as configured", order_by)
    if handler.order_by != "as configured":
        order_by = handler.order_by
    if handler.batch is not None:
        # Batches hold many keys: they are in order by partition, or not at all.
        alone = order_by is not None
        return Flow(order_by_name("partition" if alone else None, nulls), gate, alone)
    if callable(order_by):
        return Flow(_order_by_call(order_by, nulls, on_refused), gate, alone=True)
    order = None if as_configured else order_by_name(order_by, nulls)
    return Flow(order, gate, alone=order_by is not None)


def _order_by_call(
    order_by: Callable[[Record], Hashable], nulls: NullKeys, on_refused: OnRefused
) -> Order[Item]:
    def key_of(item: Item) -> Hashable:
        assert not isinstance(item, Batch)
        if isinstance(item, UnreadableRecord):
            return NO_LANE
        try:
            return lane_key(order_by, nulls, item)
        except BaseException as error:  # noqa: BLE001 - all of it is the user's function's
            # It fails when it is taken, without waiting for others: nobody knows for whom.
            on_refused(item, error)
            return NO_LANE

    def keys(items: Sequence[Item]) -> Iterable[Hashable]:
        return [key_of(item) for item in items]

    return keys
