"""``DockerBroker``: what it asks an engine for starts a broker in the way of Kafka's image."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from broker.kafka.recorded_engine import CONTAINER, RecordedEngine
from testcontainers.core.config import testcontainers_config

from asyncrevoke.broker.admin import Admin
from asyncrevoke.broker.docker import IMAGE, DockerBroker
from asyncrevoke.broker.errors import BrokerMissingError
from asyncrevoke.broker.installation.jars import class_path
from asyncrevoke.broker.installation.java import find_java
from asyncrevoke.broker.process.supervisor import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]


class KafkaImage:
    """Starts Apache Kafka as its image does: the image's program makes properties of the variables
    and formats the storage."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, created: Any) -> None:
        variables = dict(each.split("=", 1) for each in created["Env"])
        variables["KAFKA_LOG_DIRS"] = str(self._folder / "data")  # in the container: /tmp/...
        defaults, mounted, final = (self._folder / name for name in ("defaults", "mnt", "config"))
        for each in (defaults, mounted, final):
            each.mkdir()
        for name in ("server.properties", "log4j2.yaml", "tools-log4j2.yaml"):
            (defaults / name).touch()
        java = [str(find_java().path), "-cp", class_path()]
        subprocess.run(
            [*java, "kafka.docker.KafkaDockerWrapper", "setup",
             "--default-configs-dir", str(defaults), "--mounted-configs-dir", str(mounted),
             "--final-configs-dir", str(final)],
            env={**os.environ, **variables, "CLUSTER_ID": "5L6g3nShT-eMCtK--X86sw"},
            check=True,
        )  # fmt: skip
        self.process = subprocess.Popen(
            [*java, "kafka.Kafka", str(final / "server.properties")],
            stdout=subprocess.DEVNULL,
            preexec_fn=die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509
        )

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordedEngine]:
    image = KafkaImage(tmp_path)
    with RecordedEngine(IMAGE, image.start) as engine:
        monkeypatch.setenv("DOCKER_HOST", engine.address)
        monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)
        yield engine
    image.close()


def test_the_container_of_an_engine_is_a_broker_at_the_port_that_it_advertises(
    engine: RecordedEngine,
) -> None:
    with DockerBroker() as broker:
        broker.create_topic("orders", 3)
        assert Admin(broker.bootstrap_servers).partitions("orders") == 3
        address = broker.bootstrap_servers
    created = engine.only("POST", "/containers/create").body
    port = address.rpartition(":")[2]
    assert created["Image"] == IMAGE
    assert created["HostConfig"]["PortBindings"] == {
        f"{port}/tcp": [{"HostIp": "127.0.0.1", "HostPort": port}]
    }
    assert f"KAFKA_ADVERTISED_LISTENERS=CLIENTS://{address}" in "\n".join(created["Env"])
    assert engine.only("DELETE", f"/containers/{CONTAINER}").query == "v=True&link=False&force=True"


def test_without_an_engine_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    with pytest.raises(BrokerMissingError, match="start Docker, or unset ASYNCREVOKE_BROKER"):
        DockerBroker().start()
