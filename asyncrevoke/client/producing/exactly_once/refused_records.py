"""The finished records whose results a broker has refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.producing.exactly_once.finished_records import CallResults, records_of
from asyncrevoke.client.producing.transactions.transaction import RecordsRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from asyncrevoke.client.errors import PublishError
    from asyncrevoke.client.producing.exactly_once.finished_records import Entry
    from asyncrevoke.client.producing.message import RecordFields


def refused_results(error: PublishError, results: Sequence[RecordFields]) -> list[RecordFields]:
    """The results that the error names, or all of its topic."""
    if error.of_record and isinstance(error, RecordsRefusedError):
        tokens = {id(token) for token in error.tokens}
        return [result for result in results if id(result) in tokens]
    return [result for result in results if result[0] == error.topic]


def refused_owners(
    refused: Iterable[RecordFields],
    results: Sequence[RecordFields],
    owners: Sequence[object],
) -> set[int]:
    """The ids of the owners of refused results; each result has the owner with its index."""
    ids = {id(result) for result in refused}
    return {id(owner) for result, owner in zip(results, owners, strict=True) if id(result) in ids}


def fail_records(entries: Iterable[Entry], error: PublishError) -> None:
    """Tell what has made the calls for the records of these entries that their results are
    refused."""
    for entry in entries:
        _, target, content = entry
        if target is not None:
            target.refused(records_of(entry), error)
        elif isinstance(content, CallResults):
            content.refused(records_of(entry), error)
