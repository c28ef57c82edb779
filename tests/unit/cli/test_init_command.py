"""``asyncrevoke init`` writes a project whose tests pass, and overwrites nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from asyncrevoke.cli.app import app

ROOT = Path(__file__).parents[3]


def init(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["init", *arguments])
    return result.exit_code, result.output


@pytest.mark.parametrize("options", [(), ("--share",)])
def test_the_tests_of_a_new_project_pass(tmp_path: Path, options: tuple[str, ...]) -> None:
    project = tmp_path / "Billing of orders"
    code, output = init(str(project), *options)
    assert code == 0
    assert "asyncrevoke run app:consumer --reload" in output
    assert ('group_type="share"' in (project / "app.py").read_text()) == bool(options)
    settings = tomllib.loads((project / "pyproject.toml").read_text())
    assert settings["project"]["name"] == "billing-of-orders"
    assert not [path for path in project.rglob("*") if path.is_file() and "$" in path.read_text()]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "3 passed" in result.stdout


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    code, output = init(str(tmp_path))
    assert code == 2
    assert "already has README.md" in " ".join(output.split())
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    assert (tmp_path / "README.md").read_text() == "mine"


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege")
def test_a_link_that_leads_to_no_file_yet_is_there_too(tmp_path: Path) -> None:
    project = tmp_path / "billing"
    project.mkdir()
    (project / "app.py").symlink_to(tmp_path / "elsewhere.py")
    code, output = init(str(project))
    assert code == 2
    assert "already has app.py" in " ".join(output.split())
    assert not (tmp_path / "elsewhere.py").exists()


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege")
@pytest.mark.parametrize(("options", "folder"), [((), "tests"), (("--k8s",), "kubernetes")])
def test_nothing_is_written_through_a_link_to_another_folder(
    tmp_path: Path, options: tuple[str, ...], folder: str
) -> None:
    project, elsewhere = tmp_path / "billing", tmp_path / "elsewhere"
    project.mkdir()
    elsewhere.mkdir()
    (project / folder).symlink_to(elsewhere)
    code, output = init(str(project), *options)
    assert code == 2
    assert "is a link to another folder" in " ".join(output.split())
    assert not list(elsewhere.iterdir())
    assert [path.name for path in project.iterdir()] == [folder]


def test_a_folder_that_is_a_file_is_an_error_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "tests").write_text("mine")
    code, output = init(str(tmp_path))
    assert code == 1
    assert "cannot be written: File exists" in " ".join(output.split())


def test_the_next_commands_quote_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, output = init("of orders; ls")
    assert code == 0
    assert "cd 'of orders; ls'" in output


def test_as_json_it_prints_what_it_wrote(tmp_path: Path) -> None:
    code, output = init(str(tmp_path / "shop"), "--json")
    assert code == 0
    assert json.loads(output)["name"] == "shop"
    assert all((tmp_path / "shop" / path).is_file() for path in json.loads(output)["files"])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_commands(shell: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "asyncrevoke"],
        cwd=ROOT,
        env={
            **os.environ,
            "_ASYNCREVOKE_COMPLETE": f"complete_{shell}",
            "COMP_WORDS": "asyncrevoke ru",
            "COMP_CWORD": "1",
            "_TYPER_COMPLETE_ARGS": "asyncrevoke ru",
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "run" in result.stdout, result.stderr
