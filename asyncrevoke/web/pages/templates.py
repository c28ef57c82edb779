"""Renders the templates of this package, which lie beside the modules that use them.

Templates escape all text and make it printable: see :mod:`asyncrevoke.client.printable`.
"""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from asyncrevoke.client.printable import LONGEST_MESSAGE, printable


def render(template: str, **values: object) -> str:
    """Render a template, named by its path in the package."""
    return _joined(_environment().get_template(template).render(values))


def render_blocks(template: str, **values: object) -> dict[str, str]:
    """Render the blocks of a template, by name."""
    found = _environment().get_template(template)
    context = found.new_context(values)
    return {name: _joined("".join(block(context))) for name, block in found.blocks.items()}


def _joined(html: str) -> str:
    # Line breaks are from the template, because values are printable.
    return "".join(line.strip() for line in html.splitlines())


@cache
def _environment() -> Environment:
    environment = Environment(
        autoescape=True,
        finalize=_printable,
        loader=PackageLoader("asyncrevoke", ""),
        undefined=StrictUndefined,
    )
    environment.filters["grouped"] = "{:,}".format
    environment.filters["message"] = _message
    return environment


def _printable(value: object) -> object:
    return value if hasattr(value, "__html__") else printable(str(value))


def _message(text: str) -> Markup:
    """A text for which a longer limit applies."""
    return escape(printable(text, LONGEST_MESSAGE))
