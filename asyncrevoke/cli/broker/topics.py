"""``asyncrevoke topics``: creates topics."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from asyncrevoke.cli.broker.command import topic_argument
from asyncrevoke.cli.options.connection_options import ConnectionOptions, connects
from asyncrevoke.cli.terminal import FAILED, exit_on_errors, failed_with, print_error
from asyncrevoke.client.config.topics import check_topics
from asyncrevoke.client.printable import counted

if TYPE_CHECKING:
    from asyncrevoke.broker.admin import Admin
    from asyncrevoke.client.config import ConsumerConfig

topics = typer.Typer(
    help="Create topics on a broker.", no_args_is_help=True, rich_markup_mode="markdown"
)


@topics.callback()
def options() -> None:
    """Create topics on a broker."""


@topics.command()
@connects
def create(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME[:PARTITIONS]...", help="The topics to create.")
    ],
    *,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="For names without a number. Default: the broker's.")
    ] = None,
    replicas: Annotated[
        int | None, typer.Option(min=1, help="Copies of each partition. Default: the broker's.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds for each response.")] = 30.0,
    connection: ConnectionOptions,
) -> None:
    """Create topics.

    A topic that exists does not change, and is an error. The exit code is 0 if all topics were
    created, 1 if one was not or no broker responds, 2 if an option is wrong.

    Example: `asyncrevoke topics create orders:12 orders.dlq`
    """
    from asyncrevoke.broker.errors import BrokerRequestError

    with exit_on_errors():
        wanted = dict(map(topic_argument, names))
        check_topics(tuple(wanted), "topics create")
        config = connection.config(request_timeout=timeout, client_id="asyncrevoke-topics")
    admin = _admin(config, timeout)
    failed = False
    for name, count in wanted.items():
        try:
            created = admin.create_topic(name, count or partitions or -1, replicas or -1, {})
        except (BrokerRequestError, OSError) as error:
            print_error(error)
            failed = True
        else:
            size = f" with {counted(created, 'partition')}" if created > 0 else ""
            print(f"created {name}{size}")
    if failed:
        raise typer.Exit(FAILED)


def _admin(config: ConsumerConfig, timeout: float) -> Admin:
    """An admin for the first bootstrap server that responds."""
    from asyncrevoke.broker.admin import Admin

    why: OSError | None = None
    for server in config.bootstrap_servers:
        admin = Admin(replace(config, bootstrap_servers=server), timeout)
        try:
            admin.brokers()
        except OSError as error:
            why = error
        else:
            return admin
    raise failed_with(f"no broker responds at {', '.join(config.bootstrap_servers)}: {why}", FAILED)
