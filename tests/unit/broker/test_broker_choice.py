from __future__ import annotations

import socket

import pytest

from asyncrevoke.broker import BrokerStartError, start_broker
from asyncrevoke.broker.listeners.ports import free_ports, is_free
from asyncrevoke.errors import ConfigError


def test_unknown_choice_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="=podman: use HOST:PORT, jvm or docker"):
        start_broker(environ={"ASYNCREVOKE_BROKER": "podman"})


def test_given_address_without_a_broker_is_an_error_with_the_fix() -> None:
    address = f"127.0.0.1:{next(free_ports())}"
    with pytest.raises(BrokerStartError, match=f"no broker answers at {address}.*unset"):
        start_broker(environ={"ASYNCREVOKE_BROKER": address})


def test_given_address_that_is_none_is_an_error_with_the_form() -> None:
    with pytest.raises(BrokerStartError, match="HOST:PORT"):
        start_broker(environ={"ASYNCREVOKE_BROKER": "localhost:kafka"})


def test_ports_are_free_different_and_below_the_outgoing_range() -> None:
    ports = free_ports()
    taken = [next(ports) for _ in range(30)]
    assert len(set(taken)) == 30
    assert max(taken) < 32_768


def test_port_with_a_listener_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free(server.getsockname()[1])
