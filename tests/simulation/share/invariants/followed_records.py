"""Follows what a core decides on its records, which is seen in no other way."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.client.core.share.acquired_records import AcquiredRecord
    from asyncrevoke.client.core.share.acquisition import Acquisition, HeldRecord
    from asyncrevoke.client.core.share.counts import LockLoss
    from asyncrevoke.client.core.share.held_records import HeldRecords
    from asyncrevoke.client.core.share.state_table import RecordState, RecordTransition


def follow(
    held: HeldRecords,
    on_added: Callable[[Acquisition, Sequence[AcquiredRecord]], None],
    on_changed: Callable[[HeldRecord], None],
    on_loss: Callable[[str], None],
) -> None:
    """Call ``on_added`` with records that are held from now on, ``on_changed`` with each record
    whose state has changed, and ``on_loss`` with the reason before records are lost."""
    add, change, lose = held.add, held.change, held.lose
    end, acknowledge = held.end, held.acknowledged

    def added(
        acquisition: Acquisition, records: Any, ranges: Any, deadline: float
    ) -> list[AcquiredRecord]:
        found = add(acquisition, records, ranges, deadline)
        on_added(acquisition, found)
        return found

    def changed(record: HeldRecord, transition: RecordTransition) -> bool:
        has_changed = change(record, transition)
        if has_changed:
            on_changed(record)
        return has_changed

    def ended(now: float, records: Any, transition: RecordTransition) -> Any:
        found = end(now, records, transition)
        for record in chain.from_iterable(found.values()):
            on_changed(record)
        return found

    def acknowledged(state: RecordState, records: Any) -> None:
        acknowledge(state, records)
        for record in records:
            on_changed(record)

    def lost(records: Any, loss: LockLoss, why: str) -> None:
        on_loss(why)
        lose(records, loss, why)

    followed = {"add": added, "change": changed, "lose": lost}
    for name, function in (followed | {"end": ended, "acknowledged": acknowledged}).items():
        setattr(held, name, function)
