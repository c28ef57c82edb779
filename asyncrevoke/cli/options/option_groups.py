"""Passes options to commands as dataclasses, so that several commands can share them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import MISSING, fields
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, get_type_hints

import typer

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_OPTION: Final = re.compile(
    r"\b(bootstrap_servers|end|group|journal|limit|max_attempts|max_sessions|memory_limit|missing"
    r"|processing|py_files|rate|resend_in_doubt|sasl_mechanism|security_protocol|start|to|topic)="
    r"(True\b)?"
)
_NAMES: Final = {"start": "from", "end": "to"}


def as_flags(message: object) -> str:
    """``limit=0`` as ``--limit 0``, ``start=0`` as ``--from 0``, and ``resend_in_doubt=True`` as
    ``--resend-in-doubt``."""

    def flag(option: re.Match[str]) -> str:
        name = _NAMES.get(option[1], option[1])
        return f"--{name.replace('_', '-')}{'' if option[2] else ' '}"

    return _OPTION.sub(flag, str(message))


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


Command: TypeAlias = Callable[..., None]


def takes(name: str, group: type[DataclassInstance]) -> Callable[[Command], Command]:
    """Add the fields of ``group`` to a command as options; it receives them as ``name``."""
    return partial(_with_options, name=name, group=group)


def _with_options(command: Command, name: str, group: type[DataclassInstance]) -> Command:
    names = {field.name for field in fields(group)}

    def run(**arguments: Any) -> None:  # noqa: ANN401 - arguments of the command
        given = {name: arguments.pop(name) for name in names & arguments.keys()}
        command(**arguments, **{name: group(**given)})

    signature = inspect.signature(command, eval_str=True)
    hints = get_type_hints(group, include_extras=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != name]
    shared = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]
    parameters = [*own, *shared]
    described: Any = run
    described.__signature__ = signature.replace(parameters=parameters)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__module__ = command.__module__
    return run
