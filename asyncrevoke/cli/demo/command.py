"""``asyncrevoke demo``."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import json
import logging
import sys
import tempfile
import uuid
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.live import Live

from asyncrevoke.cli.audit import audit_topic, missing_packages, tell
from asyncrevoke.cli.broker_startup import StartDisplay
from asyncrevoke.cli.demo.display.live_view import render
from asyncrevoke.cli.demo.display.report import facts, faults, table
from asyncrevoke.cli.demo.display.timeline import Panel, draw
from asyncrevoke.cli.demo.group import DemoGroup
from asyncrevoke.cli.demo.member.config import Client, MemberConfig
from asyncrevoke.cli.demo.schedule import churn
from asyncrevoke.cli.terminal import print_error, print_line
from asyncrevoke.config import ConsumerConfig
from asyncrevoke.errors import AsyncRevokeError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Sequence

    from asyncrevoke.audit.comparison import AuditResult
    from asyncrevoke.cli.demo.judge import GroupResult
    from asyncrevoke.cli.demo.run import DemoRun
    from asyncrevoke.cli.demo.schedule import ScheduleStep

PARTITIONS = 12
CONCURRENCY = 64
SESSION_TIMEOUT = 6.0
MAX_STALL = 1.0
# Of the audit: a handover that takes longer, and how long its reader waits for the topic.
AUDITED_STALL = 10.0
PATIENCE = 30.0


class GroupProtocolChoice(enum.StrEnum):
    """How partitions change hands: all are given up at each rebalance, or only those that move, as
    the group's leader or (KIP-848) its coordinator says."""

    EAGER = "eager"
    COOPERATIVE = "cooperative"
    CONSUMER = "consumer"


class ComparedClient(enum.StrEnum):
    """What to run beside this library."""

    AIOKAFKA = "aiokafka"


