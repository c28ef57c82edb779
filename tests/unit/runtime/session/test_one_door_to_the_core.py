"""Every call of the core goes through the driver, which carries out what follows: nobody can forget
it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import asyncrevoke
from asyncrevoke.client.core.core import Core
from asyncrevoke.client.runtime.loop.driver import Driver

PACKAGE = Path(asyncrevoke.__file__).parent
CORE = PACKAGE / "client" / "core"
# Methods of the core that are told the time and change nothing.
FACTS = {"alive_until", "blocking_records", "health", "revocation_ends_in"}


@cache
def trees() -> list[tuple[Path, ast.Module]]:
    """All modules of the package."""
    return [(path, ast.parse(path.read_text("utf-8"))) for path in PACKAGE.rglob("*.py")]


def functions(tree: ast.Module) -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """All methods and functions of a module, with the class that they are in."""
    return [
        (
            f"{owner.name}.{iter_child_node.name}"
            if isinstance(owner, ast.ClassDef)
            else iter_child_node.name,
            iter_child_node,
        )
        for owner in ast.walk(tree)
        for iter_child_node in ast.iter_child_nodes(owner)
        if isinstance(iter_child_node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]


@cache
def calls() -> dict[str, list[tuple[str, str]]]:
    """By the name of a method: the functions that call it, and on which attribute."""
    found: dict[str, list[tuple[str, str]]] = {}
    for _, tree in trees():
        for name, function in functions(tree):
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    on = node.func.value
                    owner = on.attr if isinstance(on, ast.Attribute) else getattr(on, "id", "")
                    found.setdefault(node.func.attr, []).append((name, owner))
    return found


def callers(method: str, owner: str | None = None) -> set[str]:
    """The functions of the package that call a method of this name (of an attribute ``owner``)."""
    return {name for name, on in calls()[method] if owner in (None, on)}


def module(path: Path) -> ast.Module:
    return next(tree for at, tree in trees() if at == path)


def chain(node: ast.expr) -> list[str]:
    """The names of ``a.b.c``."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return [node.id, *names] if isinstance(node, ast.Name) else names


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """The names of the parameters without ``self``."""
    return [arg.arg for arg in function.args.args if arg.arg != "self"]


def test_what_follows_from_a_call_is_decided_where_its_effects_are_taken() -> None:
    assert callers(Core.after_event.__name__) == {"Core.take_effects"}
    assert callers(Core.take_effects.__name__) == {
        "Core.handle",
        "ShareCore.handle",
        "Driver.flush",
    }
    assert callers(Driver.flush.__name__, "_driver") == set()
    assert callers(Driver.flush.__name__, "driver") == set()
    of_driver = functions(module(PACKAGE / "client" / "runtime" / "loop" / "driver.py"))
    flushing = {name for name, each in of_driver if "self.flush()" in ast.unparse(each)}
    assert flushing == {"Driver.call", "Driver.call_for_record", "Driver.ask"}


def test_only_the_driver_tells_the_core_the_time() -> None:
    timed = {
        name.rpartition(".")[2]
        for name, each in functions(module(CORE / "core.py"))
        if name.startswith("Core.") and parameters(each)[:1] in (["now"], ["_now"])
    }
    assert len(timed) > 30
    direct = {
        f"{name} calls {node.func.attr}"
        for path, tree in trees()
        if CORE not in path.parents
        for name, function in functions(tree)
        # What the driver calls is given the time.
        if parameters(function)[:1] != ["now"]
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and {"core", "_core"} & set(chain(node.func.value))
        and node.func.attr in timed - FACTS
    }
    inside = {"Session.seek_to calls seek_to", "Session.unsubscribe calls unsubscribe"}
    assert direct - inside == {"Driver.handle calls handle", "Driver.flush calls take_effects"}


def test_no_code_reaches_through_a_part_of_the_core() -> None:
    deep = {
        f"{path.relative_to(PACKAGE)}: {ast.unparse(node)}"
        for path, tree in trees()
        if CORE not in path.parents
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        for names in [chain(node)]
        for at, name in enumerate(names)
        if name in ("core", "_core") and len(names) > at + 3 and names[0] != "asyncrevoke"
    }
    assert deep == set()
