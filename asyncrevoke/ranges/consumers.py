"""Consumers made from an existing configuration."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, cast

from asyncrevoke.consumer import Consumer
from asyncrevoke.ranges.whole_batches import WholeBatches

if TYPE_CHECKING:
    from asyncrevoke.config import ConsumerConfig, ConsumerOptions


def consumer_of(config: ConsumerConfig, *, whole_batches: bool = False) -> Consumer:
    """A consumer with these options, to be entered. Its records may be whole batches."""
    options = {field.name: getattr(config, field.name) for field in fields(config)}
    kind = WholeBatches if whole_batches else Consumer
    return kind(**cast("ConsumerOptions", options))
