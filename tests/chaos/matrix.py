"""The matrix of faults and protocols in docs/reference/guarantees.md, from what was measured.

``python -m chaos --matrix`` measures: ``measured.json`` keeps each cell until it is measured again.
A fault that is not the cluster's own is measured on the fewest brokers that it makes sense with.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from chaos.environment.group import PROTOCOLS
from chaos.scenario import FAULTS, Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.faults.fault import Fault
    from chaos.run import Outcome

MEASURED = Path(__file__).parent / "measured.json"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "guarantees.md"
BEGIN = "<!-- chaos: begin (written by tests/chaos/matrix.py) -->"
END = "<!-- chaos: end -->"
TITLES = {"cooperative": "cooperative-sticky", "eager": "`range` (eager)", "consumer": "KIP-848"}
# Measured on three brokers as well.
_ALSO_ON_THREE = ("broker-kill", "broker-restart", "black-hole")


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One run; ``stall`` is in seconds."""

    fault: str
    brokers: int
    protocol: str
    lost: int
    repeated: int
    out_of_order: int
    stall: float
    kept: bool

    @property
    def text(self) -> str:
        """As the page has it; bold if the run was not as it should be."""
        text = f"{self.lost} / {self.repeated} / {self.out_of_order} / {self.stall:.1f} s"
        return text if self.kept else f"**{text}**"


def cell_of(outcome: Outcome, brokers: int) -> Cell:
    """What was measured in a run of one fault."""
    (fault,) = outcome.scenario.faults
    found = outcome.check_run
    return Cell(
        fault=fault.name,
        brokers=brokers,
        protocol=outcome.scenario.protocol,
        # What was never handled is lost to its users.
        lost=found.lost + found.unhandled,
        repeated=found.repeated,
        out_of_order=found.out_of_order,
        stall=round(found.longest_stall, 1),
        kept=not found.faults,
    )


def rows() -> list[tuple[type[Fault], int]]:
    """Faults, with the number of brokers."""
    found = [(fault, fault.brokers) for fault in FAULTS.values()]
    return found + [(FAULTS[name], 3) for name in _ALSO_ON_THREE]


def scenarios(size: int, seed: int) -> Iterator[Scenario]:
    """All cells of so many brokers."""
    for fault, brokers in rows():
        if brokers == size:
            for protocol in PROTOCOLS:
                yield Scenario(seed, protocol, (fault,))


def measured() -> list[Cell]:
    """What was measured, one cell for each fault, number of brokers and protocol."""
    return msgspec.json.decode(MEASURED.read_bytes(), type=list[Cell])


def table(cells: list[Cell]) -> str:
    """Markdown."""
    known = {(cell.fault, cell.brokers, cell.protocol): cell.text for cell in cells}
    lines = [
        "| fault | brokers | " + " | ".join(TITLES[protocol] for protocol in PROTOCOLS) + " |",
        "|---|---|" + "---|" * len(PROTOCOLS),
    ]
    for fault, brokers in rows():
        texts = [known.get((fault.name, brokers, each), "not measured") for each in PROTOCOLS]
        lines.append(f"| `{fault.name}`: {fault.title} | {brokers} | {' | '.join(texts)} |")
    return "\n".join(lines)


def page(text: str, cells: list[Cell]) -> str:
    """The page with this matrix."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table(cells)}\n\n{END}{after}"


def write(cells: list[Cell]) -> None:
    """Put these cells into what was measured, and write the page."""
    by_name = {(c.fault, c.brokers, c.protocol): c for c in [*measured(), *cells]}
    together = [
        by_name[name]
        for fault, brokers in rows()
        for protocol in PROTOCOLS
        if (name := (fault.name, brokers, protocol)) in by_name
    ]
    encoded = msgspec.json.format(msgspec.json.encode(together), indent=1)
    MEASURED.write_bytes(encoded + b"\n")
    PAGE.write_text(page(PAGE.read_text("utf-8"), together), "utf-8")


def main() -> None:
    """Write the page of what was measured."""
    write([])


if __name__ == "__main__":
    main()
