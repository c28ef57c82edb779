"""``asyncrevoke run`` finds the Consumer, or says what to write instead."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from asyncrevoke.replays.target import TargetError, find_consumer

ROOT = Path(__file__).parents[3]
APP = """
from asyncrevoke import Consumer, Router

consumer = Consumer(bootstrap_servers="localhost:1", group_id="billing")
without_handlers = Consumer(bootstrap_servers="localhost:1", group_id="billing")
router = Router()
number = 3


@consumer.handler("orders")
async def bill(order: bytes) -> None: ...


def make_consumer():
    return consumer
"""


UNOPENED = """
from contextlib import asynccontextmanager

from asyncrevoke import Consumer


@asynccontextmanager
async def resources():
    raise ConnectionError("no database")
    yield


consumer = Consumer(bootstrap_servers="localhost:1", group_id="billing", resources=resources)


@consumer.handler("orders")
async def bill(order: bytes) -> None: ...
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with APP in it, in the current folder."""
    name = f"app_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    return name


def test_the_consumer_is_found_in_the_current_folder(app: str) -> None:
    found = find_consumer(f"{app}:consumer")
    assert found is sys.modules[app].consumer


def test_a_module_in_a_package_is_named_with_dots(app: str, tmp_path: Path) -> None:
    package = tmp_path / f"{app}_package"
    package.mkdir()
    (package / "main.py").write_text(f"from {app} import consumer as found\n")
    assert find_consumer(f"{package.name}.main:found") is sys.modules[app].consumer


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("APP", r"names no attribute: write MODULE:ATTRIBUTE, as APP:consumer$"),
        ("APP:", r"names no attribute: write MODULE:ATTRIBUTE, as APP:consumer$"),
        (":consumer", r"is not a module name: .*, as app:consumer$"),
        ("APP.py:bill", r"is not a module name: .*, as APP:bill$"),
        ("./src/APP.py:bill", r"is not a module name: .*, as src\.APP:bill$"),
        ("no_such:consumer", r"no module 'no_such' in .*: run the command in the folder that"),
        ("no.such:consumer", r"no module 'no' in .*: run the command in the folder that 'no' is"),
        ("APP.main:consumer", r"no module 'APP.main' in .*"),
        ("APP:consumr", r"no attribute 'consumr': write APP:consumer or APP:without_handlers$"),
        ("APP:router", r"is a Router.*: make one, call consumer.include_router\(router\)"),
        ("APP:make_consumer", r"not a function or class.*consumer = make_consumer\(\)"),
        ("APP:Consumer", r"not a function or class.*consumer = Consumer\(\)"),
        ("APP:number", r"is of the type int: name a Consumer that has handlers"),
    ],
)
def test_what_names_no_consumer_gets_a_sentence_naming_the_fix(
    target: str, sentence: str, app: str
) -> None:
    with pytest.raises(TargetError, match=sentence.replace("APP", app)):
        find_consumer(target.replace("APP", app))


def test_the_error_of_a_module_without_a_consumer_names_the_fix(app: str, tmp_path: Path) -> None:
    (tmp_path / f"{app}_empty.py").touch()
    with pytest.raises(TargetError, match="no attribute 'consumer': make one there"):
        find_consumer(f"{app}_empty:consumer")


def test_a_module_that_the_app_misses_is_the_apps_error(app: str, tmp_path: Path) -> None:
    (tmp_path / f"{app}_broken.py").write_text("import no_such_module\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        find_consumer(f"{app}_broken:consumer")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "asyncrevoke", "run", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(
    ("attribute", "sentence"),
    [
        ("nothing", "error: APP has no attribute 'nothing': write APP:consumer"),
        ("without_handlers", "error: run() needs handlers: register one with @consumer.handler"),
    ],
)
def test_a_usage_error_is_one_line_and_exit_code_two(
    attribute: str, sentence: str, app: str, tmp_path: Path
) -> None:
    result = run(tmp_path, f"{app}:{attribute}")
    assert result.returncode == 2
    assert result.stderr.startswith(sentence.replace("APP", app))
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_an_error_in_the_app_is_shown_with_the_apps_frames_only(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def load():\n    return {}['secret']\n\n\nload()\n")
    result = run(tmp_path, "broken:consumer")
    assert result.returncode == 1
    assert "application could not be imported" in result.stderr
    assert "broken:consumer" in result.stderr
    assert result.stderr.count("  File ") == 2
    assert result.stderr.count(str(tmp_path / "broken.py")) == 2
    assert result.stderr.endswith("KeyError: 'secret'\n")


def test_an_option_that_is_rejected_is_one_line_with_the_line_of_the_app(tmp_path: Path) -> None:
    source = 'from asyncrevoke import Consumer\n\nconsumer = Consumer("orders", concurrency=-1)\n'
    (tmp_path / "rejected.py").write_text(source)
    result = run(tmp_path, "rejected:consumer")
    assert result.returncode == 2
    assert result.stderr.startswith("error: rejected.py:3: concurrency=-1 ")
    assert result.stderr.count("\n") == 1


def test_as_json_an_error_in_the_app_is_one_object(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    result = run(tmp_path, "broken:consumer", "--log-format", "json")
    line = json.loads(result.stderr)
    assert line["event"] == "application could not be imported"
    assert line["application"] == "broken:consumer"
    assert line["level"] == "error"
    assert line["exception"].endswith("ZeroDivisionError: division by zero")


def test_an_error_at_the_start_is_shown_once(tmp_path: Path) -> None:
    (tmp_path / "unopened.py").write_text(UNOPENED)
    result = run(tmp_path, "unopened:consumer")
    assert result.returncode == 1, result.stderr
    assert result.stderr.count("[error") == 1
    assert "handlers could not be started; consumer stopped" in result.stderr
    assert result.stderr.count("ConnectionError: no database") == 1
    assert result.stderr.endswith("ConnectionError: no database\n")


@pytest.mark.parametrize("options", [("--workers=2",), ("--workers=1",)])
def test_an_error_in_the_app_is_shown_once_however_many_workers_there_are(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    result = run(tmp_path, "broken:consumer", *options)
    assert result.returncode == 1, result.stderr
    assert result.stderr.count("ZeroDivisionError: division by zero") == 1
    assert result.stderr.count(str(tmp_path / "broken.py")) == 1
    assert "restarting it" not in result.stderr


def test_a_mistake_ends_workers_too_with_one_line_and_two(app: str, tmp_path: Path) -> None:
    result = run(tmp_path, f"{app}:without_handlers", "--workers", "3")
    assert result.returncode == 2
    assert result.stderr.count("error: run() needs handlers") == 1


def test_reload_and_workers_exclude_each_other(app: str, tmp_path: Path) -> None:
    result = run(tmp_path, f"{app}:consumer", "--reload", "--workers", "2")
    assert result.returncode == 2
    assert "leave --workers out" in result.stderr


@pytest.mark.parametrize("options", [(), ("--workers", "2")])
def test_a_health_port_in_use_is_an_error_of_one_line(
    options: tuple[str, ...], app: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run(tmp_path, f"{app}:consumer", "--health-port", str(port), *options)
    assert result.returncode == 1
    assert result.stderr == (
        f"error: --health-port {port}: another process listens on this port of 127.0.0.1; "
        "use another port\n"
    )


def test_metrics_without_a_health_port_are_an_error_of_one_line(app: str, tmp_path: Path) -> None:
    result = run(tmp_path, f"{app}:consumer", "--metrics")
    assert (result.returncode, result.stderr) == (
        2,
        "error: --metrics is served on the health port: add --health-port 8080, for example\n",
    )


@pytest.mark.parametrize("options", [(), ("--workers", "2")])
def test_the_extra_that_metrics_lack_is_named_in_one_line(
    options: tuple[str, ...], app: str, tmp_path: Path
) -> None:
    (tmp_path / f"{app}_bare.py").write_text(
        "import sys\nsys.modules['prometheus_client'] = None\n"
        f"from {app} import consumer as consumer\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    result = run(tmp_path, f"{app}_bare:consumer", "--metrics", "--health-port", port, *options)
    assert (result.returncode, result.stderr) == (
        2,
        "error: --metrics needs prometheus_client: pip install 'asyncrevoke[cli,metrics]'\n",
    )


ENDLESS = """
import asyncio, threading, time
from contextlib import asynccontextmanager
from asyncrevoke import Consumer

@asynccontextmanager
async def resources():
    {thread}
    print("opened", flush=True)
    yield

consumer = Consumer(
    bootstrap_servers="localhost:1", group_id="billing", close_timeout=1, resources=resources()
)

@consumer.handler("orders")
async def bill(order: bytes) -> None: ...
"""


@pytest.mark.parametrize(
    "thread",
    [
        "threading.Thread(target=time.sleep, args=(3600,), name='endless').start()",
        "asyncio.get_running_loop().run_in_executor(None, time.sleep, 3600)",
    ],
    ids=["a thread of its own", "asyncio's executor"],
)
def test_a_thread_that_never_ends_does_not_keep_the_process(tmp_path: Path, thread: str) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS.format(thread=thread))
    with subprocess.Popen(
        [sys.executable, "-m", "asyncrevoke", "run", "endless:consumer"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "opened\n"
            process.terminate()
            _, log = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0, log
    assert "did not exit within close_timeout" in log
