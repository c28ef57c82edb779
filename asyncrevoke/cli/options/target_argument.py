"""The argument that names the consumer of an application."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

TargetArgument: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:ATTRIBUTE", help="Where the Consumer is, as in an import statement."
    ),
]
