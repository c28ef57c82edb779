"""Apache Kafka in a Docker container."""

from __future__ import annotations

import importlib
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from asyncrevoke.broker.admin import RETRY_INTERVAL, Admin
from asyncrevoke.broker.broker import START_TIMEOUT
from asyncrevoke.broker.errors import BrokerMissingError, BrokerRequestError, BrokerStartError
from asyncrevoke.broker.installation.jars import KAFKA_VERSION
from asyncrevoke.broker.listeners.ports import HOST, free_ports
from asyncrevoke.broker.listeners.security import Security
from asyncrevoke.broker.process.properties import BrokerNode, broker_properties
from asyncrevoke.broker.running import RunningBroker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testcontainers.core.container import DockerContainer

IMAGE = f"apache/kafka:{KAFKA_VERSION}"
_FIX = "start Docker, or unset ASYNCREVOKE_BROKER to run Apache Kafka on Java instead"


def engine_responds() -> bool:
    """Whether testcontainers is installed and its Docker engine responds."""
    try:
        docker = importlib.import_module("docker")  # comes with testcontainers
    except ImportError:
        return False
    try:
        with closing(docker.from_env(timeout=5)) as client:
            return bool(client.ping())
    except (docker.errors.DockerException, OSError):
        return False


class DockerBroker(RunningBroker):
    """One broker in a container; testcontainers' reaper ends it if this process is killed."""

    def __init__(self) -> None:
        self._container: DockerContainer | None = None
        self._port = 0

    @property
    @override
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self._port}"

    @property
    @override
    def admin_addresses(self) -> Sequence[str]:
        return [self.bootstrap_servers]

    @override
    def start(self) -> None:
        """Start the container, and pull its image if it is missing.

        Raises BrokerMissingError if testcontainers is not installed or no engine responds, and
        BrokerStartError if the broker does not respond.
        """
        try:
            from testcontainers.core.container import DockerContainer
        except ImportError as error:
            raise BrokerMissingError(
                "testcontainers is not installed: pip install 'asyncrevoke[testing]'"
            ) from error
        if not engine_responds():
            raise BrokerMissingError(f"no Docker engine responds: {_FIX}")
        # The port is the same inside and outside, because the broker advertises it to clients.
        node = BrokerNode.choose(free_ports())
        self._port = node.clients_port
        container = DockerContainer(IMAGE)
        # Docker's form for a port of one interface; with_bind_ports() does not accept it.
        published: Any = container.ports
        published[str(self._port)] = (HOST, self._port)
        for name, value in _environment(node).items():
            container = container.with_env(name, value)
        self._container = container
        container.start()
        self._wait_until_ready(container)

    @override
    def close(self) -> None:
        if self._container is not None:
            self._container.stop()
            self._container = None

    def _wait_until_ready(self, container: DockerContainer) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            try:
                if Admin(self.bootstrap_servers, timeout=5).brokers():
                    return
            except (OSError, BrokerRequestError):
                pass
            if time.monotonic() > deadline:
                output, errors = container.get_logs()
                tail = (output + errors).decode("utf-8", "replace").splitlines()[-30:]
                raise BrokerStartError(
                    f"the container of {IMAGE} did not respond within {START_TIMEOUT:g} s; its "
                    "last lines:",
                    "\n".join(tail),
                )
            time.sleep(RETRY_INTERVAL)


def _environment(node: BrokerNode) -> dict[str, str]:
    properties = broker_properties(
        node,
        (node,),
        data="/tmp/kraft-data",  # noqa: S108 - inside the container
        key_store="",
        security=Security(),
        quick=True,
        extra={},
    )
    port = node.clients_port
    properties["listeners"] = properties["listeners"].replace(f"{HOST}:{port}", f"0.0.0.0:{port}")
    # The image's names of environment variables for properties.
    return {
        "KAFKA_" + name.replace("_", "__").replace(".", "_").replace("-", "___").upper(): value
        for name, value in properties.items()
    }
