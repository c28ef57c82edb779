"""``asyncrevoke demo``: options, steps and output of the demo."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import json
import logging
import signal
import tempfile
import uuid
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from asyncrevoke.cli.audit import audit_topic, missing_packages, print_audit
from asyncrevoke.cli.broker.command import start_display
from asyncrevoke.cli.demo.display.live_view import View
from asyncrevoke.cli.demo.display.rebalance import draw_rebalance
from asyncrevoke.cli.demo.display.report import faults, print_json, print_result
from asyncrevoke.cli.demo.display.timeline import Panel, draw
from asyncrevoke.cli.demo.group import DemoGroup
from asyncrevoke.cli.demo.member.handler_log import Client, MemberConfig
from asyncrevoke.cli.demo.workload import churn
from asyncrevoke.cli.options.option_groups import takes
from asyncrevoke.cli.terminal import FAILED, USAGE, failed_with
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.errors import AsyncRevokeError
from asyncrevoke.web.pages.report_file import write_report_file

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from asyncrevoke.audit.results.audit_result import AuditResult
    from asyncrevoke.cli.demo.group_result import GroupResult

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
    exactly_once: Annotated[
        bool,
        typer.Option(
            "--exactly-once",
            help="Handlers publish a result for each order, in transactions; members are killed "
            "instead of leaving, and the visible results are counted.",
        ),
    ] = False
    max_stall: Annotated[
        float | None,
        typer.Option(
            help=f"Fail if a kept partition stalls for more than this many seconds. "
            f"Default: {MAX_STALL:g}; no limit with eager, nor with --exactly-once: a partition "
            "that moves as a member is killed may return to its owner after the session timeout."
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
    def kills(self) -> int:
        """How many of the members that leave are killed."""
        return 2 if self.exactly_once else int(self.kill)

    @property
    def stall_limit(self) -> float | None:
        """The longest permitted stall of a kept partition, in seconds."""
        is_limited = self.protocol is not GroupProtocolChoice.EAGER and not self.exactly_once
        return MAX_STALL if self.max_stall is None and is_limited else self.max_stall


PARTITIONS = 12
CONCURRENCY = 64
SESSION_TIMEOUT = 6.0
# Settings of the audit, in seconds: the longest handover that is not reported as a stall, and the
# longest time without progress in reading the topic.
AUDITED_STALL = 10.0
NO_PROGRESS_TIMEOUT = 30.0


@takes("options", DemoOptions)
def demo(*, options: DemoOptions) -> None:
    """Watch a group of consumers on a real Apache Kafka while its members join and leave.

    Starts a broker, produces keyed orders, and runs members as processes, whose handlers take 50 ms
    on average and sometimes 3 s. At the end, it reports the records that were lost, handled twice
    or out of order, and the longest stall of a partition that a member kept. It computes these from
    the members' logs of handler calls and the committed offsets. With --audit, it also compares the
    members' journals with the topic, and the exit code is 3 if that is inconclusive.

    With --exactly-once, handlers publish a result for each order in transactions, and SIGKILL ends
    the two members that leave. aiokafka then reads the results with read_committed: the demo
    reports those that are missing, visible twice or out of order.

    Example: `asyncrevoke demo --compare aiokafka`
    """
    messages = Console(stderr=True)
    if mistake := _mistake(options):
        raise failed_with(mistake, USAGE, messages)
    # aiokafka's producer logs each retry. It raises errors that it cannot retry.
    logging.getLogger("aiokafka").addHandler(logging.NullHandler())
    try:
        results, audited = _run(options, messages)
    except AsyncRevokeError as error:
        if options.as_json:
            print(json.dumps({"ok": False, "error": str(error)}), flush=True)
        raise failed_with(error, FAILED, messages) from error
    except KeyboardInterrupt:
        messages.print("stopped before the end, without a result")
        raise typer.Exit(FAILED) from None
    found = faults(results[options.clients[0]], max_stall=options.stall_limit)
    if options.as_json:
        print_json(results, found, options.picture, audited)
    else:
        print_result(results, found, options.picture)
        if audited is not None:
            print_audit(audited, messages)
    if found:
        raise typer.Exit(FAILED)
    if audited is not None:
        raise typer.Exit(audited.status.exit_code)


def _mistake(options: DemoOptions) -> str | None:
    """Why the demo cannot run with these options, or None."""
    if options.audit and (missing := missing_packages()):
        return f"--audit needs {missing}: pip install 'asyncrevoke[audit,demo]'"
    if options.protocol is GroupProtocolChoice.CONSUMER and (options.kill or options.exactly_once):
        option = "--exactly-once" if options.exactly_once else "--kill"
        return f"{option} kills members: use a protocol with shorter sessions than KIP-848's"
    return None


def _run(
    options: DemoOptions, messages: Console
) -> tuple[dict[Client, GroupResult], AuditResult | None]:
    """Run the groups, evaluate them and write the timeline."""
    from asyncrevoke.broker import start_broker
    from asyncrevoke.cli.demo.run import DemoRun

    steps = churn(options.seconds, kills=options.kills)
    with contextlib.ExitStack() as stack:
        folder = options.logs or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        with start_display(messages) as on_progress:
            broker = start_broker(on_progress=on_progress)
        stack.enter_context(contextlib.closing(broker))
        servers = broker.bootstrap_servers
        groups = [_group(client, servers, options, folder) for client in options.clients]
        for group in groups:
            broker.create_topic(group.topic, PARTITIONS)
            if group.results is not None:
                broker.create_topic(group.results, PARTITIONS)
        view = View(groups, steps, options.seconds, messages, live=not options.as_json)
        stack.enter_context(view)
        run = DemoRun(
            servers, groups, steps, seconds=options.seconds, rate=options.rate, show=view.show
        )

        async def judged() -> dict[Client, GroupResult]:
            if options.open_page:
                async with _live_page(servers, groups[0].name, messages):
                    await run.run()
                    messages.print("the page stays open: Ctrl-C ends it, and shows the result")
                    await _interrupted()
            else:
                await run.run()
            return {group.client: await run.result(group, CONCURRENCY) for group in groups}

        results = asyncio.run(judged())
        audited = _audited(servers, groups[0], folder) if options.audit else None
    panels = _panels(groups, results)
    write_report_file(options.picture, draw(panels, run.begin))
    if options.rebalance_picture is not None:
        write_report_file(options.rebalance_picture, draw_rebalance(panels[::-1], run.begin))
    return results, audited


def _audited(bootstrap_servers: str, group: DemoGroup, folder: Path) -> AuditResult:
    from asyncrevoke.audit.audited_group import AuditSettings
    from asyncrevoke.audit.results.report import write_report

    audited = asyncio.run(
        audit_topic(
            folder / "journal",
            group.topic,
            ConsumerConfig(bootstrap_servers=bootstrap_servers),
            group.name,
            AuditSettings(stall=AUDITED_STALL),
            NO_PROGRESS_TIMEOUT,
            results=() if group.results is None else (group.results,),
        )
    )
    write_report(audited, folder / "audit")
    return audited


def _group(client: Client, bootstrap_servers: str, options: DemoOptions, folder: Path) -> DemoGroup:
    run = uuid.uuid4().hex[:8]
    template = MemberConfig(
        client=client,
        name="",
        bootstrap_servers=bootstrap_servers,
        topic=f"demo-orders-{client}-{run}",
        group=f"demo-billing-{client}-{run}",
        log="",
        protocol=options.protocol.value,
        concurrency=CONCURRENCY,
        session_timeout=SESSION_TIMEOUT,
        journal=str(folder / "journal") if options.audit else None,
        strict=bool(options.kills),
        results=f"demo-invoices-{client}-{run}" if options.exactly_once else None,
    )
    return DemoGroup(template, folder, PARTITIONS)


@contextlib.asynccontextmanager
async def _live_page(bootstrap_servers: str, group: str, messages: Console) -> AsyncGenerator[None]:
    """Serve the dashboard of a group, and open it in a browser. Raises ConfigError."""
    from asyncrevoke.web.dashboard.group_watch import GroupWatch
    from asyncrevoke.web.dashboard.history import History
    from asyncrevoke.web.dashboard.server import served

    history = History(group)
    config = ConsumerConfig(bootstrap_servers=bootstrap_servers, client_id="demo-page")
    async with served(history) as address:
        messages.print(f"live page: {address}", highlight=False)
        await asyncio.to_thread(webbrowser.open, address)
        watching = asyncio.create_task(GroupWatch(config, group, history).run())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.wait((watching,))
        if not watching.cancelled():
            watching.result()


async def _interrupted() -> None:
    """Wait for SIGINT."""
    loop = asyncio.get_running_loop()
    interrupted = asyncio.Event()
    before = signal.signal(
        signal.SIGINT, lambda _number, _frame: loop.call_soon_threadsafe(interrupted.set)
    )
    try:
        await interrupted.wait()
    finally:
        signal.signal(signal.SIGINT, before)


def _panels(groups: Sequence[DemoGroup], results: dict[Client, GroupResult]) -> list[Panel]:
    return [
        Panel(
            title=group.client.value,
            steps=group.steps,
            handled=group.handled,
            died=group.died,
            result=results[group.client],
        )
        for group in groups
    ]
