"""Renders the templates of this package, which lie beside the modules that use them.

Templates escape all text and make it printable: see :mod:`asyncrevoke.client.printable`.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from functools import cache
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from asyncrevoke.client.printable import LONGEST_MESSAGE, printable

if TYPE_CHECKING:
    from collections.abc import Iterable


class Drawing:
    """An SVG picture, which templates include unescaped.

    Attributes are keyword arguments: ``stroke_width`` for ``stroke-width`` and ``class_`` for
    ``class``. Floats get one decimal. Text is escaped and made printable.
    """

    def __init__(self, width: int, height: int, /, **attributes: str | float) -> None:
        given = {"viewBox": f"0 0 {width} {height}", **attributes}
        self._root = ET.Element("svg", _attributes(given))

    def add(
        self, shape: str, text: str = "", title: str = "", /, **attributes: str | float
    ) -> None:
        """Add an element with this text. Browsers show ``title`` under the pointer."""
        element = ET.SubElement(self._root, shape, _attributes(attributes))
        element.text = printable(text)
        if title:
            ET.SubElement(element, "title").text = printable(title)

    def add_line(self, points: Iterable[tuple[float, float]], **attributes: str | float) -> None:
        """Add a line through these points."""
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.add("polyline", points=joined, **attributes)

    def __html__(self) -> str:
        return ET.tostring(self._root, encoding="unicode")


def _attributes(given: dict[str, str | float]) -> dict[str, str]:
    return {name.rstrip("_").replace("_", "-"): _written(value) for name, value in given.items()}


def _written(value: str | float) -> str:
    if isinstance(value, str):
        return printable(value, len(value))
    return str(value) if isinstance(value, int) else f"{value:.1f}"


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
