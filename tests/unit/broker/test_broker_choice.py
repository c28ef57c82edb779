from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from asyncrevoke.broker import BrokerStartError, start_broker
from asyncrevoke.broker.listeners.ports import free_ports, is_free
from asyncrevoke.client.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def test_the_error_of_an_unknown_choice_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="='podman': use HOST:PORT, jvm or docker"):
        start_broker(environ={"ASYNCREVOKE_BROKER": "podman"})


def test_given_address_without_a_broker_is_an_error_with_the_fix() -> None:
    address = f"127.0.0.1:{next(free_ports())}"
    with pytest.raises(BrokerStartError, match=f"no broker responds at {address}.*unset"):
        start_broker(environ={"ASYNCREVOKE_BROKER": address})


def test_given_address_that_is_none_is_an_error_with_the_form() -> None:
    with pytest.raises(BrokerStartError, match="HOST:PORT"):
        start_broker(environ={"ASYNCREVOKE_BROKER": "localhost:kafka"})


def test_ports_are_free_different_and_below_the_outgoing_range() -> None:
    ports = free_ports()
    taken = [next(ports) for _ in range(30)]
    assert len(set(taken)) == 30
    assert max(taken) < 32_768


CHOOSE = """
from itertools import islice
from asyncrevoke.broker.listeners.ports import free_ports
print(*islice(free_ports(), 1_000), flush=True)
input()
"""


def test_two_processes_are_never_given_the_same_port(tmp_path: Path) -> None:
    with ExitStack() as stack:
        given = [ports_of_a_process(stack, tmp_path) for _ in range(2)]
    assert len(given[0]) == len(given[1]) == 1_000
    assert not given[0] & given[1]


def ports_of_a_process(stack: ExitStack, folder: Path) -> set[int]:
    """1,000 ports that a process was given, which lives until the stack is closed."""
    process = stack.enter_context(
        subprocess.Popen(
            (sys.executable, "-c", CHOOSE),
            env={**os.environ, "TMPDIR": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    )
    assert process.stdout
    assert process.stdin
    stack.callback(process.stdin.close)
    return {int(port) for port in process.stdout.readline().split()}


def test_port_with_a_listener_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free(server.getsockname()[1])
