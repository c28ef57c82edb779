"""Creates and opens files of a journal, never through a symbolic link."""

from __future__ import annotations

import errno
import os
import stat
from itertools import takewhile
from typing import TYPE_CHECKING, BinaryIO, Final

from asyncrevoke.client.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

# The default permissions of files. Those of folders follow from them.
PRIVATE: Final = 0o600
# The upper limit of Journal(segment_bytes=).
MOST_SEGMENT_BYTES: Final = 2**32
# Limits the time for reading a sparse file, which is large without taking disk space.
_LARGEST: Final = 2 * MOST_SEGMENT_BYTES

_BINARY: Final[int] = getattr(os, "O_BINARY", 0)
# Windows has neither flag.
_NO_LINK: Final[int] = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT: Final[int] = getattr(os, "O_NONBLOCK", 0)


def folder_mode(mode: int) -> int:
    """The permissions of a folder, for files with this mode: users who may read the files may enter
    it."""
    return mode | (mode & 0o444) >> 2


def create_folder(path: Path, mode: int) -> list[Path]:
    """Create a folder and the missing ones above it, unless it exists; ``mode`` is that of its
    files. Returns the folders that have a new entry: until they are synced, it may be gone after a
    power failure."""
    missing = list(takewhile(lambda folder: not folder.exists(), (path, *path.parents)))
    path.mkdir(folder_mode(mode), parents=True, exist_ok=True)
    return [folder.parent for folder in missing]


def create_file(path: Path, mode: int) -> int:
    """Create a file. Returns a descriptor for reading and writing. The umask may remove
    permissions.

    Raises FileExistsError if the name exists, also as a link.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINK | _BINARY
    return os.open(path, flags, mode)


def open_file(path: Path) -> BinaryIO:
    """Open a file for reading. Raises ConfigError for a link, for anything but a regular file, and
    for a file that is larger than a journal writes; OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _NO_LINK | _NO_WAIT | _BINARY)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise linked(path) from error
        raise
    found = os.fstat(descriptor)
    problem = None
    if not stat.S_ISREG(found.st_mode):
        problem = "is not a regular file"
    elif found.st_size > _LARGEST:
        problem = f"has {found.st_size:,} bytes, more than any file of a journal"
    if problem is not None:
        os.close(descriptor)
        raise ConfigError(f"{path} {problem}: remove it from the journal")
    return os.fdopen(descriptor, "rb")


def check_no_link(path: Path) -> None:
    """Raise ConfigError if this is a symbolic link."""
    if path.is_symlink():
        raise linked(path)


def linked(path: Path) -> ConfigError:
    """The error for a symbolic link."""
    return ConfigError(
        f"{path} is a symbolic link, which journals do not have: remove it, or replace it by "
        "its target"
    )
