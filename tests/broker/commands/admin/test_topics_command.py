"""``asyncrevoke topics create`` on a real broker."""

from __future__ import annotations

import socket
import uuid
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from asyncrevoke.broker.admin import Admin, wait_for_topic
from asyncrevoke.cli.app import app

if TYPE_CHECKING:
    from typer.testing import Result

    from asyncrevoke.broker import RunningBroker


def create(servers: str, *arguments: str) -> Result:
    command = ["topics", "create", *arguments, "--bootstrap-servers", servers]
    return CliRunner().invoke(app, command)


@pytest.mark.broker
def test_topics_are_created_with_the_partitions_that_are_asked_for(
    kafka_broker: RunningBroker,
) -> None:
    servers = kafka_broker.bootstrap_servers
    name = f"orders-{uuid.uuid4().hex}"
    with socket.create_server(("127.0.0.1", 0)) as unused:
        silent = f"127.0.0.1:{unused.getsockname()[1]}"
    result = create(f"{silent},{servers}", f"{name}:12", f"{name}.dlq", "--partitions", "3")
    assert result.exit_code == 0
    assert result.output == (
        f"created {name} with 12 partitions\ncreated {name}.dlq with 3 partitions\n"
    )
    for topic, partitions in ((name, 12), (f"{name}.dlq", 3)):
        wait_for_topic([servers], topic, partitions, timeout=30)
        assert Admin(servers).partitions(topic) == partitions
    again = create(servers, name, f"{name}.retry")
    assert again.exit_code == 1
    assert again.stdout == f"created {name}.retry with 1 partition\n"  # the broker's default
    assert again.stderr.startswith(f"error: creating topic {name!r}: ")
    assert "already exists" in again.stderr


def test_a_broker_that_does_not_respond_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        silent = f"127.0.0.1:{unused.getsockname()[1]}"
    result = create(silent, "orders")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: no broker responds at {silent}: ")


@pytest.mark.parametrize("arguments", [["a b"], ["orders:0"], ["orders", "--partitions", "0"]])
def test_a_mistake_in_what_was_typed_is_a_usage_error(arguments: list[str]) -> None:
    assert create("127.0.0.1:1", *arguments).exit_code == 2
