"""What an import brings along: as little as it can."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from asyncrevoke import integrations

if TYPE_CHECKING:
    from collections.abc import Sequence

HEAVY = [
    *("aiokafka", "fastapi", "hypercorn", "hypothesis", "kio", "pydantic", "pyspark", "pytest"),
    *("rich", "starlette", "trio"),
]


PRODUCER = [
    "asyncrevoke.client.producing.record_producer",
    "asyncrevoke.client.producing.producer_core",
]


def loaded_by(statement: str, names: Sequence[str] = HEAVY) -> list[str]:
    code = f"import sys\n{statement}\nprint(*[name for name in {names!r} if name in sys.modules])"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return result.stdout.split()


@pytest.mark.parametrize(
    "statement",
    [
        "import asyncrevoke",
        "import asyncrevoke.integrations",
    ],
)
def test_an_import_loads_nothing_heavy(statement: str) -> None:
    assert loaded_by(statement) == []


def test_the_plugin_of_pytest_loads_nothing_but_pytest() -> None:
    assert loaded_by("import asyncrevoke.testing.pytest_plugin") == ["pytest"]


ENTERED = """
import asyncio, sys

from asyncrevoke import Consumer

consumer = Consumer(bootstrap_servers="127.0.0.1:9", group_id="billing", {options})
{handler}

async def main():
    before = set(sys.modules)
    async with consumer:
        await asyncio.sleep(0)
        print(*(sorted(set(sys.modules) - before) or ["nothing"]))
        print(*sys.modules)

asyncio.run(main())
"""
HANDLER = """
@consumer.handler("orders", dead_letter="orders.dlq")
async def bill(order: dict) -> None: ...
"""
# Creating one takes ten times as long as creating a msgspec.Struct.
DATACLASSES = """
ours = [module for name, module in sys.modules.items() if name.partition(".")[0] == "asyncrevoke"]
names = {
    each.__name__
    for module in ours
    for each in vars(module).values()
    if isinstance(each, type) and "__dataclass_fields__" in vars(each)
}
print(*sorted(names))
"""
UNUSED = {
    *("_pytest", "hypothesis", "pytest", "trio"),
    *("attr", "numpy", "opentelemetry", "prometheus_client", "pyarrow", "pydantic", "pyspark"),
    *("email", "rich", "structlog", "sysconfig", "zipfile"),
}


@pytest.mark.parametrize("handler", ["", HANDLER])
@pytest.mark.parametrize("options", ["", "group_protocol='consumer'", "heartbeat_thread=False"])
def test_entering_a_consumer_imports_nothing_on_the_event_loop(options: str, handler: str) -> None:
    script = ENTERED.format(options=options, handler=handler)
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    imported, all_modules = ran.stdout.splitlines()
    assert imported == "nothing"
    names = set(all_modules.split())
    assert UNUSED & {name.partition(".")[0] for name in names} == set()
    assert len(names) < (595 if handler else 495), "which is more than a consumer has needed before"


@pytest.mark.parametrize(
    "module",
    [
        "asyncrevoke.broker.admin",
        "asyncrevoke.cli.run.workers.main",
        "asyncrevoke.client.groups.cluster",
        "asyncrevoke.client.runtime.session.open_session",
    ],
)
def test_what_loads_kio_does_not_load_hypothesis(module: str) -> None:
    assert loaded_by(f"import {module}", ["hypothesis", "kio", "pytest"]) == ["kio"]
    later = loaded_by(f"import {module}, hypothesis", ["hypothesis", "kio"])
    assert later == ["hypothesis", "kio"], "whoever needs it imports it as before"


def test_entering_a_consumer_creates_one_dataclass_which_is_for_its_user() -> None:
    script = ENTERED.format(options="", handler="") + DATACLASSES
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.splitlines()[-1].split() == ["ConsumerConfig"]


def test_the_source_of_spark_loads_no_client_and_no_columns() -> None:
    pytest.importorskip("pyspark")
    names = [*HEAVY, "numpy", "pandas", "pyarrow", "asyncrevoke.client.core.core"]
    statement = (
        "import asyncrevoke.spark; asyncrevoke.spark.KafkaSource({'topic': 'orders'}).schema()"
    )
    assert loaded_by(statement, names) == ["pyspark"]


def test_planning_in_spark_loads_nothing_that_only_tasks_need() -> None:
    pytest.importorskip("pyspark")
    names = ["numpy", "pandas", "pyarrow", "asyncrevoke.replays.opened_handlers"]
    names += ["aiokafka", "asyncrevoke.client.groups.requests"]
    planning = """
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.replays.ranges.range_consumer import consumer_of
import asyncrevoke.spark.source.table_reader, asyncrevoke.spark.reading.log_bounds
consumer_of(ConsumerConfig())
"""
    assert loaded_by(planning, names) == []


def test_columns_of_uncompressed_batches_are_read_without_another_client() -> None:
    pytest.importorskip("pyspark")
    pytest.importorskip("numpy")
    reading = """
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.spark.reading.offsets import OffsetRange
from asyncrevoke.spark.reading.range_reader import BatchReader
import asyncrevoke.client.columns.batch_columns
BatchReader(ConsumerConfig(), [OffsetRange("orders", 0, 0, 1)])
"""
    assert loaded_by(reading, ["aiokafka", "numpy"]) == ["numpy"]


@pytest.mark.parametrize("module", ["handlers.host", "handlers.dead_letters.producer"])
def test_handlers_load_the_producer_only_when_they_publish(module: str) -> None:
    assert loaded_by(f"import asyncrevoke.{module}", PRODUCER) == []
    assert loaded_by("import asyncrevoke.client.producing.record_producer", PRODUCER) == PRODUCER


def test_the_command_line_loads_no_client_before_a_command_needs_one() -> None:
    commands = (
        "import typer, asyncrevoke.cli.app as cli; dict(typer.main.get_command(cli.app).commands)"
    )
    assert loaded_by(commands) == ["rich"], "which is how it prints"


def test_the_list_of_commands_loads_no_command_and_nothing_that_draws() -> None:
    shown = """
