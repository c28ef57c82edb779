"""Docstrings name classes as Sphinx does (``:class:`Consumer```); the site links them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from griffe import AliasResolutionError, Extension, NameResolutionError

if TYPE_CHECKING:
    from griffe import Object

ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`(~?)([\w.]+)`")
# What the docstrings of modules name without importing it.
PACKAGE = "asyncrevoke"


class DocstringRoles(Extension):
    """Makes links of roles, and literal blocks of what follows ``::``."""

    def on_object(self, *, obj: Object, **_: object) -> None:
        """A module, class, function or attribute was read."""
        if obj.docstring is not None:
            text = re.sub(r"(?m)^( *)::$", r"\1", obj.docstring.value)
            text = re.sub(r"(?m)::$", ":", text)
            obj.docstring.value = ROLE.sub(lambda role: _link(obj, role), text)


def _link(obj: Object, role: re.Match[str]) -> str:
    short, name = role[1] == "~", role[2]
    shown = name.rpartition(".")[2] if short else name
    return f'<autoref optional identifier="{_path(obj, name)}"><code>{shown}</code></autoref>'


def _path(obj: Object, name: str) -> str:
    if name.startswith(f"{PACKAGE}."):
        return name
    first, dot, rest = name.partition(".")
    try:
        return obj.resolve(first) + dot + rest
    except (AliasResolutionError, NameResolutionError):
        return f"{PACKAGE}.{name}"
