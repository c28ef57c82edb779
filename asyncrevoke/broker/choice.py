"""Chooses the broker of a demo or of a test session."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from asyncrevoke.broker.broker import KafkaBroker
from asyncrevoke.broker.docker import DockerBroker, engine_responds
from asyncrevoke.broker.errors import BrokerMissingError
from asyncrevoke.broker.external import ExternalBroker
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.broker.installation.jars import OnProgress
    from asyncrevoke.broker.running import RunningBroker

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
