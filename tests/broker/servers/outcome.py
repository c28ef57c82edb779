"""What a run has found: server by server, whether each client has each capability."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

RESULTS: Final = Path(__file__).parent / "results.json"
CLIENTS: Final = ("asyncrevoke", "aiokafka", "confluent-kafka")

# In the order of the page, with the words of the page.
CAPABILITIES: Final = {
    "loop": "a loop reads a topic in a group",
    "two_members": "two members share a topic; one leaves",
    "restart": "commit, and continue after a restart",
    "seek_by_time": "seek to the offsets of a time",
    "pattern": "topics by a pattern, also later ones",
    "static_member": "a static member restarts",
    "handlers": "handlers, by key",
    "results": "publish with an idempotent producer",
    "retry_topic": "retry topic and dead letters",
    "completion_map": "completion map after a kill",
    "kip848": 'a group by KIP-848 (`"consumer"`)',
    "auto": '`group_protocol="auto"`',
    "topics": "create topics",
    "groups": "describe and list groups",
}


class ServerOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """One server: by capability and client None if it worked, or what was reported."""

    version: str
    day: str = ""
    """Of the last run with every capability, as ``2026-11-29``."""
    clients: dict[str, str] = {}
    """The versions of the clients in that run."""
    cells: dict[str, dict[str, str | None]] = {}
    skipped: str = ""
    """Why the server was not started."""


class Outcome(msgspec.Struct, frozen=True):
    """The servers by name."""

    servers: dict[str, ServerOutcome]


def load(path: Path = RESULTS) -> Outcome:
    return msgspec.json.decode(path.read_bytes(), type=Outcome)


def save(outcome: Outcome, path: Path = RESULTS) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(outcome), indent=1) + b"\n")
