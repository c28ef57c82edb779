"""The files of an application that the tasks of a streaming query contain.

Spark Connect sends ``py_files`` to the workers of a query, and not to those of a streaming query
(Spark 4.2).
"""

from __future__ import annotations

import sys
from importlib import invalidate_caches
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple

from asyncrevoke.client.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

# Bytes of all files: each task has them.
_MOST_BYTES: Final = 64 * 1024 * 1024

# The folders of this process, which are removed when it ends.
_installed: dict[SentFiles, TemporaryDirectory[str]] = {}


class SentFiles(NamedTuple):
    """Modules (``.py``) and archives of packages (``.zip``, ``.egg``), each with its content."""

    files: tuple[tuple[str, bytes], ...]

    @classmethod
    def read(cls, paths: Sequence[str]) -> SentFiles:
        """Read these files. Raises ConfigError if one cannot be read, or if they are too large."""
        files: list[tuple[str, bytes]] = []
        left = _MOST_BYTES
        for path in map(Path, paths):
            if path.exists() and not path.is_file():  # reading a pipe would wait
                raise ConfigError(f"py_files: {path} is not a regular file")
            try:
                with path.open("rb") as file:
                    content = file.read(left + 1)
            except OSError as error:
                raise ConfigError(f"py_files: {path} cannot be read: {error.strerror}") from error
            left -= len(content)
            if left < 0:
                raise ConfigError(
                    f"py_files have more than {_MOST_BYTES // 2**20} MiB: install the application "
                    "where the workers run"
                )
            files.append((path.name, content))
        return cls(tuple(files))

    def install(self) -> None:
        """Make them importable in this process."""
        if not self.files or self in _installed:
            return
        temporary = _installed[self] = TemporaryDirectory(prefix="asyncrevoke-")
        folder = Path(temporary.name)
        for name, content in self.files:
            (folder / name).write_bytes(content)
            place = str(folder if name.endswith(".py") else folder / name)
            if place not in sys.path:
                sys.path.append(place)
        invalidate_caches()
