"""What commands that call the handlers of a consumer again have in common."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypeAlias

import typer

TargetArgument: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:ATTRIBUTE", help="Where the Consumer is, as in an import statement."
    ),
]


class ErrorsName(StrEnum):
    """How a replay treats a failed record."""

    RECORD = "record"
    POLICY = "policy"
    FAIL = "fail"
