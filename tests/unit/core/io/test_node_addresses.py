"""Addresses of brokers in log lines and messages."""

from __future__ import annotations

import pytest

from asyncrevoke.client.core.io.effects import Node
from asyncrevoke.client.runtime.net.fatal_errors import node_name


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("kafka-1", "kafka-1:9092"),
        ("127.0.0.1", "127.0.0.1:9092"),
        ("::1", "[::1]:9092"),
        ("fe80::1%eth0", "[fe80::1%eth0]:9092"),
    ],
)
def test_an_ipv6_address_has_brackets(host: str, shown: str) -> None:
    assert Node(1, host, 9092).address == shown
    assert node_name(Node(1, host, 9092)) == f"broker 1 at {shown}"
