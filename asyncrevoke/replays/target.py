"""Imports the Consumer that an argument names as ``app:consumer``."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from types import FunctionType, ModuleType, TracebackType
from typing import cast

from asyncrevoke.client.printable import shown_option
from asyncrevoke.consumer import Consumer
from asyncrevoke.handlers.registry import Router

_OURS = str(Path(__file__).parents[1])


class TargetError(Exception):
    """The target names no Consumer; the message has the fix."""


def find_consumer(target: str) -> Consumer:
    """Import ``MODULE:ATTRIBUTE``, with the current folder first on the Python path.

    Raises TargetError, and any error of the module itself.
    """
    module_name, attribute = _parts(target)
    here = str(Path.cwd())
    if here not in sys.path[:1]:
        sys.path.insert(0, here)
    module = _imported(module_name, here)
    if not hasattr(module, attribute):
        raise TargetError(
            f"{module_name} has no attribute {shown_option(attribute)}: {_suggestion(module)}"
        )
    return _checked(target, attribute, getattr(module, attribute))


def from_the_module(error: Exception) -> Exception:
    """An error of the module, without the frames of this package and of importlib."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and _leads_to_the_module(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return error.with_traceback(trace)


def line_of_the_module(error: Exception) -> str:
    """``FILE:LINE`` of the user's statement that this package has rejected."""
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if not file.startswith("<") and not _leads_to_the_module(file):
            found = f"{os.path.relpath(file)}:{line}"
    return found


def _leads_to_the_module(file: str) -> bool:
    return file.startswith((_OURS, "<frozen importlib")) or file == importlib.__file__


def _parts(target: str) -> tuple[str, str]:
    module, colon, attribute = target.rpartition(":") if ":" in target else (target, "", "")
    dotted = module.removesuffix(".py").replace("\\", ".").replace("/", ".").strip(".")
    example = f"{dotted or 'app'}:{attribute or 'consumer'}"
    if not colon or not attribute:
        raise TargetError(
            f"{shown_option(target)} names no attribute: write MODULE:ATTRIBUTE, as {example}"
        )
    if not module or dotted != module:
        raise TargetError(
            f"{shown_option(module)} is not a module name: write it as in an import statement, "
            f"as {example}"
        )
    return module, attribute


def _imported(name: str, here: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name != missing and not name.startswith(f"{missing}."):
            raise
        raise TargetError(
            f"there is no module {shown_option(missing)} in {here}, nor is one installed: run the "
            f"command in the folder that {shown_option(missing.partition('.')[0])} is imported "
            "from, or install its package"
        ) from error


def _suggestion(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Consumer)]
    if names:
        return "write " + " or ".join(f"{module.__name__}:{name}" for name in names)
    return f"make one there, as {module.__name__}.consumer = Consumer(group_id=...)"


def _checked(target: str, attribute: str, found: object) -> Consumer:
    if isinstance(found, Consumer):
        return found
    if isinstance(found, Router):
        raise TargetError(
            f"{target} is a Router, whose handlers run in a Consumer: make one, call "
            f"consumer.include_router({attribute}), and name that one"
        )
    if isinstance(found, FunctionType) or found is Consumer:
        call = f"{cast('FunctionType', found).__name__}()"
        raise TargetError(
            f"{target} has to be a Consumer, not a function or class that makes one: assign it in "
            f"the module, as consumer = {call}, and name that"
        )
    raise TargetError(
        f"{target} is of the type {type(found).__name__}: name a Consumer that has handlers"
    )
