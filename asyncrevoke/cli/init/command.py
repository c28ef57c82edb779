"""``asyncrevoke init``: a small project that works, to begin with."""

from __future__ import annotations

import json
import os
import re
import string
import sys
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from asyncrevoke.cli.terminal import USAGE

_FILES = {
    "app.py": "app.py.txt",
    "tests/test_app.py": "test_app.py.txt",
    "pyproject.toml": "pyproject.toml.txt",
    "README.md": "README.md.txt",
}


def init(
    folder: Annotated[
        Path, typer.Argument(help="Where; it is made if need be, and its name is the project's.")
    ] = Path(),
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One line for machines.")] = False,
) -> None:
    """Write a small working project: handlers, their tests, pyproject.toml and README.md.

    Nothing that exists is overwritten: then the exit code is 2, and nothing is written.

    Example: `asyncrevoke init billing`
    """
    name = _project_name(folder)
    there = [path for path in _FILES if os.path.lexists(folder / path)]
    if there:
        print(
            f"error: {folder} has {' and '.join(there)} already: name another folder",
            file=sys.stderr,
        )
        raise typer.Exit(USAGE)
    for path, source in _FILES.items():
        template = string.Template(
            files("asyncrevoke.cli.init").joinpath(source).read_text("utf-8")
        )
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("x", encoding="utf-8") as file:  # not through a link
            file.write(template.substitute(name=name))
    if as_json:
        print(json.dumps({"name": name, "folder": str(folder.resolve()), "files": list(_FILES)}))
        return
    print(f"Wrote {', '.join(_FILES)}. Next:\n")
    if folder != Path():
        print(f"    cd {folder}")
    print("    pip install -e '.[dev]' && pytest")
    print("    asyncrevoke broker --topic orders:4 --topic orders.dlq")
    print("    asyncrevoke run app:consumer --reload")


def _project_name(folder: Path) -> str:
    """The folder's name, as far as a project can have it (PEP 508)."""
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")
    return name or "consumer"
