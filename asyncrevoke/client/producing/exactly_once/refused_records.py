"""The finished records whose results a broker has refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.producing.exactly_once.finished_records import DEAD_LETTER, CallResults
from asyncrevoke.client.producing.transactions.transaction import RecordsRefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.errors import PublishError
    from asyncrevoke.client.producing.exactly_once.finished_records import Entry
    from asyncrevoke.client.producing.message import RecordFields


def refused_entries(
    error: PublishError, written: Sequence[tuple[RecordFields, Entry]]
) -> tuple[set[int], bool]:
    """The ids of the entries with refused results: those that the error names, or all of its topic;
    and whether one of these results is a dead letter or a record of a retry topic."""
    tokens = (
        {id(token) for token in error.tokens}
        if error.of_record and isinstance(error, RecordsRefusedError)
        else None
    )
    refused = {
        id(entry): entry
        for result, entry in written
        if (result[0] == error.topic if tokens is None else id(result) in tokens)
    }
    of_dead_letter = any(
        isinstance(results, CallResults) and results.handler == DEAD_LETTER
        for _, _, results in refused.values()
    )
    return set(refused), of_dead_letter