def demo(
    *,
    seconds: Annotated[
        float, typer.Option(min=6, help="How long orders are produced and members come and go.")
    ] = 42,
    rate: Annotated[float, typer.Option(min=1, max=5000, help="Orders per second.")] = 400,
    protocol: Annotated[
        GroupProtocolChoice, typer.Option(help="How this library's members rebalance.")
    ] = GroupProtocolChoice.COOPERATIVE,
    compare: Annotated[
        ComparedClient | None,
        typer.Option(help="Run the same schedule with this consumer beside it."),
    ] = None,
    kill: Annotated[bool, typer.Option(help="The last leave is a SIGKILL.")] = False,
    max_stall: Annotated[
        float | None,
        typer.Option(
            help=f"Fail if a kept partition stands still longer than this many seconds; "
            f"{MAX_STALL:g} with cooperative and consumer, no limit with eager."
        ),
    ] = None,
    picture: Annotated[Path, typer.Option(help="Where the timeline is written, as SVG.")] = Path(
        "asyncrevoke-demo.svg"
    ),
    logs: Annotated[
        Path | None, typer.Option(help="Keep what the members wrote down in this folder.")
    ] = None,
    audit: Annotated[
        bool,
        typer.Option(
            "--audit", help="End with an audit of the members' journals; it decides, too."
        ),
    ] = False,
    open_page: Annotated[
        bool, typer.Option("--open", help="Show the group on a live page in a browser.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, nothing else.")] = False,
) -> None:
    """Watch a group of consumers on a real Apache Kafka while its members join and leave.

    Starts a broker, produces keyed orders, and runs members as processes, whose handlers take
    50 ms on average and sometimes 3 s. At the end a judge tells what was lost, handled twice or
    out of order, and how long a partition that a member kept stood still, from what the handlers
    wrote down and the group committed. With --audit, journals of the members are compared with
    the topic as well, and the exit code is 3 if that is inconclusive.

    Example: `asyncrevoke demo --compare aiokafka`
    """
    messages = Console(stderr=True)
    if audit and (missing := missing_packages()):
        print_error(
            f"--audit needs {missing}: pip install 'asyncrevoke[audit,demo]'",
            messages,
        )
        raise typer.Exit(2)
    from asyncrevoke.broker import start_broker
    from asyncrevoke.cli.demo.run import DemoRun

    # What its producer retries is no news for the terminal; what it cannot do is raised.
    logging.getLogger("aiokafka").addHandler(logging.NullHandler())
    if kill and protocol is GroupProtocolChoice.CONSUMER:
        messages.print("error: --kill needs a session shorter than KIP-848's: leave one out")
        raise typer.Exit(2)
    if max_stall is None and protocol is not GroupProtocolChoice.EAGER:
        max_stall = MAX_STALL
    steps = churn(seconds, kill=kill)
    clients = [Client.ASYNCREVOKE] + ([Client.AIOKAFKA] if compare else [])
    try:
        with contextlib.ExitStack() as stack:
            folder = logs or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            folder.mkdir(parents=True, exist_ok=True)
            with StartDisplay(messages) as display:
                broker = start_broker(on_progress=display.downloaded)
            stack.enter_context(contextlib.closing(broker))
            groups = [
                _group(
                    client,
                    broker.bootstrap_servers,
                    protocol.value,
                    folder,
                    journal=folder / "journal" if audit else None,
                    strict=kill,
                )
                for client in clients
            ]
            for group in groups:
                broker.create_topic(group.topic, PARTITIONS)
            view = stack.enter_context(_view(groups, steps, seconds, messages, live=not as_json))
            run = DemoRun(
                broker.bootstrap_servers, groups, steps, seconds=seconds, rate=rate, show=view.show
            )
            page = (
                _LivePage(broker.bootstrap_servers, groups[0].name, messages) if open_page else None
            )
            verdicts = asyncio.run(_judged(run, groups, page))
            audited = _audited(broker.bootstrap_servers, groups[0], folder) if audit else None
    except AsyncRevokeError as error:
        if as_json:
            print(json.dumps({"ok": False, "error": str(error)}), flush=True)
        print_error(error, messages)
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        messages.print("stopped before the end: no judgement")
        raise typer.Exit(1) from None
    picture.write_text(draw(_panels(groups, verdicts), run.begin), "utf-8")
    wrong = faults(verdicts[clients[0]], max_stall=max_stall)
    if as_json:
        _print_json(verdicts, wrong, picture, audited)
    else:
        _print_result(verdicts, wrong, picture)
        if audited is not None:
            tell(audited, messages)
    if wrong:
        raise typer.Exit(1)
    if audited is not None:
        raise typer.Exit(audited.verdict.exit_code)


def _audited(bootstrap_servers: str, group: DemoGroup, folder: Path) -> AuditResult:
    from asyncrevoke.audit.comparison import AuditSettings
    from asyncrevoke.audit.report import write_report

    audited = asyncio.run(
        audit_topic(
            folder / "journal",
            group.topic,
            ConsumerConfig(bootstrap_servers=bootstrap_servers),
            group.name,
            AuditSettings(stall=AUDITED_STALL),
            PATIENCE,
        )
    )
    write_report(audited, folder / "audit")
    return audited


def _group(
    client: Client,
    bootstrap_servers: str,
    protocol: Literal["eager", "cooperative", "consumer"],
    folder: Path,
    *,
    journal: Path | None,
    strict: bool,
) -> DemoGroup:
    run = uuid.uuid4().hex[:8]
    template = MemberConfig(
        client=client,
        name="",
        bootstrap_servers=bootstrap_servers,
        topic=f"demo-orders-{client}-{run}",
        group=f"demo-billing-{client}-{run}",
        log="",
        protocol=protocol,
        concurrency=CONCURRENCY,
        session_timeout=SESSION_TIMEOUT,
        journal=None if journal is None else str(journal),
        strict=strict,
    )
    return DemoGroup(template, folder, PARTITIONS)


