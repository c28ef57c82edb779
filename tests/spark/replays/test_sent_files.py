"""Files that the tasks of a streaming replay bring with them."""

from __future__ import annotations

import pickle
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.spark.replays import rows_task
from asyncrevoke.spark.replays.rows_task import SentFiles

if TYPE_CHECKING:
    from pathlib import Path

INSTALLS = """
import pickle, sys
files = pickle.loads(open(sys.argv[1], "rb").read())
files.install()
files.install()
import one_module, one_package.inner
print(one_module.NAME, one_package.inner.NAME, len([p for p in sys.path if "asyncrevoke-" in p]))
"""


def test_modules_and_archives_are_importable_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "one_module.py").write_text("NAME = 'module'")
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        archive.writestr("one_package/__init__.py", "")
        archive.writestr("one_package/inner.py", "NAME = 'package'")
    files = SentFiles.read([str(tmp_path / "one_module.py"), str(tmp_path / "packed.zip")])
    (tmp_path / "pickled").write_bytes(pickle.dumps(files))
    (tmp_path / "one_module.py").unlink()
    told = subprocess.run(
        [sys.executable, "-c", INSTALLS, str(tmp_path / "pickled")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout == "module package 2\n"


def test_files_that_are_missing_or_too_large_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"py_files: .*app\.py cannot be read: No such file"):
        SentFiles.read([str(tmp_path / "app.py")])
    with pytest.raises(ConfigError, match="is not a regular file"):
        SentFiles.read([str(tmp_path)])
    monkeypatch.setattr(rows_task, "_MOST_BYTES", 2**20)
    (tmp_path / "app.py").write_bytes(b"#" * 2**19)
    SentFiles.read([str(tmp_path / "app.py")] * 2)
    (tmp_path / "more.py").write_bytes(b"#")
    with pytest.raises(ConfigError, match="py_files have more than 1 MiB"):
        SentFiles.read([str(tmp_path / name) for name in ("app.py", "app.py", "more.py")])
