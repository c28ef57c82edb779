"""SVG pictures."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

from asyncrevoke.client.printable import printable

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
