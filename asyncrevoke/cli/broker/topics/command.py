"""``asyncrevoke topics``: options and output of the commands."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from asyncrevoke.cli.broker.command import topic_argument
from asyncrevoke.cli.broker.topics.reading import read
from asyncrevoke.cli.broker.topics.tables import show_topic, show_topics
from asyncrevoke.cli.options.connection_options import ConnectionOptions, connects
from asyncrevoke.cli.terminal import (
    FAILED,
    exit_on_errors,
    failed_with,
    print_error,
    print_line,
    print_value,
    table_console,
)
from asyncrevoke.client.config.topics import check_topics
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from asyncrevoke.broker.admin import Admin
    from asyncrevoke.cli.broker.topics.cluster_topics import TopicFacts, TopicSummary
    from asyncrevoke.client.config import ConsumerConfig

_Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="The topics.")]
_Timeout = Annotated[float, typer.Option(help="Seconds for each response.")]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON value.")]

# org.apache.kafka.common.protocol.Errors
_TOPIC_EXISTS = 36

topics = typer.Typer(
    help="List, describe, read, create and delete topics.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@topics.callback()
def options() -> None:
    """List, describe, read, create and delete topics."""


@topics.command("list")
@connects
def list_(
    *,
    internal: Annotated[
        bool, typer.Option("--internal", help="List the topics that Kafka keeps for itself too.")
    ] = False,
    connection: ConnectionOptions,
    timeout: _Timeout = 10.0,
    as_json: _Json = False,
) -> None:
    """List the topics that you may describe, with their partitions and replicas.

    *offline* counts partitions without a leader, *behind* those with a replica that is not in sync
    with its leader. The exit code is 0 if the topics are listed, 1 if no broker responds, 2 if an
    option is wrong.

    Example: `asyncrevoke topics list --bootstrap-servers kafka-1:9092`
    """
    with exit_on_errors():
        found = asyncio.run(_list(_config(connection, timeout), internal=internal))
    if as_json:
        print_value(found)
    elif found:
        show_topics(table_console(1000), found)
    else:
        print("there are no topics")


@topics.command()
@connects
def describe(
    names: _Names,
    *,
    connection: ConnectionOptions,
    timeout: _Timeout = 10.0,
    as_json: _Json = False,
) -> None:
    """Show the partitions of topics, with leader, replicas and offsets, and what is configured.

    Of the configuration, it shows what is set on the topic, not the defaults of the brokers. The
    exit code is 0 if the topics are shown, 1 if one does not exist or no broker responds, 2 if an
    argument is wrong.

    Example: `asyncrevoke topics describe orders`
    """
    with exit_on_errors():
        found = asyncio.run(_describe(_config(connection, timeout), _checked(names, "describe")))
    if as_json:
        print_value(found)
        return
    console = table_console(1000)
    for topic in found:
        show_topic(console, topic)


@topics.command()
@connects
def delete(
    names: _Names,
    *,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply/--dry-run", help="Delete the topics. Default: only show what is deleted."
        ),
    ] = False,
    connection: ConnectionOptions,
    timeout: _Timeout = 30.0,
    as_json: _Json = False,
) -> None:
    """Delete topics with all their records.

    Shows how many records there are, and deletes them with --apply. Nothing is deleted if one of
    the topics does not exist. The exit code is 0 if the topics are shown or deleted, 1 if not, 2 if
    an argument is wrong.

    Example: `asyncrevoke topics delete orders.retry --apply`
    """
    with exit_on_errors():
        config = _config(connection, timeout)
        found = asyncio.run(_describe(config, _checked(names, "delete")))
    failed: list[str] = []
    if apply:
        admin = _admin(config, timeout)
        failed = [topic.topic for topic in found if not _deleted(admin, topic.topic)]
    if as_json:
        print_value({"topics": found, "deleted": apply, "failed": failed})
    else:
        console = table_console(1000)
        for topic in found:
            if topic.topic not in failed:
                size = f"{counted(len(topic.partitions), 'partition')}, {_records(topic)}"
                verb = "deleted" if apply else "would delete"
                print_line(console, f"{verb} {topic.topic}: {size}")
        if not apply:
            print_line(console, "nothing was deleted: add --apply")
    if failed:
        raise typer.Exit(FAILED)


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
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            metavar="OPTION=VALUE",
            help="A topic option, such as cleanup.policy=compact; may be repeated.",
        ),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Let topics that exist be as they are.")
    ] = False,
    timeout: _Timeout = 30.0,
    connection: ConnectionOptions,
    as_json: _Json = False,
) -> None:
    """Create topics.

    A topic that exists does not change, and is an error without --if-not-exists. The exit code is 0
    if all topics were created, 1 if one was not or no broker responds, 2 if an option is wrong.

    Example: `asyncrevoke topics create orders:12 orders.dlq`
    """
    with exit_on_errors():
        wanted = dict(map(topic_argument, names))
        check_topics(tuple(wanted), "topics create")
        set_on_topics = _options(config or ())
        connecting = _config(connection, timeout)
    admin = _admin(connecting, timeout)
    counts = {name: count or partitions or -1 for name, count in wanted.items()}
    made = [
        _created(admin, name, count, replicas or -1, set_on_topics, may_exist=if_not_exists)
        for name, count in counts.items()
    ]
    if as_json:
        print_value([each for each in made if each is not None])
    else:
        for each in made:
            if each is not None:
                print(_said(each))
    if None in made:
        raise typer.Exit(FAILED)


def _created(
    admin: Admin,
    name: str,
    partitions: int,
    replicas: int,
    config: Mapping[str, str],
    *,
    may_exist: bool,
) -> dict[str, object] | None:
    """Create a topic. Prints the error and returns None if it was not, and may not exist."""
    from asyncrevoke.broker.errors import BrokerRequestError

    try:
        created = admin.create_topic(name, partitions, replicas, config)
    except (BrokerRequestError, OSError) as error:
        if may_exist and isinstance(error, BrokerRequestError) and error.code == _TOPIC_EXISTS:
            return {"topic": name, "created": False, "partitions": None}
        print_error(error)
        return None
    return {"topic": name, "created": True, "partitions": created if created > 0 else None}


def _said(made: Mapping[str, object]) -> str:
    name, count = made["topic"], made["partitions"]
    if not made["created"]:
        return f"{name} exists"
    return f"created {name}" + (
        f" with {counted(count, 'partition')}" if isinstance(count, int) else ""
    )


def _options(texts: Iterable[str]) -> dict[str, str]:
    """Raises ConfigError."""
    options: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise ConfigError(f"--config {text}: write OPTION=VALUE, cleanup.policy=compact")
        if name in options:
            raise ConfigError(f"--config {name} has two values")
        options[name] = value
    return options


def _checked(names: Sequence[str], command: str) -> list[str]:
    """The topics, each once. Raises ConfigError."""
    check_topics(tuple(names), f"topics {command}")
    return list(dict.fromkeys(names))


def _config(connection: ConnectionOptions, timeout: float) -> ConsumerConfig:
    return connection.config(request_timeout=timeout, client_id="asyncrevoke-topics")


async def _list(config: ConsumerConfig, *, internal: bool) -> list[TopicSummary]:
    from asyncrevoke.cli.broker.topics.cluster_topics import list_topics
    from asyncrevoke.client.groups.cluster import GroupsClient

    async with GroupsClient(config) as brokers:
        return await list_topics(brokers, internal=internal)


async def _describe(config: ConsumerConfig, names: Sequence[str]) -> list[TopicFacts]:
    from asyncrevoke.cli.broker.topics.cluster_topics import describe_topics
    from asyncrevoke.client.groups.cluster import GroupsClient

    async with GroupsClient(config) as brokers:
        return await describe_topics(brokers, names)


def _records(topic: TopicFacts) -> str:
    """How many offsets its partitions have: fewer records, if it is compacted."""
    known = [
        each.end - each.start
        for each in topic.partitions
        if each.start is not None and each.end is not None
    ]
    unknown = len(topic.partitions) - len(known)
    more = f", and {counted(unknown, 'partition')} without a leader that responds" * bool(unknown)
    return f"at most {counted(sum(known), 'record')}{more}"


def _deleted(admin: Admin, name: str) -> bool:
    from asyncrevoke.broker.errors import BrokerRequestError

    try:
        admin.delete_topic(name)
    except (BrokerRequestError, OSError) as error:
        print_error(error)
        return False
    return True


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


topics.command()(read)