import asyncrevoke.cli, sys
sys.argv = ["asyncrevoke", "--help"]
try:
    asyncrevoke.cli.main()
except SystemExit as ended:
    assert not ended.code
print("--")
"""
    names = ["rich", "structlog", "asyncio", "msgspec", "asyncrevoke.config", "asyncrevoke.cli.run"]
    *_, loaded = " ".join(loaded_by(shown, names)).split("--")
    assert loaded == ""


def test_the_check_of_loaded_modules_can_fail() -> None:
    assert loaded_by("import aiokafka") == ["aiokafka"]


def test_the_client_loads_no_columns_until_they_are_needed() -> None:
    names = ["numba", "numpy", "pyarrow", "asyncrevoke.client.columns"]
    statement = (
        "import asyncrevoke.client.runtime.session.open_session, asyncrevoke.consumer; "
        "import asyncrevoke.replays.ranges.topic_reader, asyncrevoke.handlers.runner"
    )
    assert loaded_by(statement, names) == []


@pytest.mark.parametrize(
    ("module", "missing", "sentence"),
    [
        (
            "opentelemetry_tracing",
            "opentelemetry",
            "OpenTelemetryTracing needs opentelemetry: pip install 'asyncrevoke[otel]'",
        ),
        (
            "opentelemetry_metrics",
            "opentelemetry.metrics",
            "OpenTelemetryMetrics needs opentelemetry.metrics: pip install 'asyncrevoke[otel]'",
        ),
    ],
)
def test_an_integration_names_the_extra_that_it_needs(
    monkeypatch: pytest.MonkeyPatch, module: str, missing: str, sentence: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    file = Path(integrations.__file__).with_name(f"{module}.py")
    with pytest.raises(ModuleNotFoundError) as raised:
        runpy.run_path(str(file))
    assert str(raised.value) == sentence
