"""Creates consumers for ranges from an existing configuration."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, cast

from asyncrevoke.client.runtime.session.open_session import open_session
from asyncrevoke.replays.ranges.range_consumer import RangeConsumer

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig, ConsumerOptions
    from asyncrevoke.client.runtime.session.session import Session


class WholeBatches(RangeConsumer):
    """Each record is a batch: the offset of its last record, and its bytes as the value.

    For reading only: counting these records counts batches.
    """

    def _open(self) -> Session:
        return open_session(self._config, None, whole_batches=True)


class ReturnsUnreadable(RangeConsumer):
    """A consumer that returns an ``UnreadableRecord`` as the last record of a partition instead of
    raising UnreadableRecordError. The position moves past the record."""

    def _open(self) -> Session:
        session = super()._open()
        session.core.deliver_unreadable()
        return session


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
    """The options that make this configuration, without those that have their default values: some
    may not be given together with others."""
    options = {
        field.name: value
        for field in fields(config)
        if (value := getattr(config, field.name)) != field.default
    }
    return cast("ConsumerOptions", options)
