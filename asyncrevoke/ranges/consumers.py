"""Creates consumers for ranges from an existing configuration."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, cast

from asyncrevoke.ranges.range_consumer import RangeConsumer
from asyncrevoke.ranges.unreadable_records import ReturnsUnreadable
from asyncrevoke.ranges.whole_batches import WholeBatches

if TYPE_CHECKING:
    from asyncrevoke.config import ConsumerConfig, ConsumerOptions


def consumer_of(
    config: ConsumerConfig, *, whole_batches: bool = False, unreadable: bool = False
) -> RangeConsumer:
    """A consumer with these options. The caller enters it.

    With ``whole_batches``, each of its records is a record batch. With ``unreadable``, it returns
    an ``UnreadableRecord`` for a record that cannot be read, instead of raising
    UnreadableRecordError.
    """
    # The value of a whole batch is always a view.
    read = replace(config, value_as="view" if whole_batches else "bytes")
    kind = WholeBatches if whole_batches else ReturnsUnreadable if unreadable else RangeConsumer
    return kind(**options_of(read))


def options_of(config: ConsumerConfig) -> ConsumerOptions:
    """The options that make this configuration."""
    options = {field.name: getattr(config, field.name) for field in fields(config)}
    return cast("ConsumerOptions", options)
