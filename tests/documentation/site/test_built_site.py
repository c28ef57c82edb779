"""The site as mkdocs builds it: strict, complete, and without anything from elsewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from documentation.site.api_pages import documented

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.skipif(
    find_spec("material") is None or find_spec("mkdocstrings") is None,
    reason="needs mkdocs-material and mkdocstrings: tox -e docs",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build in which every warning is an error: links, anchors, names, pages out of the nav."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_every_public_name_has_an_entry(site: Path) -> None:
    found = {
        name
        for page in (site / "reference" / "api").rglob("index.html")
        for name in re.findall(r'<h2 id="(asyncrevoke[\w.]+)"', page.read_text())
    }
    assert found == set(documented())


def test_methods_that_the_consumer_inherits_are_on_its_page(site: Path) -> None:
    page = (site / "reference" / "api" / "consumer" / "index.html").read_text()
    for name in ("delay_revoke", "commit", "seek_to_end", "offsets_for_times", "subscribe"):
        assert f'id="asyncrevoke.Consumer.{name}"' in page


def test_no_page_shows_what_only_the_tests_read(site: Path) -> None:
    pages = [page.read_text() for page in site.rglob("*.html")]
    assert len(pages) > 50
    for mark in ("invisible-code-block", "page.topic(", "<!-- skip", ":class:`", ":meth:`"):
        assert [page for page in pages if mark in page] == [], mark


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    loaded = re.compile(
        r'<(?:script|img|iframe)[^>]* src="((?:https?:)?//[^"]+)"|<link[^>]*'
        r'rel="(?:stylesheet|preconnect|icon)"[^>]* href="((?:https?:)?//[^"]+)"'
    )
    found = {str(page): loaded.findall(page.read_text()) for page in site.rglob("*.html")}
    assert {page: hits for page, hits in found.items() if hits} == {}


def test_the_search_finds_pages_and_docstrings(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    places = {entry["location"] for entry in index["docs"]}
    assert "tutorial/getting-started/" in places
    assert "reference/api/consumer/#asyncrevoke.Consumer.delay_revoke" in places
