"""The end offsets of a micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.spark.errors import DataLossError

if TYPE_CHECKING:
    from collections.abc import Mapping


def advance(
    start: Mapping[str, int], first: Mapping[str, int], last: Mapping[str, int], most: int | None
) -> dict[str, int]:
    """The end of the batch that begins at ``start``: ``last``, or about ``most`` offsets later.

    Each partition gets a share in proportion to its lag, and at least one offset if it has any.
    New partitions begin at ``first``.
    """
    begins = {number: start.get(number, first.get(number, 0)) for number in last}
    waiting = {number: max(0, last[number] - begins[number]) for number in last}
    total = sum(waiting.values())
    if most is None or total <= most:
        shares = waiting
    else:
        shares = {
            number: min(size, max(1, size * most // total)) if size else 0
            for number, size in waiting.items()
        }
    return {number: begins[number] + shares[number] for number in last}


def check_not_renewed(topic: str, start: Mapping[str, int], last: Mapping[str, int]) -> None:
    """Raise DataLossError if the topic ends before the query's offsets or has fewer partitions."""
    for number, offset in sorted(start.items()):
        if number not in last:
            raise DataLossError(
                f"{topic}-{number} does not exist any more, and the query is at its offset "
                f"{offset}: the topic was deleted or made anew; begin with a new checkpoint"
            )
        if last[number] < offset:
            raise DataLossError(
                f"{topic}-{number} ends at offset {last[number]}, and the query is at "
                f"{offset}: the topic was made anew or has lost records; begin with a new "
                "checkpoint"
            )