class _LivePage:
    """The live page of a group, while the demo runs."""

    def __init__(self, bootstrap_servers: str, group: str, messages: Console) -> None:
        self._config = ConsumerConfig(bootstrap_servers=bootstrap_servers, client_id="demo-page")
        self._group = group
        self._messages = messages

    @contextlib.asynccontextmanager
    async def shown(self) -> AsyncGenerator[None]:
        """Serve and open it. Raises ConfigError."""
        from asyncrevoke.dashboard.group_watch import GroupWatch
        from asyncrevoke.dashboard.history import History
        from asyncrevoke.dashboard.server import served

        history = History(self._group)
        async with served(history) as address:
            self._messages.print(f"live page: {address}", highlight=False)
            await asyncio.to_thread(webbrowser.open, address)
            watching = asyncio.create_task(GroupWatch(self._config, self._group, history).run())
            try:
                yield
            finally:
                watching.cancel()
                await asyncio.wait((watching,))


async def _judged(
    run: DemoRun, groups: Sequence[DemoGroup], page: _LivePage | None
) -> dict[Client, GroupResult]:
    async with contextlib.nullcontext() if page is None else page.shown():
        await run.run()
    return {group.client: await run.verdict(group, CONCURRENCY) for group in groups}


class _View:
    """Shows the run on a terminal, or tells each step on a line."""

    def __init__(
        self,
        groups: Sequence[DemoGroup],
        steps: Sequence[ScheduleStep],
        seconds: float,
        console: Console,
    ) -> None:
        self._groups, self._steps, self._seconds = groups, steps, seconds
        self._console = console
        self._told = 0
        self.live: Live | None = None

    def show(self, elapsed: float) -> None:
        """Called several times a second."""
        if self.live is not None:
            self.live.update(
                render(self._groups, self._steps, elapsed, self._seconds), refresh=True
            )
            return
        done = self._groups[0].steps
        for step in done[self._told :]:
            self._console.print(f"{step.at:5.1f} s  {step.member} {step.action}", highlight=False)
        self._told = len(done)


@contextlib.contextmanager
def _view(
    groups: Sequence[DemoGroup],
    steps: Sequence[ScheduleStep],
    seconds: float,
    messages: Console,
    *,
    live: bool,
) -> Generator[_View]:
    view = _View(groups, steps, seconds, messages)
    if not (live and messages.is_terminal):
        yield view
        return
    with Live(console=messages, auto_refresh=False) as screen:
        view.live = screen
        yield view


def _panels(groups: Sequence[DemoGroup], verdicts: dict[Client, GroupResult]) -> list[Panel]:
    return [
        Panel(
            title=group.client.value,
            steps=group.steps,
            handled=group.handled,
            died=group.died,
            verdict=verdicts[group.client],
        )
        for group in groups
    ]


def _print_json(
    verdicts: dict[Client, GroupResult],
    wrong: list[str],
    picture: Path,
    audited: AuditResult | None,
) -> None:
    ok = {client: not wrong if client is Client.ASYNCREVOKE else True for client in verdicts}
    result: dict[str, object] = {
        "ok": not wrong,
        "faults": wrong,
        "picture": str(picture),
        **{client.value: facts(verdict, ok=ok[client]) for client, verdict in verdicts.items()},
    }
    if audited is not None:
        from asyncrevoke.audit.report import counts

        result["audit"] = {
            "verdict": audited.verdict,
            "read": audited.read,
            "done": audited.done,
            "found": counts(audited.anomalies),
        }
        result["ok"] = not wrong and audited.verdict.exit_code == 0
    json.dump(result, sys.stdout)
    print(flush=True)


def _print_result(verdicts: dict[Client, GroupResult], wrong: list[str], picture: Path) -> None:
    console = Console()
    console.print(table({client.value: verdict for client, verdict in verdicts.items()}))
    print_line(console, f"timeline: {picture}")
    if wrong:
        console.print(f"asyncrevoke failed: {'; '.join(wrong)}", style="bold red", highlight=False)
