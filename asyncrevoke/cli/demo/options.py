"""The options of ``asyncrevoke demo``."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from asyncrevoke.cli.demo.member.config import Client

MAX_STALL = 1.0


class GroupProtocolChoice(enum.StrEnum):
    """How members rebalance. Eager members release all partitions at each rebalance, other members
    only those that move. The leader assigns partitions, or with KIP-848 the coordinator."""

    EAGER = "eager"
    COOPERATIVE = "cooperative"
    CONSUMER = "consumer"


class ComparedClient(enum.StrEnum):
    """The client to compare with."""

    AIOKAFKA = "aiokafka"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """The options of the command."""

    seconds: Annotated[
        float, typer.Option(min=6, help="How long orders are produced and members come and go.")
    ] = 42
    rate: Annotated[float, typer.Option(min=1, max=5000, help="Orders per second.")] = 400
    protocol: Annotated[
        GroupProtocolChoice, typer.Option(help="How this library's members rebalance.")
    ] = GroupProtocolChoice.COOPERATIVE
    compare: Annotated[
        ComparedClient | None, typer.Option(help="Run the same schedule with this client, too.")
    ] = None
    kill: Annotated[bool, typer.Option(help="Kill the last member that leaves.")] = False
    max_stall: Annotated[
        float | None,
        typer.Option(
            help=f"Fail if a kept partition stalls for more than this many seconds. "
            f"Default: {MAX_STALL:g} with cooperative and consumer, no limit with eager."
        ),
    ] = None
    picture: Annotated[Path, typer.Option(help="Write the timeline to this SVG file.")] = Path(
        "asyncrevoke-demo.svg"
    )
    rebalance_picture: Annotated[
        Path | None, typer.Option(help="Draw the rebalance of the second member to this SVG file.")
    ] = None
    logs: Annotated[
        Path | None, typer.Option(help="Keep the members' logs of handler calls in this folder.")
    ] = None
    audit: Annotated[
        bool,
        typer.Option(
            "--audit", help="Audit the members' journals too; the demo fails if the audit does."
        ),
    ] = False
    open_page: Annotated[
        bool,
        typer.Option("--open", help="Show the group on a live page in a browser, until Ctrl-C."),
    ] = False
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, nothing else.")
    ] = False

    @property
    def clients(self) -> tuple[Client, ...]:
        """The clients of the groups. The first one decides the exit code."""
        return (Client.ASYNCREVOKE, Client.AIOKAFKA) if self.compare else (Client.ASYNCREVOKE,)

    @property
    def stall_limit(self) -> float | None:
        """The longest permitted stall of a kept partition, in seconds."""
        if self.max_stall is None and self.protocol is not GroupProtocolChoice.EAGER:
            return MAX_STALL
        return self.max_stall
