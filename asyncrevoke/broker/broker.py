"""An Apache Kafka broker as a process on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import tempfile
import time
import weakref
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from asyncrevoke.broker.admin import RETRY_INTERVAL, Admin
from asyncrevoke.broker.errors import BrokerRequestError, BrokerStartError
from asyncrevoke.broker.installation.jars import (
    ClassArchive,
    OnProgress,
    cached_class_archive,
    class_path,
)
from asyncrevoke.broker.installation.java import find_java
from asyncrevoke.broker.listeners.ports import HOST, free_ports, is_free
from asyncrevoke.broker.listeners.security import (
    ClientOptions,
    Security,
    write_certificates,
    write_private,
)
from asyncrevoke.broker.process.process import BrokerProcess, run_to_end, tail
from asyncrevoke.broker.process.properties import (
    BrokerNode,
    broker_properties,
    new_cluster_id,
    properties_text,
)
from asyncrevoke.broker.process.storage import FormattedStorages
from asyncrevoke.broker.running import RunningBroker
from asyncrevoke.client.errors import ConfigError, IllegalStateError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


START_TIMEOUT = 60.0
STOP_TIMEOUT = 30.0
_TRIES_FOR_PORTS = 3
_QUICK_JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_LOGGING = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.showShortLogName=true",
    # Each start would write a thousand lines of settings.
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=warn",
)
# Prefixes of properties that say nothing about storage.
_RUN_TIME = ("advertised.", "broker.", "group.", "transaction.abort.")
_STORAGES = FormattedStorages()
_PORT_TAKEN = ("Address already in use", "Address in use", "Failed to bind")


class KafkaBroker(RunningBroker):
    """Apache Kafka in KRaft mode, one process as broker and controller, without Docker.

    Entering the context starts the broker; leaving it stops the broker and removes its data. The
    broker also ends when the process that started it ends, even by SIGKILL.

    Args:
        port: the port for clients, on 127.0.0.1; a free port by default.
        properties: properties of the broker that override the defaults of this library.
        security: the security of the clients' listener.
        features: levels of the cluster's features when its storage is formatted, for example
            ``{"transaction.version": 1}``; those of the release by default.
        quick: start fast, with the shortest timeouts of the group coordinator; use False for
            benchmarks, which need Kafka's defaults and a fully optimising Java.
        heap: Java's memory, as in ``-Xmx``.
        tools: also download Kafka's command line tools (see :attr:`java_command`).
        folder: a folder that keeps data and log; a temporary folder by default.
        start_timeout: seconds in which the broker must respond after its start.
        on_progress: called while jars are downloaded.
    """

    def __init__(
        self,
        *,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        security: Security | None = None,
        features: Mapping[str, int] | None = None,
        quick: bool = True,
        heap: str = "512m",
        tools: bool = False,
        folder: Path | None = None,
        start_timeout: float = START_TIMEOUT,
        on_progress: OnProgress | None = None,
    ) -> None:
        self.security = security or Security()
        self.start_timeout = start_timeout
        self._port = port
        self._properties = dict(properties or {})
        self._features = dict(features or {})
        self._quick = quick
        self._heap = heap
        self._tools = tools
        self._keep = folder is not None
        self._folder = folder
        self._on_progress = on_progress
        self._nodes: tuple[BrokerNode, ...] = ()
        self._node_id = 1
        self._cluster_id = new_cluster_id()
        self._java: tuple[str, ...] = ()
        self._archive: ClassArchive | None = None
        self._recording: tuple[str, ...] = ()
        self._process: BrokerProcess | None = None
        self._remove: weakref.finalize[..., KafkaBroker] | None = None

    # -- addresses and state

    @property
    @override
    def bootstrap_servers(self) -> str:
        """``host:port`` for clients; the same after a restart."""
        return f"{HOST}:{self._node.clients_port}"

    @property
    def port(self) -> int:
        """The port of :attr:`bootstrap_servers`."""
        return self._node.clients_port

    @property
    @override
    def admin_addresses(self) -> Sequence[str]:
        """``host:port`` of the listener without TLS and SASL."""
        if not self.running:
            raise IllegalStateError("the broker is not running: call start() first")
        return [self._admin_address]

    @property
    def node_id(self) -> int:
        """The broker's id in the cluster."""
        return self._node_id

    @property
    def pid(self) -> int | None:
        """The process id; None while the broker is not running."""
        return self._process.pid if self._process is not None and self._process.running else None

    @property
    def running(self) -> bool:
        """Whether the process runs; a paused broker runs too."""
        return self.pid is not None

    @property
    def log_path(self) -> Path:
        """The file that the broker logs to."""
        return self._directory / "broker.log"

    @property
    def java_command(self) -> tuple[str, ...]:
        """Java with the class path of this broker: append a main class and its arguments."""
        self._find_java()
        return self._java

    def log_tail(self, lines: int = 30) -> str:
        """The last lines of the broker's log."""
        return tail(self.log_path, lines)

    @override
    def client_options(self, user: str | None = None) -> ClientOptions:
        """The connection options of a client, as keyword arguments."""
        options = self.security.client_options(user, self._directory / "authority.pem")
        options["bootstrap_servers"] = self.bootstrap_servers
        return options

    # -- start and stop

    @override
    def start(self) -> None:
        """Start the broker, with its former data and port; returns when it responds to requests.

        Raises BrokerStartError with the fix, and the last lines of the broker's log if it ran.
        """
        if self.running:
            return
        first = not self._nodes
        for attempt in range(_TRIES_FOR_PORTS):
            if first:
                self._choose_ports()
            try:
                self.launch()
                self.wait_until_ready({self._node_id})
            except BrokerStartError as error:
                self.kill()
                taken = any(sign in error.log_tail for sign in _PORT_TAKEN)
                last = attempt == _TRIES_FOR_PORTS - 1
                if not (taken and first) or last:
                    raise
                # Another program has taken one of the free ports.
                shutil.rmtree(self._directory / "data", ignore_errors=True)
            else:
                return

    def stop(self, timeout: float = STOP_TIMEOUT) -> None:
        """Shut the broker down and keep its data; after ``timeout`` seconds it is killed."""
        if self._process is not None:
            self._process.terminate(timeout)
            self._process = None

    def kill(self) -> None:
        """End the broker at once, as a crash would, and keep its data."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def restart(self, *, orderly: bool = True) -> None:
        """Stop (or kill) the broker, and start it again with the same data and port."""
        if orderly:
            self.stop()
        else:
            self.kill()
        self.start()

    def pause(self) -> None:
        """Pause the process (SIGSTOP): connections stay open, and requests get no response.

        A broker that is paused for longer than ``broker.session.timeout.ms`` (3 s unless
        ``properties`` have another one) is fenced when it resumes, and its partitions can lack
        leaders for 40 s and more (Apache Kafka 4.4.0).
        """
        self._signal("SIGSTOP")

    def resume(self) -> None:
        """Resume a paused process (SIGCONT)."""
        self._signal("SIGCONT")

    @override
    def close(self) -> None:
        """End the broker at once and remove its data; with ``folder``, shut it down and keep it."""
        if self._keep:
            self.stop()
        self.kill()
        if self._remove is not None:
            self._remove()

    def write_class_archive(self) -> None:
        """Start and close a broker once, so that all that start later on this machine with the same
        Java and jars take 40 % less processor time to start: Java then reads the broker's classes
        from an archive in the user's cache folder. Returns at once if it is there.

        Raises BrokerStartError, as :meth:`start`. If Java cannot write it, brokers start as before.
        """
        self._find_java()
        archive = self._archive
        if archive is None or archive.options(broker=True):
            return
        self._archive, self._recording = None, archive.recording(broker=True)
        try:
            with self:
                self.create_topic("classes")
                self.stop()
        finally:
            self._archive, self._recording = archive, ()
            archive.keep()

    # -- in a cluster of several brokers

    def join_cluster(self, node_id: int, nodes: tuple[BrokerNode, ...], cluster_id: str) -> None:
        """Make this broker one of several, before it is started for the first time."""
        self._node_id, self._nodes, self._cluster_id = node_id, nodes, cluster_id

    def launch(self) -> None:
        """Start the process without waiting until it responds."""
        self._find_java()
        directory = self._directory
        config = directory / "server.properties"
        self._write_config(directory, config)
        if not (directory / "data" / "meta.properties").exists():
            self._format(config)
        archive = () if self._archive is None else self._archive.options()
        command = (*self._java, *archive, *self._jvm_options(), "kafka.Kafka", str(config))
        self._process = BrokerProcess(command, self.log_path, None if self._keep else directory)

    def wait_until_ready(self, node_ids: set[int]) -> None:
        """Wait until the broker responds, and lists all these brokers in its metadata. Raises
        BrokerStartError if it ended, or did not respond within ``start_timeout`` seconds."""
        deadline = time.monotonic() + self.start_timeout
        while not self._responds(node_ids):
            if self._process is None or not self._process.running:
                code = None if self._process is None else self._process.exit_code
                raise BrokerStartError(
                    f"Apache Kafka ended while it started (exit code {code}); its last lines:",
                    self.log_tail(),
                )
            if time.monotonic() > deadline:
                raise BrokerStartError(
                    f"Apache Kafka did not respond within {self.start_timeout:g} s (a slow machine "
                    "may need a longer start_timeout); its last lines:",
                    self.log_tail(),
                )
            time.sleep(RETRY_INTERVAL)

    # -- files, ports and the process

    @property
    def _node(self) -> BrokerNode:
        for node in self._nodes:
            if node.node_id == self._node_id:
                return node
        raise IllegalStateError("the broker has no address before start()")

    @property
    def _admin_address(self) -> str:
        return f"{HOST}:{self._node.brokers_port}"

    @property
    def _directory(self) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="asyncrevoke-kafka-"))
            self._remove = weakref.finalize(self, _remove_tree, self._folder, os.getpid())
        if "," in str(self._folder):
            raise BrokerStartError(
                f"Apache Kafka splits log.dirs at commas, and {self._folder} has one: use a folder "
                "without commas in its path"
            )
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder

    def _find_java(self) -> None:
        if not self._java:
            java = find_java()
            jars = class_path(tools=self._tools, on_progress=self._on_progress)
            self._java = (str(java.path), "-cp", jars)
            self._archive = cached_class_archive(java.path, jars)

    def _choose_ports(self) -> None:
        if self._port is not None and not is_free(self._port):
            raise BrokerStartError(
                f"port {self._port} is in use: end the program that listens there, or choose "
                "another port"
            )
        ports = free_ports()
        if self._port is not None:
            ports = chain((self._port,), ports)
        self._nodes = (BrokerNode.choose(ports, self._node_id),)

    def _write_config(self, directory: Path, config: Path) -> None:
        key_store = directory / "broker.pem"
        if self.security.tls and not key_store.exists():
            write_certificates(key_store, directory / "authority.pem")
        properties = broker_properties(
            self._node,
            self._nodes,
            data=(directory / "data").as_posix(),
            key_store=key_store.as_posix(),
            security=self.security,
            quick=self._quick,
            extra=self._properties,
        )
        write_private(config, properties_text(properties).encode())

    def _format(self, config: Path) -> None:
        data = config.with_name("data")
        secret = self.security.format_arguments()
        properties = [
            each for each in self._properties.items() if not each[0].startswith(_RUN_TIME)
        ]
        settings = (self._java, frozenset(properties), frozenset(self._features.items()))
        if not secret and _STORAGES.write(
            settings, data, node_id=self._node_id, cluster_id=self._cluster_id
        ):
            return
        archive = self._archive
        loading = () if archive is None else archive.options() or archive.recording()
        arguments = [
            *loading, "-Xmx128m", *_QUICK_JAVA, *_LOGGING, "kafka.tools.StorageTool", "format",
            f"--cluster-id={self._cluster_id}", "--config", str(config),
            *(f"--feature={name}={level}" for name, level in self._features.items()),
        ]  # fmt: skip
        # Every user of this machine can see the arguments of a process: passwords are in a file.
        passwords = config.with_name("format.arguments")
        if secret:
            write_private(passwords, "\n".join(secret).encode())
            arguments.append(f"@{passwords}")
        try:
            code = run_to_end((*self._java, *arguments), self.log_path, self.start_timeout)
        finally:
            passwords.unlink(missing_ok=True)
            if archive is not None:
                archive.keep()
        if code != 0:
            raise BrokerStartError(
                f"Apache Kafka's storage could not be formatted (exit code {code}); last lines:",
                self.log_tail(),
            )
        if not secret:
            _STORAGES.remember(settings, data)

    def _jvm_options(self) -> tuple[str, ...]:
        speed = _QUICK_JAVA if self._quick else ()
        return (
            *self._recording,
            f"-Xmx{self._heap}",
            *speed,
            "-Djava.awt.headless=true",
            *_LOGGING,
        )

    def _responds(self, node_ids: set[int]) -> bool:
        try:
            if not node_ids <= Admin(self._admin_address, timeout=5).brokers():
                return False
            # The clients' listener opens last.
            with socket.create_connection((HOST, self._node.clients_port), 5):
                return True
        except (OSError, BrokerRequestError):
            return False

    def _signal(self, name: str) -> None:
        if sys.platform == "win32":
            raise ConfigError("Windows has no signals that pause and resume a process")
        if self._process is None:
            raise IllegalStateError("the broker is not running: call start() first")
        self._process.send(getattr(signal, name))


def _remove_tree(folder: Path, owner: int) -> None:
    # A forked copy of this process inherits the finalizer, not the folder.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
