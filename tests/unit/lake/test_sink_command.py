"""What `asyncrevoke sink` says of options and folders, before it connects."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, cast

import pytest
from typer.testing import CliRunner

from asyncrevoke.cli.app import app
from asyncrevoke.cli.sink import command
from asyncrevoke.cli.sink.progress import Progress
from asyncrevoke.cli.sink.running import Sink
from asyncrevoke.cli.sink.store import Closed
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.cli.sink.parquet_file import ParquetFile

pytest.importorskip("pyarrow", reason="needs the extra arrow")
pytest.importorskip("deltalake", reason="needs the extra delta")

NOWHERE = ("--bootstrap-servers", "127.0.0.1:1", "--group", "lake")


def said(*arguments: str, code: int = 2) -> str:
    result = CliRunner().invoke(app, ["sink", *arguments, *NOWHERE])
    assert result.exit_code == code, result.output
    return result.stderr


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_wrong_options_are_named_and_create_no_folder(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    assert "there is no column 'price': choose from key, value" in said(
        kind, "orders", str(folder), "--columns", "key,price"
    )
    assert "columns=['key', 'key'] has a column twice" in said(
        kind, "orders", str(folder), "--columns", "key,key"
    )
    said(kind, "orders", str(folder), "--max-bytes", "0")
    assert "--since soon: write now, 2026-11-01" in said(
        kind, "orders", str(folder), "--since", "soon"
    )
    assert "s3://bucket/orders is no local folder" in said(kind, "orders", "s3://bucket/orders")
    assert not folder.exists()


def test_a_delta_table_without_deltalake_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> object:
        return None if name == "deltalake" else find_spec(name, package)

    monkeypatch.setattr("asyncrevoke.cli.sink.delta_table.find_spec", without)
    assert said("delta", "orders", str(tmp_path)) == (
        'error: a Delta table needs the package deltalake: pip install "asyncrevoke[cli,delta]"\n'
    )


def test_a_missing_topic_is_all_that_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(_sink: Sink, *, until_end: bool) -> None:
        raise ConfigError(f"there is no topic nosuch ({until_end=})")

    monkeypatch.setattr(Sink, "run", run)
    assert said("parquet", "nosuch", str(tmp_path / "lake"), "--until-end") == (
        "error: there is no topic nosuch (until_end=True)\n"
    )


def test_what_was_stored_is_printed_after_an_error_only_if_something_was_shown_or_stored(
    capsys: pytest.CaptureFixture[str],
) -> None:
    partition, file = TopicPartition("orders", 0), cast("ParquetFile", None)

    def failed(progress: Progress, stored: int) -> str:
        with pytest.raises(ConfigError), progress:
            for number in range(stored):
                progress.stored(Closed(partition, number, number + 1, 1, 10**6, file))
            raise ConfigError("there is no topic orders")
        return capsys.readouterr().err

    assert failed(Progress("lake"), stored=0) == ""
    assert failed(Progress("lake"), stored=2).startswith("lake: 2 rows in 2 files (2.0 MB) in ")
    with Progress("lake"):
        pass
    assert capsys.readouterr().err.startswith("lake: 0 rows in 0 files (0.0 MB) in ")


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_help_has_an_example(kind: str) -> None:
    result = CliRunner().invoke(app, ["sink", kind, "--help"])
    assert f"Example: asyncrevoke sink {kind} orders" in result.output.replace("`", "")


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_missing_package_is_named_with_its_extra(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_nothing(_name: str) -> None:
        """No package is installed."""

    monkeypatch.setattr(command, "find_spec", find_nothing)
    result = CliRunner().invoke(app, ["sink", kind, "orders", str(tmp_path), *NOWHERE])
    assert result.exit_code == 2
    assert 'a sink needs the package pyarrow: pip install "asyncrevoke[cli,arrow]"' in result.stderr
