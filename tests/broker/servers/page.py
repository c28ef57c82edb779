"""Writes the tables of ``docs/reference/brokers.md`` from the results of the last run.

python -m broker.servers.page
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.servers.outcome import CAPABILITIES, CLIENTS, Outcome, load
from broker.servers.reasons import REASONS, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

PAGE: Final = Path(__file__).parents[3] / "docs" / "reference" / "brokers.md"
BEGIN: Final = "<!-- servers: begin (written by python -m broker.servers.page) -->"
END: Final = "<!-- servers: end -->"
_NEVER: Final = "-"


def differences(outcome: Outcome, reasons: Iterable[Reason] = REASONS) -> list[str]:
    """Cells that are not filled and have no reason, and reasons for cells of ours that are filled:
    what peers fill may depend on chance, such as where they have committed."""
    stated = {
        (reason.server, capability, client)
        for reason in reasons
        for capability in reason.capabilities
        for client in reason.clients
    }
    problems: list[str] = []
    for server, found in outcome.servers.items():
        for capability, clients in found.cells.items():
            for client, error in clients.items():
                has_reason = (server, capability, client) in stated
                cell = f"{server}: {capability} by {client}"
                if error is not None and not has_reason:
                    problems.append(f"{cell} failed, and reasons.py does not say why: {error}")
                elif error is None and has_reason and client == CLIENTS[0]:
                    problems.append(f"{cell} works, and reasons.py says why it does not")
    return problems


def tables(outcome: Outcome, reasons: Iterable[Reason] = REASONS) -> str:
    """The table of brokers and capabilities, and the reasons below it."""
    reasons = tuple(reasons)
    return "\n".join([*_cells(outcome, reasons), "", *_reasons(outcome, reasons)])


def _cells(outcome: Outcome, reasons: tuple[Reason, ...]) -> Iterator[str]:
    tried = {name: found for name, found in outcome.servers.items() if found.cells}
    yield "| | " + " | ".join(_title(name, found.version) for name, found in tried.items()) + " |"
    yield "|---|" + "---|" * len(tried)
    for label, facts in (
        ("last run", [found.day for found in tried.values()]),
        *(
            (f"{peer} of that run", [found.clients[peer] for found in tried.values()])
            for peer in CLIENTS[1:]
        ),
    ):
        yield f"| {label} | " + " | ".join(facts) + " |"
    numbers: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, each in enumerate(_of(outcome, reasons), 1):
        for capability in each.capabilities:
            numbers[each.server, capability].append(number)
    for capability, words in CAPABILITIES.items():
        row = [
            _cell(found.cells.get(capability, {}), numbers[name, capability])
            for name, found in tried.items()
        ]
        yield f"| {words} | " + " | ".join(row) + " |"


def _title(name: str, version: str) -> str:
    """The version stands behind the server that has it: ``Kroxylicious 0.12.0, Kafka 4.4.0``."""
    return re.sub(", | with |$", rf" {version}\g<0>", name, count=1)


def _cell(clients: Mapping[str, str | None], numbers: Sequence[int]) -> str:
    marks = [
        _NEVER if client not in clients else "no" if clients[client] else "yes"
        for client in CLIENTS
    ]
    return " / ".join(marks) + (f" ({', '.join(map(str, numbers))})" if numbers else "")


def _of(outcome: Outcome, reasons: Iterable[Reason]) -> list[Reason]:
    """The reasons of servers that were run."""
    return [reason for reason in reasons if reason.server in outcome.servers]


def _reasons(outcome: Outcome, reasons: tuple[Reason, ...]) -> Iterator[str]:
    if reasons:
        yield "| | server | clients | why |"
        yield "|---|---|---|---|"
    for number, each in enumerate(_of(outcome, reasons), 1):
        who = ", ".join(each.clients)
        yield f"| {number} | {each.server} | {who} | {each.why} |"


def with_tables(page: str, outcome: Outcome) -> str:
    """The page with its tables written anew."""
    written = f"{BEGIN}\n{tables(outcome)}\n{END}"
    return re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: written, page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text("utf-8"), load()), "utf-8")
