"""``asyncrevoke handover``: commits the offsets of a Spark query for a group."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from asyncrevoke.cli.options.connection_options import ConnectionOptions, connects
from asyncrevoke.cli.options.option_groups import as_flags
from asyncrevoke.cli.terminal import (
    FAILED,
    add_row,
    exit_on_errors,
    failed_with,
    print_line,
    table_console,
)
from asyncrevoke.client.errors import AsyncRevokeError
from asyncrevoke.client.printable import printable

if TYPE_CHECKING:
    from asyncrevoke.spark.handovers.group_handover import Handover


@connects
def handover(
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="The query's checkpointLocation, a folder.")
    ],
    *,
    group: Annotated[str, typer.Option(help="The consumer group to commit for.")],
    topic: Annotated[
        str | None, typer.Option(help="Required if the offsets do not name their topic.")
    ] = None,
    sink: Annotated[
        str | None,
        typer.Option(help="The folder of the query's rows; batches in it count as completed."),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Commit. Default: only show the offsets.")
    ] = False,
    connection: ConnectionOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Let a consumer group continue where a streaming query of Spark has stopped.

    Shows, for each partition, the committed offset of the group, the new offset, and the offsets
    that the group would skip or repeat. In partitions that the checkpoint does not have, the group
    begins at the first offset, unless it has committed one. Stop the query and all members of the
    group first. The exit code is 0 if the offsets are shown, or committed and read back; 1 if they
    cannot be committed, 2 if an option or the folder is wrong.

    Example: `asyncrevoke handover /data/checkpoint --group billing --topic orders --apply`
    """
    from asyncrevoke.spark.errors import HandoverError
    from asyncrevoke.spark.handovers.group_handover import (
        apply_handover,
        check_committable,
        plan_handover,
    )

    with exit_on_errors(OSError, HandoverError):
        config = connection.config()
        plan = plan_handover(checkpoint, group=group, bootstrap=config, topic=topic, sink=sink)
    if not as_json:
        show(plan)
    try:
        check_committable(plan)
        if apply:
            apply_handover(plan, bootstrap=config)
    except AsyncRevokeError as error:
        raise failed_with(as_flags(error), FAILED) from error
    if as_json:
        print(as_json_text(plan, committed=apply))
    elif apply:
        print(f"committed for group {group}, and read back")
    else:
        print("nothing was committed: add --apply")


def as_json_text(plan: Handover, *, committed: bool) -> str:
    """A plan as one line of JSON. ``committed`` says whether it was applied."""
    moves = [
        {
            "topic": move.partition.topic,
            "partition": move.partition.partition,
            "from": move.before,
            "to": move.after,
            "skipped": move.skipped,
            "repeated": move.repeated,
            "new": move.new,
        }
        for move in plan.moves
    ]
    facts = {"group": plan.group, "state": plan.state, "moves": moves, "pending": plan.pending}
    return json.dumps({**facts, "committed": committed})


def show(plan: Handover) -> None:
    """Print a plan as a table."""
    console = table_console(200)
    title = printable(f"group {plan.group} ({plan.state.lower()})")
    table = Table(title=Text(title, style="table.title"))
    for name in ("partition", "from", "to", "skipped", "repeated"):
        table.add_column(name, justify="left" if name == "partition" else "right")
    for move in plan.moves:
        add_row(
            table,
            str(move.partition),
            "-" if move.before is None else str(move.before),
            str(move.after),
            str(move.skipped),
            str(move.repeated),
        )
    console.print(table)
    for move in plan.moves:
        if move.new:
            stays = "has committed" if move.before == move.after else "begins at its first offset"
            print_line(
                console,
                f"The checkpoint has no offset of {move.partition}: "
                f"the group {stays} {move.after}.",
            )
    if plan.pending is not None:
        console.print(
            f"Batch {plan.pending} of the query began and has not completed: the group handles its "
            "records again.",
            highlight=False,
        )
