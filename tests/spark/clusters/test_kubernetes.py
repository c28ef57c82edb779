"""The command for Kubernetes in the documentation, up to the pods that Spark asks a cluster for.

The cluster is an API server that says yes: what it would run of the pods needs one.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import threading
import uuid
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

pyspark = pytest.importorskip("pyspark", reason="needs the extra spark")

if TYPE_CHECKING:
    from collections.abc import Generator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "how-to" / "spark" / "clusters.md"


class _Api(BaseHTTPRequestHandler):
    """Takes what is created, and gives it back with what a cluster adds."""

    protocol_version = "HTTP/1.1"

    def _take(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        made: dict[str, Any] = json.loads(self.rfile.read(length))
        created = cast("_Server", self.server).created
        created.append(made)
        made["metadata"].setdefault("namespace", "default")
        made["metadata"]["uid"] = str(uuid.uuid4())
        body = json.dumps(made).encode()
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PATCH = do_PUT = _take  # noqa: N815 - the names of its base class

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its base class's name
        """Nobody reads it."""


class _Server(ThreadingHTTPServer):
    created: list[dict[str, Any]]


@contextmanager
def api_server() -> Generator[_Server]:
    with _Server(("127.0.0.1", 0), _Api) as server:
        server.created = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def documented_command() -> list[str]:
    """The words of the page's command for Kubernetes."""
    (block,) = re.findall(
        r"```bash\n(spark-submit --master k8s:.*?)```", PAGE.read_text(), re.DOTALL
    )
    return shlex.split(block.replace("\\\n", " "))


def submitted(words: list[str], folder: Path) -> list[dict[str, Any]]:
    """What a cluster was asked for by this command."""
    with api_server() as server:
        words[words.index("--master") + 1] = f"k8s://http://127.0.0.1:{server.server_port}"
        # There is nobody to wait for.
        extra = ["--conf", "spark.kubernetes.submission.waitAppCompletion=false"]
        done = subprocess.run(
            [str(Path(pyspark.__file__).parent / "bin" / words[0]), *extra, *words[1:]],
            # Not this machine's own cluster, if it knows one.
            env={**os.environ, "KUBECONFIG": str(folder / "none"), "SPARK_LOCAL_IP": "127.0.0.1"},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr[-4000:]
        return server.created


def test_the_documented_command_asks_for_a_driver_that_runs_the_example(tmp_path: Path) -> None:
    created = submitted(documented_command(), tmp_path)
    (driver,) = [each for each in created if each["kind"] == "Pod"]
    (container,) = driver["spec"]["containers"]
    assert container["image"] == "registry.example/replay:1"
    assert driver["spec"]["serviceAccountName"] == "spark"
    arguments = container["args"]
    assert arguments[0] == "driver"
    assert "org.apache.spark.deploy.PythonRunner" in arguments
    assert "local:///opt/app/examples/spark_replay.py" in arguments
    environment = {each["name"]: each.get("value") for each in container["env"]}
    assert environment["KAFKA"] == "kafka-1:9092"
    assert environment["SINK"] == "s3a://bucket/replayed"
    settings = "".join(
        text
        for each in created
        if each["kind"] == "ConfigMap"
        for text in cast("dict[str, str]", each["data"]).values()
    )
    for line in ("spark.executor.instances=4", "spark.executor.cores=1", "spark.speculation=false"):
        assert line in settings


def test_the_image_has_the_example_where_the_command_starts_it() -> None:
    lines = (ROOT / "examples" / "spark_kubernetes.Dockerfile").read_text().splitlines()
    copies = [line.split()[1:] for line in lines if line.startswith("COPY ")]
    found = {f"{to}{Path(name).name}": name for *names, to in copies for name in names}
    started = documented_command()[-1].removeprefix("local://")
    assert (ROOT / found[started]).is_file()
    # The handlers are imported by name.
    folder = next(line for line in lines if line.startswith("ENV PYTHONPATH=")).partition("=")[2]
    assert f"{folder}/app.py" in found
