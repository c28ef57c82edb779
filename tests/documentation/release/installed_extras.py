"""Installs the wheel in empty environments, one for each extra, and uses what the extra is for.

python tests/documentation/release/installed_extras.py

Versions are those of constraints.txt. With --lowest, each dependency of the package has the lowest
version that pyproject.toml allows, and what only other packages depend on the newest; with
--newest, all have the newest that is no pre-release. Both need uv.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[3]
# What uv calls them.
RESOLUTIONS = {"lowest": "lowest-direct", "newest": "highest"}
# What must be there with each extra; "" is without any. A name after ":" is taken from its module.
MODULES = {
    "": ("asyncrevoke:Consumer", "asyncrevoke.testing:TestConsumer"),
    "arrow": ("asyncrevoke.client.columns.batch_columns:BatchColumns",),
    "audit": (
        "asyncrevoke.audit.local_engine",
        "asyncrevoke.audit.results.report",
        "asyncrevoke.journal",
    ),
    "broker": ("asyncrevoke.broker:start_broker", "jgo", "filelock"),
    "cli": ("asyncrevoke.cli.app", "asyncrevoke.cli.run.command"),
    "dashboard": ("asyncrevoke.web.dashboard.app", "asyncrevoke.integrations.starlette"),
    "delta": ("asyncrevoke.cli.sink.delta_table:DeltaFolder", "deltalake"),
    "demo": ("asyncrevoke.cli.demo.command", "asyncrevoke.web.dashboard.app", "jgo"),
    "depends": ("asyncrevoke:Depends",),
    "journal": ("asyncrevoke.journal:Journal", "asyncrevoke.journal.reading", "pyarrow"),
    "metrics": ("asyncrevoke.integrations.prometheus:PrometheusMetrics",),
    "numba": ("asyncrevoke.client.columns.compiled_rows:read_rows",),
    "otel": (
        "asyncrevoke.integrations.opentelemetry_metrics:OpenTelemetryMetrics",
        "asyncrevoke.integrations.opentelemetry_tracing:OpenTelemetryTracing",
    ),
    "spark": ("asyncrevoke.spark:replay", "asyncrevoke.spark:audit", "asyncrevoke.spark:handover"),
    "spark-connect": ("asyncrevoke.spark:open_session", "pyspark.sql.connect.session"),
    "testing": ("asyncrevoke.testing.pytest_plugin", "trustme", "testcontainers.core.container"),
}
# With these the command line starts.
COMMANDS = {"cli", "dashboard", "demo"}


def build_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.iterdir()
    return wheel


def install(wheel: Path, extra: str, folder: Path, versions: str) -> Path:
    """The Python of an environment with the wheel and nothing else."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    requirement = f"asyncrevoke[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
    pip = [str(python), "-m", "pip"]
    command = [*pip, "install", "--quiet", "--constraint", str(ROOT / "constraints.txt")]
    if versions in RESOLUTIONS:
        command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(python)]
        command += ["--resolution", RESOLUTIONS[versions]]
    subprocess.run([*command, requirement], check=True)
    subprocess.run([*pip, "check"], check=True, stdout=subprocess.DEVNULL)
    return python


def use(python: Path, extra: str, folder: Path) -> None:
    """Import what the extra is for, from a folder where the repository is not."""
    lines = ["import asyncrevoke, importlib", "assert 'site-packages' in asyncrevoke.__file__"]
    for each in MODULES[extra]:
        module, _, name = each.partition(":")
        lines.append(f"module = importlib.import_module({module!r})")
        lines += [f"getattr(module, {name!r})"] if name else []
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    script = [str(python), "-c", "\n".join(lines)]
    subprocess.run(script, check=True, cwd=folder, env=environment)
    if extra in COMMANDS:
        for words in (["--version"], ["groups", "--help"]):
            command = [str(python), "-m", "asyncrevoke", *words]
            subprocess.run(
                command, check=True, cwd=folder, env=environment, stdout=subprocess.DEVNULL
            )


def main() -> None:
    parser = argparse.ArgumentParser(description="Install the wheel with each extra, and use it.")
    parser.add_argument("extras", nargs="*", help="these alone; all by default", metavar="EXTRA")
    parser.set_defaults(versions="constrained")
    versions = parser.add_mutually_exclusive_group()
    for each in RESOLUTIONS:
        versions.add_argument(
            f"--{each}",
            action="store_const",
            const=each,
            dest="versions",
            help=f"the {each} versions that it allows",
        )
    chosen = parser.parse_args()
    for extra in chosen.extras or MODULES:
        # One environment at a time: Spark's alone has 500 MB.
        with tempfile.TemporaryDirectory() as folder:
            wheel = build_wheel(Path(folder, "dist"))
            python = install(wheel, extra, Path(folder, "environment"), chosen.versions)
            use(python, extra, Path(folder))
        sys.stdout.write(f"asyncrevoke{f'[{extra}]' if extra else ''}: installed and used\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
