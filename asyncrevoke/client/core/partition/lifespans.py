"""The lifespans of partitions: what the user's code opens before the first record of a partition,
and closes after the last one and before the final commit.

The core decides when a lifespan is entered and exited, and asks for it by an effect. While it is
not entered nothing of the partition is fetched or delivered, and while it is not exited the
partition is not released. One lifespan belongs to one instance, so that it is entered once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.core.io.effects import EnterLifespan, ExitLifespan, LoseLifespan
from asyncrevoke.client.core.partition.instance import LifespanState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.partition.instance import PartitionInstance

_RESUMABLE = frozenset((LifespanState.NONE, LifespanState.ENTERED))


class Lifespans:
    """The lifespans of all live instances, and the listener calls that delivery waits for."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._enters_lifespans = False
        self._awaits_listener = False
        self._by_id: dict[int, PartitionInstance] = {}

    def enter_lifespans(self) -> None:
        """From now on each instance has a lifespan. To be called before any is assigned."""
        self._enters_lifespans = True

    def await_listener(self) -> None:
        """From now on nothing of an instance is delivered before the listener's
        ``on_partitions_assigned`` has returned for it."""
        self._awaits_listener = True

    def positioned(self, instance: PartitionInstance, offset: int) -> None:
        """Its first position is known: it may be delivered unless its start is waited for."""
        if self._awaits_listener:
            instance.set_listener_pending(True)
        if self._enters_lifespans:
            instance.set_lifespan(LifespanState.ENTERING)
        if not instance.is_started:
            self._by_id[instance.instance_id] = instance
        if self._enters_lifespans:
            lifespan = EnterLifespan(instance.instance_id, instance.partition, offset)
            self._outbox.put(lifespan)

    def pending_listener_calls(self, instances: Iterable[PartitionInstance]) -> tuple[int, ...]:
        """The ids of those whose start waits for the listener."""
        return tuple(i.instance_id for i in instances if i.listener_pending)

    def listener_called(self, instance_id: int) -> PartitionInstance | None:
        """The listener has returned for this instance; None if it has ended meanwhile."""
        instance = self._by_id.get(instance_id)
        if instance is not None:
            instance.set_listener_pending(False)
        return instance

    def entered(self, instance_id: int) -> PartitionInstance | None:
        """Its lifespan is entered. None if the instance has ended, or the lifespan must exit."""
        instance = self._by_id.get(instance_id)
        if instance is None or instance.lifespan is not LifespanState.ENTERING:
            return None
        instance.set_lifespan(LifespanState.ENTERED)
        return instance

    def cancel_entering(self, instance: PartitionInstance) -> None:
        """Its revocation is requested: a lifespan that is being entered exits at once."""
        if instance.lifespan is LifespanState.ENTERING:
            self.exit(instance, drained=True)

    def exit(self, instance: PartitionInstance, *, drained: bool) -> bool:
        """Nothing more of it is processed. Returns whether its lifespan has exited, or it has none;
        otherwise it exits now. ``drained``: no handler of it runs any more."""
        if instance.lifespan in (LifespanState.ENTERING, LifespanState.ENTERED):
            instance.set_lifespan(LifespanState.EXITING)
            self._outbox.put(ExitLifespan(instance.instance_id, drained))
        return instance.lifespan is not LifespanState.EXITING

    def exited(self, instance_id: int) -> PartitionInstance | None:
        """Its lifespan has exited; None if the instance has ended."""
        instance = self._by_id.get(instance_id)
        if instance is not None:
            instance.set_lifespan(LifespanState.EXITED)
        return instance

    def instance_ended(self, instance: PartitionInstance) -> None:
        """The instance is released or lost, and with it a lifespan that has not exited."""
        known = self._by_id.pop(instance.instance_id, None) is not None
        if known and instance.has_unfinished_lifespan:
            self._outbox.put(LoseLifespan(instance.instance_id))

    @staticmethod
    def is_resumable(instance: PartitionInstance) -> bool:
        """Whether records may be delivered again after a withdrawn revocation: not if the lifespan
        exits."""
        return instance.lifespan in _RESUMABLE
