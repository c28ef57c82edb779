"""Chooses the broker of a demo or of a test session, which may run already."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from typing_extensions import override

from asyncrevoke.broker.admin import Admin
from asyncrevoke.broker.broker import KafkaBroker
from asyncrevoke.broker.docker import DockerBroker, engine_responds
from asyncrevoke.broker.errors import BrokerMissingError, BrokerStartError
from asyncrevoke.broker.running import RunningBroker
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncrevoke.broker.installation.jars import OnProgress

CONNECT_TIMEOUT = 10.0


class ExternalBroker(RunningBroker):
    """A running broker at the user's address, without TLS and SASL, which is never stopped."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    @property
    @override
    def bootstrap_servers(self) -> str:
        return self._bootstrap_servers

    @property
    @override
    def admin_addresses(self) -> Sequence[str]:
        """The first of the given addresses."""
        return [self._bootstrap_servers.split(",")[0].strip()]

    @override
    def start(self) -> None:
        """Check that the broker responds. Raises BrokerStartError."""
        try:
            Admin(self.admin_addresses[0], CONNECT_TIMEOUT).brokers()
        except (OSError, ValueError) as error:
            raise BrokerStartError(
                f"no broker responds at {self._bootstrap_servers} ({error}): start it, correct the "
                "address (HOST:PORT, a listener without TLS and SASL), or unset ASYNCREVOKE_BROKER "
                "to have one started"
            ) from error

    @override
    def close(self) -> None:
        """Does nothing: the broker keeps running."""


VARIABLE = "ASYNCREVOKE_BROKER"


def start_broker(
    *, on_progress: OnProgress | None = None, environ: Mapping[str, str] | None = None
) -> RunningBroker:
    """Start a broker, or connect to one; close it, or use it as a context manager.

    The environment variable ``ASYNCREVOKE_BROKER`` chooses it: ``HOST:PORT`` is a running broker,
    ``jvm`` and ``docker`` start one. Without the variable, the broker runs on this machine's Java,
    or in a container if Java or jgo is missing and a Docker engine responds.

    Raises BrokerStartError, with the fix, if no broker can be started or reached, and ConfigError
    if the variable has another value.
    """
    choice = (os.environ if environ is None else environ).get(VARIABLE, "").strip()
    broker: RunningBroker
    if choice == "docker":
        broker = DockerBroker()
    elif choice in {"", "jvm"}:
        broker = KafkaBroker(on_progress=on_progress)
    elif ":" in choice:
        broker = ExternalBroker(choice)
    else:
        raise ConfigError(f"{VARIABLE}={shown_option(choice)}: use HOST:PORT, jvm or docker")
    # Entering a broker closes it if it cannot be started.
    try:
        return broker.__enter__()
    except BrokerMissingError:
        if choice or not engine_responds():
            raise
    return DockerBroker().__enter__()
