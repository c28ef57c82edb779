"""Writes reports, pictures and documents to the files that users name."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_report_file(path: Path, text: str) -> None:
    """Write a file, or replace the one of this name. Raises OSError.

    If the name is a link, which anyone who may write to the folder can create, the link is replaced
    and its target does not change. Readers find either the old or the complete new file.
    """
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
