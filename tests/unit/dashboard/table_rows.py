"""Tables of the page, as text."""

from __future__ import annotations

import re


def table_rows(html: str) -> list[list[str]]:
    """The texts of the cells of each row, headings included."""
    return [
        [re.sub("<[^>]*>", "", cell) for cell in re.findall("<t[hd][^>]*>(.*?)</t[hd]>", row)]
        for row in re.findall("<tr[^>]*>(.*?)</tr>", html)
    ]
