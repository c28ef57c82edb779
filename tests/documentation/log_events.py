"""The events that the code logs, read from its syntax: level, name and fields of each.

What is put in at run time is `…` in a name.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "asyncrevoke"
PLACES = ("client", "handlers", "journal", "consumer.py", "cli/run")

# Where a method has the event's name, and the level of what it writes; None: its first argument.
METHODS = {
    "emit": (1, None),
    "waiting": (2, "warning"),
    "watch": (2, "warning"),
    "over": (2, "info"),
    "debug": (0, "debug"),
    "info": (0, "info"),
    "warning": (0, "warning"),
    "error": (0, "error"),
    "exception": (0, "error"),
    "_warn": (0, "warning"),
}
# Bound by the method itself, not named where it is called.
BOUND = {
    "waiting": ("seconds",),
    "watch": ("seconds",),
    "over": ("seconds",),
    "_warn": ("handler", "offset", "partition"),
}


# A field's name that stands for any: what is passed on from elsewhere.
ANY = "**"


def logged_events() -> dict[tuple[str, str], set[str]]:
    """The fields of each, by its level and name."""
    found: dict[tuple[str, str], set[str]] = {}
    for path in _files():
        for event, fields in _events_of(ast.parse(path.read_text())):
            found.setdefault(event, set()).update(fields)
    return found


def _files() -> Iterator[Path]:
    for place in PLACES:
        path = PACKAGE / place
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _events_of(tree: ast.Module) -> Iterator[tuple[tuple[str, str], set[str]]]:
    for call in ast.walk(tree):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
            continue
        method = call.func.attr
        if method not in METHODS or not _is_a_log(method, call.func.value):
            continue
        position, level = METHODS[method]
        if len(call.args) <= position:
            continue
        levels = [level] if level else _texts(call.args[0])
        for name in _texts(call.args[position]):
            fields = {ANY if word.arg is None else word.arg for word in call.keywords}
            fields.update(BOUND.get(method, ()))
            if method == "watch":
                fields.add(ANY)
            yield from (((each, name), fields) for each in levels if name != "…")


def _is_a_log(method: str, owner: ast.expr) -> bool:
    return method in ("emit", "_warn") or "log" in ast.unparse(owner).lower()


def _texts(node: ast.expr) -> list[str]:
    """The texts that an expression may be."""
    match node:
        case ast.Constant(str(text)):
            return [text]
        case ast.JoinedStr(parts):
            return [
                "".join(
                    str(each.value) if isinstance(each, ast.Constant) else "…" for each in parts
                )
            ]
        case ast.IfExp(_, one, other):
            return [*_texts(one), *_texts(other)]
        case _:
            return ["…"]
