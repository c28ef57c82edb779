"""What a run has found, as a page of tables and pictures."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from benchmarks.report.printing import spread
from benchmarks.report.surroundings import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

# As json has it.
Found: TypeAlias = "dict[str, Any]"


class Measure(NamedTuple):
    """One number of each client in each round."""

    title: str
    rounds: dict[str, list[float]]
    digits: int = 0


class Section(NamedTuple):
    """One scenario. Its first measure is drawn, and the ratio to ours is of it."""

    name: str
    title: str
    about: str
    ours: str
    measures: tuple[Measure, ...]
    # By client, or what else tells which of its turns, why there are none, or no more, of it.
    failed: dict[str, str]
    # Seconds and MiB, to be drawn instead.
    curve: tuple[tuple[float, float], ...] = ()
    # The medians of each measure by client, over a setting that is named by ``over``: as well.
    lines: tuple[dict[str, list[tuple[float, float]]], ...] = ()
    over: str = ""
    is_drawn: bool = True


# They have a page of their own.
EXACTLY_ONCE_FOLDER = "exactly-once"

_ABOUT = (
    "[How it is measured](../explanation/benchmarks.md#how-it-is-measured). Medians, and lowest to"
    " highest of all rounds. Machines differ: compare the rows. *Ours ÷ this* is of the first"
    " column: for rates more is better, for times less."
)

HANDLERS: dict[str, tuple[str, str]] = {
    "noop": (
        "Handlers that await nothing",
        "64 at once, uniform keys. Ours keeps the order of keys; aiokafka's bare loop calls none.",
    ),
    "noop-zipf": (
        "Handlers that await nothing, one hot key",
        "Every tenth record is of one key (Zipf), 64 handlers at once.",
    ),
    "noop-results": (
        "Handlers that publish one result each",
        "64 at once, uniform keys, and nothing else to await.",
    ),
    "slow": (
        "Handlers that await 5 ms",
        "512 at once, uniform keys: 102,400 records/s would be the end of it.",
    ),
    "zipf": (
        "Handlers that await 5 ms, one hot key",
        "512 at once. The order of keys allows no more than the hottest key's handlers in a row.",
    ),
    "latency": (
        "From sending to handling",
        "1,000 records/s, sent one by one.",
    ),
}


_RAW = {
    "raw": "Raw iteration",
    "large": "Large records",
    "large-100k": "Records of 100 kB",
    "large-10k": "Records of 10 kB",
    "raw-1k": "Records of 1 kB",
}


def write_report(results: Mapping[str, Found], folder: Path) -> None:
    """Write ``results.md`` and a picture for each of its sections into ``folder``; those of
    exactly-once results into a folder in it."""
    from benchmarks.report.pictures import draw

    parts: dict[Path, dict[str, Found]] = {folder: {}, folder / EXACTLY_ONCE_FOLDER: {}}
    for name, found in results.items():
        within = folder / EXACTLY_ONCE_FOLDER if name.startswith("exactly-once") else folder
        parts[within][name] = found
    for within, part in parts.items():
        if not part:
            continue
        within.mkdir(parents=True, exist_ok=True)
        # Links are relative.
        text = page(part)
        if within != folder:
            text = text.replace("# Results\n", "# Results of exactly-once handlers\n", 1)
            text = text.replace("](../", "](../../")
        (within / "results.md").write_text(text, encoding="utf-8")
        for section in sections(part):
            if _has_picture(section):
                draw(section, within / f"{section.name}.svg")


def page(results: Mapping[str, Found]) -> str:
    """The text of the page."""
    text = ["# Results", "", _ABOUT, ""]
    text += [f"{'; '.join(_surroundings(results))}."]
    for section in sections(results):
        text += ["", f"## {section.title}", "", section.about]
        if _has_picture(section):
            text += ["", f"![{section.title}]({section.name}.svg)"]
        if not section.curve:
            text += ["", _table(section)]
        measured = section.measures[0].rounds
        ended = {who: why for who, why in section.failed.items() if measured.get(who, [0.0])}
        if ended:
            text += ["", "Failed:", "", *(f"- {who}: {why}" for who, why in ended.items())]
    text += ["", "## Commands", ""]
    text += [f"- `{found['command']}`, {found['minutes']:.1f} min" for found in results.values()]
    return "\n".join(text) + "\n"


def _surroundings(results: Mapping[str, Found]) -> Iterator[str]:
    """Versions and the machine. Steps that were repeated elsewhere are named."""
    names = dict.fromkeys(name for found in results.values() for name in found["surroundings"])
    for name in names:
        steps: dict[str, list[str]] = {}
        for step, found in results.items():
            if name in found["surroundings"]:
                steps.setdefault(found["surroundings"][name], []).append(step)
        if len(steps) == 1:
            yield f"{name} {next(iter(steps))}"
        else:
            values = (f"{value} ({', '.join(names)})" for value, names in steps.items())
            yield f"{name} {', '.join(values)}"


def _has_picture(section: Section) -> bool:
    return section.is_drawn and (bool(section.curve) or any(section.measures[0].rounds.values()))


def _table(section: Section) -> str:
    first = section.measures[0]
    ours = _shown(first.rounds.get(section.ours, []), first.digits)
    header = ["", *(measure.title for measure in section.measures), "ours ÷ this"]
    rows: list[list[str]] = []
    for client, rounds in first.rounds.items():
        if rounds:
            cells = [spread(m.rounds[client], m.digits) for m in section.measures]
            this = _shown(rounds, first.digits)
            ratio = "" if ours is None or not this else f"{ours / this:.2f}"
            rows.append([client, *cells, ratio])
        elif client in section.failed:
            why = section.failed[client].replace("|", "\\|")
            blank = [""] * len(section.measures)
            rows.append([client, f"left out because {why}", *blank])
    return table(header, rows)


def _shown(values: list[float], digits: int) -> float | None:
    """The median as the table has it: a ratio of what is below its last digit means nothing."""
    return round(statistics.median(values), digits) if values else None


def sections(results: Mapping[str, Found]) -> Iterator[Section]:
    """What is to be shown, in order."""
    for name, found in results.items():
        yield from SECTIONS[name](name, found)


def _raw(name: str, found: Found) -> Iterator[Section]:
    size = found["size"]
    bulk = name.startswith("large")
    scale = size / 1e6 if bulk else 1.0
    unit = "MB" if bulk else "records"
    about = f"{found['records']:,} records of {size:,} bytes in 8 partitions, looked at in a loop."
    if bulk:
        about += " Clients that have a limit for one call take 10 MB."
    yield Section(
        name,
        _RAW[name],
        about,
        "asyncrevoke, async for",
        (
            Measure(f"{unit}/s", _scaled(found["records_per_second"], scale)),
            Measure(f"{unit} per second of CPU", _scaled(found["records_per_cpu_second"], scale)),
        ),
        _failed(found["failed"]),
        is_drawn=name in ("raw", "large"),
    )


def _scaled(rounds: Mapping[str, list[float]], scale: float) -> dict[str, list[float]]:
    return {client: [value * scale for value in values] for client, values in rounds.items()}


def _handlers(_name: str, found: Found) -> Iterator[Section]:
    failed = cast("dict[str, dict[str, str]]", found["failed"])
    for name, (title, about) in HANDLERS.items():
        if name not in found:
            continue
        columns = (("rate", "records/s", 1.0, 0), ("cpu_rate", "records per second of CPU", 1.0, 0))
        if name == "latency":
            columns = (("delay_p99", "p99, ms", 1e3, 2), ("delay_p50", "p50, ms", 1e3, 2))
        yield Section(
            name,
            title,
            about,
            "asyncrevoke, handlers by key",
            tuple(
                Measure(
                    label,
                    {
                        c: [m[key] * scale for m in candidate]
                        for c, candidate in found[name].items()
                    },
                    digits,
                )
                for key, label, scale, digits in columns
            ),
            _failed(failed.get(name, {})),
            is_drawn=name not in ("noop-results", "noop-zipf"),
        )
    curve = cast("list[tuple[float, float]]", found.get("memory", {}).get("seconds and MiB", []))
    if curve:
        yield Section(
            "memory",
            "Memory over time",
            "Of our process: 5,000 records/s with ever new keys, 512 handlers of 5 ms.",
            "",
            (Measure("MiB", {}),),
            {},
            tuple((at, size) for at, size in curve),
        )


def _stall(name: str, found: Found) -> Iterator[Section]:
    rows = cast("list[Found]", found["measured"])
    for drain in sorted({row["drain"] for row in rows}):
        mine = [row for row in rows if row["drain"] == drain]
        ending = f", drain {drain:g} s"
        failed = {w.removesuffix(ending): y for w, y in found["failed"].items() if ending in w}
        clients = list(dict.fromkeys([*(row["client"] for row in mine), *failed]))
        yield Section(
            f"{name}-{drain:g}",
            f"Stall of kept partitions, {drain:g} s of work to finish",
            "How much longer than before the longest gap between records of kept partitions was"
            " when a member joined.",
            "asyncrevoke cooperative-sticky",
            tuple(
                Measure(label, {c: [r[key] for r in mine if r["client"] == c] for c in clients}, 2)
                for key, label in (("stall", "stall, s"), ("first_record", "newcomer's first, s"))
            ),
            _failed(failed),
        )


def _join(name: str, found: Found) -> Iterator[Section]:
    yield Section(
        name,
        "A second member's first record",
        "Seconds from the start of a member that joins a running group to its first record.",
        "asyncrevoke cooperative-sticky",
        (Measure("seconds", found["measured"], 2),),
        _failed(found["failed"]),
    )


def _many(name: str, found: Found) -> Iterator[Section]:
    rows = cast("list[Found]", found["results"])
    labels = {id(row): f"{row['client']}, {row['partitions']} partitions" for row in rows}
    yield Section(
        name,
        "Many partitions of which ten are busy",
        "The same records in ten partitions, with and without quiet ones beside them; then idle.",
        max(labels.values(), key=lambda label: (label.startswith("asyncrevoke"), len(label))),
        (
            Measure("records/s", {labels[id(row)]: row["clock"] for row in rows}),
            Measure(
                "idle, % of a core",
                {labels[id(row)]: [100 * share for share in row["idle"]] for row in rows},
                2,
            ),
        ),
        _failed(found["failed"]),
    )


EXACTLY_ONCE: dict[str, tuple[str, str]] = {
    "noop": (
        "Results exactly once, handlers that await nothing",
        "64 at once, a transaction each 100 ms. Until all results are committed.",
    ),
    "slow": (
        "Results exactly once, handlers that await 5 ms",
        "512 at once; loops sleep 5 ms for each record.",
    ),
    "latency": (
        "From sending a record to its visible result",
        "1,000 records/s, a transaction each 100 ms. The reader has `read_committed`.",
    ),
    "intervals": (
        "Rate and latency over the interval between transactions",
        "Handlers that await nothing; the latency is that at 1,000 records/s.",
    ),
}


def _exactly_once(_name: str, found: Found) -> Iterator[Section]:
    failed = cast("dict[str, dict[str, str]]", found["failed"])
    for scenario, (title, about) in EXACTLY_ONCE.items():
        rows = cast("list[Found]", found.get(scenario, []))
        if not rows:
            continue
        several = scenario == "intervals"
        labels = [
            f"{row['client']}, {1000 * row['interval']:g} ms" if several else row["client"]
            for row in rows
        ]
        measures: list[Measure] = []
        for kind, key, label, scale, digits in (
            ("rates", "rate", "records/s", 1.0, 0),
            ("rates", "cpu_rate", "records per second of CPU", 1.0, 0),
            ("latencies", "delay_p99", "p99, ms", 1e3, 0),
            ("latencies", "delay_p50", "p50, ms", 1e3, 0),
        ):
            values = [[scale * each[key] for each in row[kind]] for row in rows]
            if any(values):
                measures.append(Measure(label, dict(zip(labels, values, strict=True)), digits))
        yield Section(
            f"exactly-once-{scenario}",
            title,
            about,
            labels[0],
            tuple(measures),
            _failed(failed.get(scenario, {})),
            lines=tuple(_lines(rows, measure, labels) for measure in measures) if several else (),
            over="seconds between transactions",
        )


def _lines(
    rows: list[Found], measure: Measure, labels: list[str]
) -> dict[str, list[tuple[float, float]]]:
    lines: dict[str, list[tuple[float, float]]] = {}
    for row, label in zip(rows, labels, strict=True):
        if values := measure.rounds[label]:
            point = (row["interval"], statistics.median(values))
            lines.setdefault(row["client"], []).append(point)
    return lines


def _exactly_once_stall(name: str, found: Found) -> Iterator[Section]:
    rows = cast("list[Found]", found["measured"])
    clients = list(dict.fromkeys([*(row["client"] for row in rows), *found["failed"]]))
    yield Section(
        name,
        f"Visible results of kept partitions, {found['drain']:g} s of work to finish",
        "The longest gap between visible results of kept partitions when a member joined, with a"
        f" transaction each {1000 * found['interval']:g} ms, and how much longer than before the"
        " longest gap between their handler calls was.",
        "asyncrevoke cooperative-sticky",
        tuple(
            Measure(label, {c: [r[key] for r in rows if r["client"] == c] for c in clients}, 2)
            for key, label in (
                ("visible_gap", "gap of results, s"),
                ("visible_gap_before", "the same before, s"),
                ("stall", "stall of handlers, s"),
                ("first_result", "newcomer's first result, s"),
            )
        ),
        _failed(found["failed"]),
    )


SHARE: dict[str, tuple[str, str]] = {
    "noop": (
        "Share groups, handlers that await nothing",
        "300,000 records in batches of 1,000; 500 at once or a poll, unless a row says otherwise.",
    ),
    "exact-100": (
        "Share groups, 128 records acquired at once, batches of 100",
        "Handlers that await nothing. The broker sends whole batches and acquires the rest later.",
    ),
    "exact-1000": (
        "Share groups, 128 records acquired at once, batches of 1,000",
        "The same records in larger batches, of which each is sent about eight times.",
    ),
    "slow-100": (
        "Share groups, handlers that await 20 ms, batches of 100",
        "256 at once: 12,800 records/s would be the end of it.",
    ),
    "slow-1000": (
        "Share groups, handlers that await 20 ms, batches of 1,000",
        "256 at once: 12,800 records/s would be the end of it.",
    ),
    "latency": (
        "Share groups, an idle group",
        "20 records/s. Until an acknowledgement is confirmed, and from sending to the handler.",
    ),
    "renewal": (
        "Share groups, handlers of twice the lock time",
        "1,000 records at once. Locks lost, and records that were delivered again.",
    ),
}
_SHARE_COLUMNS = {
    "latency": (
        ("acknowledged_p50", "acknowledgement p50, ms", 1e3, 2),
        ("delay_p50", "produce to handler p50, ms", 1e3, 2),
    ),
    "renewal": (("lost", "locks lost", 1.0, 0), ("again", "delivered again", 1.0, 0)),
}
_SHARE_RATES = (
    ("rate", "records/s", 1.0, 0),
    ("cpu_rate", "records per second of CPU", 1.0, 0),
    ("first", "first record, s", 1.0, 2),
    ("bytes_a_record", "bytes a record", 1.0, 0),
    ("requests_a_record", "requests a record", 1.0, 4),
    ("again", "delivered again", 1.0, 0),
)


def _share(_name: str, found: Found) -> Iterator[Section]:
    failed = cast("dict[str, dict[str, str]]", found["failed"])
    for scenario, (title, about) in SHARE.items():
        if scenario not in found:
            continue
        rows = cast("dict[str, list[Found]]", found[scenario])
        yield Section(
            f"share-{scenario}",
            title,
            about,
            "asyncrevoke",
            tuple(
                Measure(
                    label,
                    {client: [scale * m[key] for m in every] for client, every in rows.items()},
                    digits,
                )
                for key, label, scale, digits in _SHARE_COLUMNS.get(scenario, _SHARE_RATES)
            ),
            _failed(failed.get(scenario, {})),
            is_drawn=False,
        )


def _failed(why: Mapping[str, str]) -> dict[str, str]:
    """Reasons in one line each."""
    return {who: " ".join(reason.removeprefix(f"{who}: ").split()) for who, reason in why.items()}


SECTIONS = {
    **dict.fromkeys(_RAW, _raw),
    **dict.fromkeys((*HANDLERS, "memory"), _handlers),
    "stall": _stall,
    "join": _join,
    "many": _many,
    **dict.fromkeys(
        ("exactly-once", "exactly-once-latency", "exactly-once-intervals"), _exactly_once
    ),
    "exactly-once-stall": _exactly_once_stall,
    **dict.fromkeys(("share", "share-exact", "share-slow", "share-latency"), _share),
}
