"""What `asyncrevoke sink` says of options and folders, before it connects."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from asyncrevoke.cli.app import app
from asyncrevoke.cli.sink import command

if TYPE_CHECKING:
    from pathlib import Path

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
    assert "--since soon: write 2026-11-01" in said(kind, "orders", str(folder), "--since", "soon")
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
