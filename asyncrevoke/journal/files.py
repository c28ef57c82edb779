"""How files of a journal are created and opened: never through a symbolic link."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Final

from asyncrevoke.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

# Of files: the permissions of folders follow from it.
PRIVATE: Final = 0o600
# Of a segment: Journal(segment_bytes=) is at most this.
MOST_SEGMENT_BYTES: Final = 2**32
# A file may have holes: its size costs who wrote it nothing, and who reads it time.
_LARGEST: Final = 2 * MOST_SEGMENT_BYTES

_BINARY: Final[int] = getattr(os, "O_BINARY", 0)
# Windows has neither.
_NO_LINK: Final[int] = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT: Final[int] = getattr(os, "O_NONBLOCK", 0)


def folder_mode(mode: int) -> int:
    """The permissions of a folder whose files have these: who may read them may enter it."""
    return mode | (mode & 0o444) >> 2


def create_file(path: Path, mode: int) -> int:
    """A descriptor to read and write a new file. The umask may take permissions away.

    FileExistsError if there is anything of that name.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINK | _BINARY
    return os.open(path, flags, mode)


def open_file(path: Path) -> BinaryIO:
    """Open a file to read it. ConfigError if it is a link, no file, or larger than any that is
    written; OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _NO_LINK | _NO_WAIT | _BINARY)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise linked(path) from error
        raise
    found = os.fstat(descriptor)
    problem = None
    if not stat.S_ISREG(found.st_mode):
        problem = "is no regular file"
    elif found.st_size > _LARGEST:
        problem = f"has {found.st_size:,} bytes, more than any file of a journal"
    if problem is not None:
        os.close(descriptor)
        raise ConfigError(f"{path} {problem}: remove it from the journal")
    return os.fdopen(descriptor, "rb")


def check_no_link(path: Path) -> None:
    """ConfigError if this is a symbolic link."""
    if path.is_symlink():
        raise linked(path)


def linked(path: Path) -> ConfigError:
    """What is said of a symbolic link."""
    return ConfigError(
        f"{path} is a symbolic link, and a journal has none: remove it, or replace it by what it "
        "names"
    )
