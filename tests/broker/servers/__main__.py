"""Starts real servers of Kafka's protocol, and runs the same programs of three clients on each.

    python -m broker.servers [--servers NAME ...] [--capabilities NAME ...] [--results FILE]

A cell that is not filled, and for which ``reasons.py`` states no reason, makes the run fail, as
does a reason for a cell that is filled. ``--results`` writes what was found;
``python -m broker.servers.page`` writes ``docs/reference/brokers.md`` from it.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import json
import os
import re
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from broker.servers.kinds import SERVERS
from broker.servers.outcome import CAPABILITIES, CLIENTS, Outcome, ServerOutcome, load, save
from broker.servers.page import differences
from broker.servers.programs.__main__ import capabilities
from broker.servers.programs.world import DEADLINE
from broker.servers.starting.process import CannotStartError

if TYPE_CHECKING:
    from collections.abc import Sequence

# Programs wait most of the time: for groups, for fetches.
AT_ONCE = 2
_TESTS = Path(__file__).parents[2]


async def cell(client: str, capability: str, arguments: Sequence[str], log: Path) -> str | None:
    """Run one program. None if it succeeded, or why not."""
    path = os.pathsep.join([str(_TESTS), str(_TESTS.parent)])
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "broker.servers.programs", client, capability, *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": path},
        )
    try:
        printed, _ = await asyncio.wait_for(process.communicate(), 1.5 * DEADLINE)
    except TimeoutError:
        process.kill()
        await process.wait()
        return f"not ended after {1.5 * DEADLINE:.0f} s"
    lines = printed.splitlines()
    if not lines:
        return f"the process ended with exit code {process.returncode}"
    error: str | None = json.loads(lines[-1])["error"]
    return error


async def server(name: str, wanted: Sequence[str], folder: Path) -> ServerOutcome:
    """All programs on one server."""
    kind = SERVERS[name]
    day = datetime.now(UTC).date().isoformat()
    cells: dict[str, dict[str, str | None]] = {each: {} for each in wanted}
    at_once = asyncio.Semaphore(AT_ONCE)

    async def run(client: str, capability: str, bootstrap: str) -> None:
        async with at_once:
            begun = time.monotonic()
            log = folder / f"{client}-{capability}.log"
            found = await cell(client, capability, (bootstrap, kind.creates_topics), log)
            cells[capability][client] = found
            took = f"{time.monotonic() - begun:.1f} s"
            print(f"{name}: {capability} by {client}: {found or 'yes'} ({took})", flush=True)

    try:
        pairs = [
            (client, capability)
            for capability in wanted
            for client in CLIENTS
            if capability in capabilities(client)
        ]
        async with kind.start(folder) as bootstrap, asyncio.TaskGroup() as tasks:
            for client, capability in pairs:
                if capability not in kind.alone:
                    tasks.create_task(run(client, capability, bootstrap))
        for client, capability in pairs:
            if capability in kind.alone:
                async with kind.start(folder) as bootstrap:
                    await run(client, capability, bootstrap)
    except CannotStartError as error:
        print(f"{name}: skipped: {error}", flush=True)
        return ServerOutcome(kind.version, skipped=str(error))
    ordered: dict[str, dict[str, str | None]] = {
        capability: {client: found[client] for client in CLIENTS if client in found}
        for capability, found in cells.items()
    }
    versions = {client: importlib.metadata.version(client) for client in CLIENTS}
    return ServerOutcome(kind.version, day, versions, ordered)


async def main() -> int:
    parser = argparse.ArgumentParser(description="The same programs on several servers.")
    parser.add_argument("--servers", nargs="+", default=list(SERVERS), choices=list(SERVERS))
    parser.add_argument(
        "--capabilities", nargs="+", default=list(CAPABILITIES), choices=list(CAPABILITIES)
    )
    parser.add_argument(
        "--results", type=Path, help="a file of results, which is brought up to date"
    )
    parser.add_argument("--folder", type=Path, help="keeps the logs of servers and programs")
    options = parser.parse_args()
    begun = time.monotonic()
    found: dict[str, ServerOutcome] = {}
    with tempfile.TemporaryDirectory(prefix="servers-") as scratch:
        for name in options.servers:
            folder = (options.folder or Path(scratch)) / re.sub(r"\W+", "-", name)
            folder.mkdir(parents=True, exist_ok=True)
            found[name] = await server(name, options.capabilities, folder)
    outcome = Outcome(found)
    if options.results is not None:
        save(_merged(outcome, options.results), options.results)
    problems = differences(outcome)
    cells = [
        error
        for candidate in found.values()
        for row in candidate.cells.values()
        for error in row.values()
    ]
    filled = sum(error is None for error in cells)
    print(f"{filled} of {len(cells)} cells filled in {(time.monotonic() - begun) / 60:.0f} min")
    print("\n".join(problems))
    return 1 if problems else 0


def _merged(outcome: Outcome, path: Path) -> Outcome:
    """With what the file says of servers and capabilities that were not run."""
    known = load(path).servers if path.exists() else {}
    servers: dict[str, ServerOutcome] = {}
    for name in SERVERS:
        now, before = outcome.servers.get(name), known.get(name)
        if now is None or now.skipped:
            if before or now:
                servers[name] = before or now or ServerOutcome("")
            continue
        cells = {**(before.cells if before else {}), **now.cells}
        ordered = {each: cells[each] for each in CAPABILITIES if each in cells}
        whole = before if before and len(now.cells) < len(CAPABILITIES) else now
        servers[name] = ServerOutcome(now.version, whole.day, whole.clients, ordered)
    return Outcome(servers)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
