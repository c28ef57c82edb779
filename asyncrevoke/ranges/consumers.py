"""Consumers made from an existing configuration."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from asyncrevoke.config import ConsumerConfig, ConsumerOptions
    from asyncrevoke.consumer import Consumer


def consumer_of(config: ConsumerConfig, *, whole_batches: bool = False) -> Consumer:
    """A consumer with these options, to be entered. Its records may be whole batches."""
    from asyncrevoke.consumer import Consumer  # noqa: PLC0415 - loads everything
    from asyncrevoke.ranges.whole_batches import WholeBatches  # noqa: PLC0415 - the same

    options = {field.name: getattr(config, field.name) for field in fields(config)}
    kind = WholeBatches if whole_batches else Consumer
    return kind(**cast("ConsumerOptions", options))
