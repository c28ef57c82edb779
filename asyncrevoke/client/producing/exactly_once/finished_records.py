"""Records whose handlers have ended, with the results that wait for a transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from asyncrevoke.client.errors import IllegalStateError
from asyncrevoke.client.producing.message import PublishedRecord
from asyncrevoke.client.producing.record_batch import record_bytes
from asyncrevoke.client.producing.trace_context import trace_headers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from asyncrevoke.client.core.commit.fitting_records import Finished
    from asyncrevoke.client.errors import PublishError
    from asyncrevoke.client.model import Record, TopicPartition
    from asyncrevoke.client.producing.message import RecordFields

# Gets the records of a call and the error if a broker has refused a result of it: they have left
# the transaction, and what has made the call decides what follows.
ResultsRefused: TypeAlias = Callable[["Sequence[Record]", "PublishError"], None]

_NO_HEADERS: Final[list[tuple[str, bytes | None]]] = []


class ResultTarget(NamedTuple):
    """Where the plain results of a handler go: to ``topic``, with the key and the trace context of
    the record."""

    topic: str
    handler: str
    refused: ResultsRefused


class CallResults(list[PublishedRecord]):
    """The results of one call, in the order of publishing.

    ``has_ended``: the call has, so what it publishes from now on could be in no transaction.
    """

    __slots__ = ("handler", "has_ended", "refused")

    def __init__(self, handler: str, refused: ResultsRefused) -> None:
        super().__init__()
        self.handler = handler
        self.refused = refused
        self.has_ended = False

    def check_open(self) -> None:
        """Raise IllegalStateError if the call has ended."""
        if self.has_ended:
            raise IllegalStateError(
                "the call has ended, and its results are in its transaction: await tasks that "
                "publish before the handler returns, or publish by a producer of your own"
            )


class DeadLetterResults(CallResults):
    """What goes to a dead letter topic or a retry topic in place of the results of a failed record.

    ``committed`` is called when the transaction is.
    """

    __slots__ = ("committed",)

    def __init__(self, refused: ResultsRefused, committed: Callable[[], None]) -> None:
        super().__init__("", refused)
        self.committed = committed


# A record, or records that enter a transaction together; then a target and the value for it, or
# None and the results of the call. A plain tuple, because one is made for each record.
Entry: TypeAlias = tuple[
    "Record | tuple[Record, ...]", ResultTarget | None, "bytes | Sequence[PublishedRecord]"
]


class FinishedRecords:
    """By offset tracker.

    ``count`` counts the records, ``size`` the bytes of their plain results and of the others' keys,
    values and headers.
    """

    def __init__(self) -> None:
        self._entries: dict[int, list[Entry]] = {}
        # The results of calls that have not ended, and of those that have, until their records are
        # finished.
        self._results: dict[Record, CallResults] = {}
        self.count = 0
        self.size = 0
        # Whether there was one, so that transactions look for others.
        self.has_dead_letters = False

    # --- adding ----------------------------------------------------------------------------------

    def begin_call(self, record: Record, handler: str, refused: ResultsRefused) -> CallResults:
        """A call of the handler begins: the results of an earlier call are dropped."""
        return self._begin(record, CallResults(handler, refused))

    def call_results(self, record: Record, handler: str, refused: ResultsRefused) -> CallResults:
        """The results of the call for a record, which begins with its first one."""
        results = self._results.get(record)
        return self.begin_call(record, handler, refused) if results is None else results

    def begin_dead_letter(
        self, record: Record, refused: ResultsRefused, committed: Callable[[], None]
    ) -> CallResults:
        """The record goes to another topic: the results of its calls are dropped."""
        self.has_dead_letters = True
        return self._begin(record, DeadLetterResults(refused, committed))

    def _begin(self, record: Record, results: CallResults) -> CallResults:
        self._end(record)
        self._results[record] = results
        return results

    def _end(self, record: Record) -> CallResults | None:
        """The call for a record has ended, or another one begins."""
        results = self._results.pop(record, None)
        if results is not None:
            results.has_ended = True
        return results

    def discard_results(self, records: Iterable[Record]) -> None:
        """The calls for these records have failed, or were given up."""
        if self._results:
            for record in records:
                self._end(record)

    def add_result(self, record: Record, target: ResultTarget, value: bytes) -> None:
        """The handler of a record has returned this value for the target, after what it has
        published."""
        if self._results and (results := self._end(record)):
            results.append(PublishedRecord(*_plain_result(record, target, value)))
            self._of(record.tracker_id).append((record, None, results))
            self.count += 1
            self.size += _bytes(results)
            return
        self._of(record.tracker_id).append((record, target, value))
        self.count += 1
        self.size += len(value)

    def add(self, records: Iterable[Record]) -> None:
        """The calls for these records have ended, with the results that they have published."""
        end = self._end if self._results else None
        for record in records:
            published: Sequence[PublishedRecord] = () if end is None else end(record) or ()
            self._of(record.tracker_id).append((record, None, published))
            self.count += 1
            if published:
                self.size += _bytes(published)

    def add_together(self, records: Sequence[Record], results: CallResults) -> None:
        """A call for all of these records has ended: they enter the same transaction."""
        results.has_ended = True
        if records:
            self._of(records[0].tracker_id).append((tuple(records), None, results))
            self.count += len(records)
            self.size += _bytes(results)

    def _of(self, tracker_id: int) -> list[Entry]:
        entries = self._entries.get(tracker_id)
        if entries is None:
            entries = self._entries[tracker_id] = []
        return entries

    # --- transactions ----------------------------------------------------------------------------

    def offsets(self) -> dict[int, list[Finished]]:
        """The offsets of all finished records by tracker id, in order: results of one key are
        written in the order of its records, whose calls may have been reported in another one."""
        for entries in self._entries.values():
            entries.sort(key=_first_offset)
        return {
            tracker_id: [
                tuple(record.offset for record in records)
                if isinstance(records, tuple)
                else records.offset
                for records, _, _ in entries
            ]
            for tracker_id, entries in self._entries.items()
        }

    def size_of(self, tracker_id: int, index: int) -> int:
        """The bytes of the results of one entry."""
        content = self._entries[tracker_id][index][2]
        return len(content) if isinstance(content, bytes) else _bytes(content)

    def take(
        self, chosen: Mapping[int, Sequence[int]], dropped: Mapping[int, Sequence[int]]
    ) -> tuple[dict[int, list[Entry]], dict[int, list[Entry]]]:
        """Remove the entries with these indices in :meth:`offsets`, and return both by tracker
        id."""
        found = self._entries_at(chosen), self._entries_at(dropped)
        if not (chosen or dropped):
            return found
        for tracker_id in {*chosen, *dropped}:
            left, these = self._entries.pop(tracker_id), chosen.get(tracker_id, ())
            others = dropped.get(tracker_id, ())
            if len(these) + len(others) < len(left):
                gone = {*these, *others}
                self._entries[tracker_id] = [
                    entry for index, entry in enumerate(left) if index not in gone
                ]
        self._recount()
        return found

    def _entries_at(self, indices: Mapping[int, Sequence[int]]) -> dict[int, list[Entry]]:
        found: dict[int, list[Entry]] = {}
        for tracker_id, of_tracker in indices.items():
            entries = self._entries[tracker_id]
            is_all = len(of_tracker) == len(entries)
            found[tracker_id] = entries if is_all else [entries[index] for index in of_tracker]
        return found

    def put_back(self, taken: Mapping[int, list[Entry]]) -> None:
        """These entries wait for another transaction."""
        for tracker_id, entries in taken.items():
            self._entries[tracker_id] = entries + self._entries.get(tracker_id, [])
        self._recount()

    def lose(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop what is of these partitions."""
        lost = frozenset(partitions)
        for tracker_id, entries in list(self._entries.items()):
            if entries and records_of(entries[0])[0].topic_partition in lost:
                del self._entries[tracker_id]
        for record in [record for record in self._results if record.topic_partition in lost]:
            self._end(record)
        self._recount()

    def records(self) -> list[Record]:
        """All finished records."""
        return records_in(self._entries)

    def _recount(self) -> None:
        self.count = self.size = 0
        for entries in self._entries.values():
            for records, _, content in entries:
                self.count += len(records) if isinstance(records, tuple) else 1
                self.size += len(content) if isinstance(content, bytes) else _bytes(content)


