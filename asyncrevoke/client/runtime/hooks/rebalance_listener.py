"""The callbacks of rebalances."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, cast

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from asyncrevoke.client.model import BlockingRecord, TopicPartition

Done: TypeAlias = "Awaitable[None] | None"


class RebalanceListener:
    """Override the callbacks that you need, as ``def`` or ``async def`` (KIP-429).

    Callbacks are called after the change, one after the other: lost, revoked, assigned; never with
    an empty set. An exception does not stop the other callbacks; the next step raises the first
    one, and the step after it continues. Records of other partitions are delivered meanwhile.
    """

    def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> Done:
        """These are assigned to this consumer, and their positions are known.

        No record of them is delivered before an ``async def`` has returned, so that it may load
        state and :meth:`~asyncrevoke.Consumer.seek`. It is cancelled after ``max_poll_interval``
        seconds, and the next step raises CallbackTimeoutError.
        """

    def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> Done:
        """These are released, their offsets committed; another member may have them now.

        ``position()`` of them returns where they stood, ``committed()`` what was committed. When
        the consumer closes, these, ``assignment()`` and other calls that change nothing work as in
        a rebalance. ``commit()``, ``pause()`` and the like raise ConsumerClosedError.
        """

    def on_partitions_lost(self, lost: frozenset[TopicPartition]) -> Done:
        """These are lost: another member may have them, and nothing can be committed for them.

        By default it calls :meth:`on_partitions_revoked`.
        """
        return self.on_partitions_revoked(lost)

    def on_revocation_delayed(self, blocking: Sequence[BlockingRecord]) -> Done:
        """These records, the oldest of each partition, delay the revocation of their partitions.

        Called for a partition after 5 s, and then every 30 s; also while the consumer closes.
        """


_CALLBACKS = (
    "on_partitions_assigned",
    "on_partitions_revoked",
    "on_partitions_lost",
    "on_revocation_delayed",
)


def check_listener(listener: object) -> RebalanceListener | None:
    """Raise ConfigError, with a hint, for an object that has none of the callbacks."""
    if isinstance(listener, type):
        name = listener.__name__
        raise ConfigError(f"listener={name} is a class: create an object, listener={name}()")
    if listener is not None and not any(
        callable(getattr(listener, name, None)) for name in _CALLBACKS
    ):
        raise ConfigError(
            f"listener={shown_option(listener)} has none of the methods {', '.join(_CALLBACKS)}: "
            "inherit from RebalanceListener, and override those that you need"
        )
    return cast("RebalanceListener | None", listener)
