"""How every measurement is told: options, tables of medians, failures, and the surroundings."""

from __future__ import annotations

import argparse
import json
import os
import statistics
from typing import TYPE_CHECKING

from asyncrevoke.broker.installation.jars import KAFKA_VERSION
from benchmarks.report.surroundings import surroundings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class MeasurementError(Exception):
    """A client did not do what it should; the measurement of it says nothing."""


class Options(argparse.Namespace):
    """The options that most measurements have."""

    only: list[str] | None
    rounds: int
    json: bool
    cold: bool

    def chosen(self, clients: Iterable[str], ours: str = "") -> list[str]:
        """Those that ``--only`` names by a part of their names, and ``ours``."""
        only = self.only
        return [c for c in clients if not only or c == ours or any(o in c for o in only)]


def options_parser(
    description: str, rounds: int = 3, *, clients: Iterable[str] = (), warms_up: bool = True
) -> argparse.ArgumentParser:
    """A parser of these options."""
    parser = argparse.ArgumentParser(description=description)
    names = ", ".join(clients)
    of_which = f"of {names}" if names else "these clients beside ours"
    parser.add_argument("--only", nargs="+", metavar="NAME", help=of_which)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--json", action="store_true", help="for machines")
    if warms_up:
        parser.add_argument("--cold", action="store_true", help="no round to warm up")
    return parser


def spread(values: Sequence[float], digits: int = 0, nothing: str = "failed") -> str:
    """Median, lowest and highest."""
    if not values:
        return nothing
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def last_line(error: Exception) -> str:
    """What an error says at its end."""
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__


def tell(
    found: Mapping[str, object],
    failed: Mapping[str, object],
    tables: Iterable[str],
    about: str,
    *,
    as_json: bool,
) -> int:
    """Print what was found, or its tables, with the surroundings. Returns the exit code."""
    facts = surroundings(os.environ.get("KAFKA_HOME", KAFKA_VERSION))
    if as_json:
        print(json.dumps({"surroundings": facts, **found, "failed": failed}, indent=2))
    else:
        for text in tables:
            print(f"{text}\n")
        if about:
            print(about)
        print("\n".join(f"{name}: {value}" for name, value in facts.items()))
    return 1 if failed else 0