def result_counts(taken: Mapping[int, Iterable[Entry]]) -> Counter[tuple[str, str]]:
    """How many results there are by handler and topic."""
    counts: Counter[tuple[str, str]] = Counter()
    for entries in taken.values():
        for _, target, content in entries:
            if target is not None:
                counts[target.handler, target.topic] += 1
            elif isinstance(content, CallResults):
                counts.update((content.handler, result.topic) for result in content)
    return counts


def dead_letters(taken: Mapping[int, Iterable[Entry]]) -> list[DeadLetterResults]:
    """What is written to dead letter topics and retry topics."""
    return [
        content
        for entries in taken.values()
        for _, _, content in entries
        if isinstance(content, DeadLetterResults)
    ]


def _first_offset(entry: Entry) -> int:
    records = entry[0]
    return records[0].offset if isinstance(records, tuple) else records.offset


def records_in(taken: Mapping[int, Iterable[Entry]]) -> list[Record]:
    """The records of all these entries."""
    return [r for entries in taken.values() for entry in entries for r in records_of(entry)]


def records_of(entry: Entry) -> tuple[Record, ...]:
    """The records of an entry."""
    records = entry[0]
    return records if isinstance(records, tuple) else (records,)


def results_of(taken: Mapping[int, Iterable[Entry]]) -> list[RecordFields]:
    """The results of these entries, to be written."""
    results: list[RecordFields] = []
    append = results.append
    for entries in taken.values():
        for record, target, content in entries:
            if target is None:
                results += cast("Sequence[PublishedRecord]", content)
            else:
                append(_plain_result(cast("Record", record), target, cast("bytes", content)))
    return results


def owners_of(taken: Mapping[int, Iterable[Entry]]) -> list[Entry]:
    """The entry of each of :func:`results_of`."""
    return [
        entry
        for entries in taken.values()
        for entry in entries
        for _ in range(len(entry[2]) if entry[1] is None else 1)
    ]


def _plain_result(record: Record, target: ResultTarget, value: bytes) -> RecordFields:
    headers = trace_headers(record) if record.headers else _NO_HEADERS
    return target.topic, None, record.key, value, headers, None


def _bytes(results: Iterable[PublishedRecord]) -> int:
    return sum(record_bytes(result.key, result.value, result.headers) for result in results)
