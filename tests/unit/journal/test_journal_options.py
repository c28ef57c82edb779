"""Options of a journal that are rejected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from asyncrevoke import ConfigError
from asyncrevoke.journal import Journal

if TYPE_CHECKING:
    from pathlib import Path


def test_a_path_that_is_a_file_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    file.touch()
    with pytest.raises(ConfigError, match="needs a folder"):
        Journal(file)


def test_an_unknown_content_is_rejected(tmp_path: Path) -> None:
    other: Any = True
    with pytest.raises(ConfigError, match='content=True: use "batches"'):
        Journal(tmp_path, content=other)


def test_a_missing_package_is_rejected_with_the_extra_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere(_name: str) -> None: ...

    monkeypatch.setattr("importlib.util.find_spec", nowhere)
    with pytest.raises(ConfigError, match=r"pip install 'asyncrevoke\[journal\]'"):
        Journal(tmp_path)
