"""What ``asyncrevoke dead-letters`` prints."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from rich.table import Table

from asyncrevoke.cli.options.option_groups import as_flags
from asyncrevoke.cli.terminal import add_row, print_value, table_console
from asyncrevoke.client.printable import counted, printable
from asyncrevoke.dead_letters.stored_dead_letter import NoDeadLetter, StoredDeadLetter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from asyncrevoke.dead_letters.listing import Listing, NamedRecord
    from asyncrevoke.dead_letters.replay import ReplayResult
    from asyncrevoke.dead_letters.reprocessing import ReprocessResult

# The most characters that are shown of a value or a key.
_LONGEST: Final = 100_000
# Records, and names of errors.
_NAMED: Final = 20


def print_letter(letter: StoredDeadLetter | NoDeadLetter, *, value: bool, as_json: bool) -> None:
    """Print a dead letter, with ``value`` also its key and value."""
    facts = _facts(letter, value=value)
    if as_json:
        print_value(facts)
        return
    for name, text in facts.items():
        if name == "headers":
            for header, content in letter.record.headers:
                print(f"  header {printable(header)}: {printable(_shown(content) or 'null')}")
        else:
            shown = printable("null" if text is None else str(text), _LONGEST)
            print(f"{name}: {shown}")
    print()


def _facts(letter: StoredDeadLetter | NoDeadLetter, *, value: bool) -> dict[str, object]:
    record = letter.record
    facts: dict[str, object] = {"dead_letter": f"{record.topic_partition} offset {record.offset}"}
    if isinstance(letter, NoDeadLetter):
        facts["no_dead_letter"] = letter.why
    else:
        facts |= {
            "origin": f"{letter.origin_topic}-{letter.origin_partition} offset "
            f"{letter.origin_offset}",
            "time": _shown_time(letter.origin_timestamp),
            "error_type": letter.error_type,
            "error_message": letter.error_message,
            "attempts": letter.attempts,
            "replays": letter.replays,
        }
    facts["headers"] = [[name, _shown(content)] for name, content in record.headers]
    if value:
        facts |= {"key": _shown(record.key), "value": _shown(record.value)}
    return facts


def _shown(content: bytes | None) -> str | None:
    return None if content is None else content.decode("utf-8", "backslashreplace")


def _shown_time(ms: int) -> str:
    if ms < 0:
        return ""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def print_listing(listing: Listing) -> None:
    """Print the counts of dead letters as a table."""
    table = Table("origin", "partition", "error", "count", "first", "last")
    for row in listing.rows:
        add_row(
            table,
            row.origin_topic,
            str(row.origin_partition),
            row.error_type,
            f"{row.count:,}",
            _shown_time(row.first_timestamp),
            _shown_time(row.last_timestamp),
        )
    if listing.rows:
        table_console(240).print(table)
    print(f"{counted(listing.count, 'dead letter')} in {listing.topic}")
    if listing.other:
        print(f"{listing.other:,} of them with other origins and errors")
    if listing.no_dead_letters:
        print(f"{counted(listing.no_dead_letters, 'other record')} in {listing.topic}")
        _print_named(listing.named)


def print_result(result: ReplayResult, *, dry_run: bool) -> None:
    """Print what a replay has sent, and why it has not sent the others."""
    what = "would be sent" if dry_run else "sent"
    where = ", ".join(f"{count:,} to {topic}" for topic, count in sorted(result.by_topic.items()))
    print(printable(f"{result.sent:,} {what}{f' ({where})' if where else ''}"))
    for planned in result.planned[:_NAMED]:
        origin = f"{planned.origin_topic}-{planned.origin_partition} offset {planned.origin_offset}"
        place = f"{planned.partition}:{planned.offset}"
        print(printable(f"  {place}: {origin} to {planned.to} ({planned.error_type})"))
    if result.sent > _NAMED and result.planned:
        print("  ...")
    if result.sent_before:
        print(f"{result.sent_before:,} sent before")
    if result.stopped:
        print("interrupted; start it again to continue")
    if result.not_sent:
        print(f"{result.not_sent:,} not sent")
        _print_named(result.named)


def print_reprocessed(result: ReprocessResult) -> None:
    """Print the outcomes of the handlers' calls."""
    outcomes = ", ".join(f"{n:,} {name}" for name, n in sorted(result.outcomes.items()))
    selected = counted(result.selected, "dead letter")
    print(printable(f"{selected}{f': {outcomes}' if outcomes else ''}"))
    _print_named(result.named)


def no_such_error(topic: str, errors: Iterable[str], others: Listing) -> str:
    """Why no dead letter was selected: the names of their errors are ``others``."""
    counts: dict[str, int] = {}
    for row in others.rows:
        counts[row.error_type] = counts.get(row.error_type, 0) + row.count
    most = sorted(counts, key=lambda name: (-counts[name], name))
    listed = ", ".join(f"{name} ({counts[name]:,})" for name in most[:_NAMED])
    more = ", ..." if len(most) > _NAMED else ""
    return f"no dead letter of {topic} has the error {' or '.join(sorted(errors))}: {listed}{more}"


def _print_named(named: Sequence[NamedRecord]) -> None:
    for letter in named[:_NAMED]:
        print(printable(f"  {letter.partition}:{letter.offset}: {as_flags(letter.why)}"))
    if len(named) > _NAMED:
        print("  ...")
