"""Chooses the broker of a demo or of a test session."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from asyncrevoke.broker.broker import KafkaBroker
from asyncrevoke.broker.docker import DockerBroker, engine_answers
from asyncrevoke.broker.errors import BrokerMissingError
from asyncrevoke.broker.external import ExternalBroker
from asyncrevoke.errors import ConfigError
from asyncrevoke.printable import shown_option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.broker.installation.jars import OnProgress
    from asyncrevoke.broker.running import RunningBroker

VARIABLE = "ASYNCREVOKE_BROKER"


def start_broker(
    *, on_progress: OnProgress | None = None, environ: Mapping[str, str] | None = None
) -> RunningBroker:
    """A broker that answers; close it, or use it as a context manager.

    The environment variable ``ASYNCREVOKE_BROKER`` says which: ``HOST:PORT`` is one of yours,
    ``jvm`` and ``docker`` start one. Without it, it runs on this machine's Java, or in a container
    if there is no Java or no jgo here and a Docker engine answers.

    Raises:
        BrokerStartError: there is none; the message names the fix.
        ConfigError: the variable says something else.
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
    try:
        return _started(broker)
    except BrokerMissingError:
        if choice or not engine_answers():
            raise
    return _started(DockerBroker())


def _started(broker: RunningBroker) -> RunningBroker:
    try:
        broker.start()
    except BaseException:
        broker.close()
        raise
    return broker
