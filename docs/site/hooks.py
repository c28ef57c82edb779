"""How the pages of ``docs/`` become the site's: mkdocs calls these functions (``mkdocs.yml``).

The site has the project's own pages too (CONTRIBUTING.md and others, which lie beside ``docs/``),
and no page shows what the tests alone read: comments with code to prepare and to check.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

# A table with a longer cell is of sentences.
_LONG_CELL = 60
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_HEAD_CELL = re.compile(r"<th(?:\s[^>]*)?>(.*?)</th>", re.DOTALL)
_ROW = re.compile(r"<tr>\n<td.*?</tr>", re.DOTALL)
_CELL = re.compile(r"<td([^>]*)>(.*?)</td>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Pages of the repository's top, by their place on the site.
PROJECT_PAGES = {
    f"project/{name.lower()}": ROOT / name
    for name in ("CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md")
}
# Code is left alone; what looks like a fence inside a comment belongs to the comment.
_PARTS = re.compile(
    r"^(?P<ticks>`{3,}).*?^(?P=ticks)`*$"
    r"|(?P<comment>^<!--.*?-->\n?)"
    r"|(?P<link>\[(?P<text>(?:[^\]\[]|\[[^\]]*\])*)\]\((?P<path>[^)#\s]*)(?P<fragment>#[^)\s]*)?\))",
    re.MULTILINE | re.DOTALL,
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the project's own pages."""
    from mkdocs.structure.files import File

    for place, path in PROJECT_PAGES.items():
        files.append(File.generated(config, place, content=path.read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Remove the tests' comments, and mend links that leave ``docs/``."""
    return prepare(markdown, page.file.src_uri, config.repo_url)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let tables of sentences be read on a narrow screen, see ``pages.css``."""
    return with_labelled_cells(content)


def with_labelled_cells(content: str) -> str:
    """HTML in which each cell of a table of sentences names its column."""
    return _TABLE.sub(_labelled, content)


def _labelled(table: re.Match[str]) -> str:
    if all(len(_TAG.sub("", cell)) <= _LONG_CELL for _, cell in _CELL.findall(table[0])):
        return table[0]
    labels = [_TAG.sub("", cell).replace('"', "&quot;") for cell in _HEAD_CELL.findall(table[0])]

    def of_row(row: re.Match[str]) -> str:
        columns = iter(labels)
        return _CELL.sub(
            lambda cell: f'<td{cell[1]} data-label="{next(columns, "")}">{cell[2]}</td>', row[0]
        )

    return _ROW.sub(of_row, table[0]).replace("<table>", '<table data-sentences="">', 1)


def prepare(markdown: str, place: str, repository: str | None) -> str:
    """The page at ``place`` (relative to ``docs/``) as the site shows it.

    A link to a file that the site does not have leads to ``repository``; it is text alone where
    no address of the repository is known.
    """
    source = PROJECT_PAGES.get(place, DOCS / place)

    def as_shown(part: re.Match[str]) -> str:
        if part["comment"]:
            return ""
        return _mended_link(part, source, place, repository) if part["link"] else part[0]

    return _PARTS.sub(as_shown, markdown)


def _mended_link(link: re.Match[str], source: Path, place: str, repository: str | None) -> str:
    text, path, fragment = link["text"], link["path"], link["fragment"] or ""
    if not path or ":" in path:
        return link[0]
    target = Path(os.path.normpath(source.parent / path))
    pages = {path: place for place, path in PROJECT_PAGES.items()}
    if target in pages:
        shown = pages[target]
    elif target.suffix and target.is_relative_to(DOCS):
        shown = target.relative_to(DOCS).as_posix()
    elif repository:
        kind = "tree" if target.is_dir() else "blob"
        return f"[{text}]({repository}/{kind}/main/{target.relative_to(ROOT).as_posix()}{fragment})"
    else:
        return text
    return f"[{text}]({os.path.relpath(shown, Path(place).parent.as_posix())}{fragment})"
