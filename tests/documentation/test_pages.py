"""README and docs say what is true: the parts that no code block can hold."""

import ast
import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from sybil import Sybil
from sybil.example import SybilFailure

import asyncrevoke
from documentation.blocks import (
    DockerfileBlocks,
    MermaidBlocks,
    PythonBlocks,
    ShellBlocks,
    TomlBlocks,
    YamlBlocks,
)
from documentation.kafka_page import KafkaPage
from documentation.option_reference import LIST_PAGE, options, with_reference
from documentation.option_reference import PAGES as OPTION_PAGES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# What the benchmarks have written.
WITHOUT_BLOCKS = (DOCS / "benchmarks",)
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(path for path in DOCS.rglob("*.md") if not {*path.parents} & {*WITHOUT_BLOCKS}),
]
LINKED = [
    *PAGES,
    ROOT / "CHANGELOG.md",
    ROOT / "CODE_OF_CONDUCT.md",
    ROOT / "SECURITY.md",
    *sorted(page for folder in WITHOUT_BLOCKS for page in folder.rglob("*.md")),
    *sorted((ROOT / "tests").rglob("README.md")),
]
ORACLES = ROOT / "tests" / "simulation" / "invariants"
BLOCKS = (DockerfileBlocks, MermaidBlocks, PythonBlocks, ShellBlocks, TomlBlocks, YamlBlocks)

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def anchor(heading: str) -> str:
    """A heading's anchor, as code hosts make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def headings(page: Path) -> list[str]:
    """The anchors of a page."""
    return [anchor(line.lstrip("#")) for line in page.read_text().splitlines() if line[:1] == "#"]


@every_page
def test_every_code_block_has_a_language_that_is_run(page: Path) -> None:
    fences = [token for token in MarkdownIt().parse(page.read_text()) if token.type == "fence"]
    languages = {block.language for block in BLOCKS}
    assert [token.info for token in fences if token.info not in languages] == []
    regions = Sybil(parsers=[block() for block in BLOCKS]).parse(page).examples()
    visible = [example for example in regions if "directive" not in example.region.lexemes]
    assert len(visible) == len(fences)


def test_the_whole_service_has_at_most_60_lines() -> None:
    page = (DOCS / "tutorial" / "getting-started.md").read_text().partition("## A whole service")[2]
    fences = [token.content for token in MarkdownIt().parse(page) if token.type == "fence"]
    assert len(fences[0].splitlines()) <= 60


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for text, target in re.findall(r"\[([^\]]*)\]\(([^)\s]+)\)", page.read_text()):
        path, _, fragment = target.partition("#")
        if "://" in path:
            continue
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"[{text}]({target})"
        if fragment:
            assert fragment in headings(linked), f"[{text}]({target})"


def test_every_decision_is_listed_and_has_the_same_parts() -> None:
    page = (DOCS / "internals" / "architecture.md").read_text()
    parts = ["Context", "Decision", "When to revisit"]
    for record in sorted((DOCS / "internals" / "decisions").glob("*.md")):
        for section in record.read_text().split("\n## ")[1:]:
            title, _, text = section.partition("\n")
            assert f"(decisions/{record.name}#{anchor(title)})" in page, title
            assert re.findall(r"^\*\*([A-Z][\w ]+)\.\*\*", text, re.MULTILINE) == parts, title


def test_the_blocks_of_every_page_are_collected() -> None:
    patterns = re.findall(r'"([\w*/]+\.md)"', (ROOT / "conftest.py").read_text())
    pages = [page.relative_to(ROOT) for page in PAGES]
    assert [page for page in pages if not any(page.match(pattern) for pattern in patterns)] == []


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    linked = set(re.findall(r"[\w/-]+\.md", navigation))
    pages = [page.relative_to(DOCS).as_posix() for page in PAGES if page.is_relative_to(DOCS)]
    assert len(pages) > 60
    assert [page for page in pages if page not in linked] == []


@pytest.mark.parametrize("page", [*OPTION_PAGES.values(), LIST_PAGE], ids=lambda page: page.name)
def test_the_options_are_described_as_in_the_code(page: Path) -> None:
    assert page.read_text() == with_reference(page), (
        f"{page.name} is behind: run python tests/documentation/option_reference.py"
    )


def test_every_option_that_a_page_names_exists() -> None:
    known = {name for name, *_ in options()}
    pages = "|".join(page.stem for page in OPTION_PAGES.values())
    for page in PAGES:
        for name in re.findall(rf"/(?:{pages})\.md#(\w+)", page.read_text()):
            assert name in known, f"{page.name}: {name}"


def test_every_exception_is_explained() -> None:
    tree = ast.parse((ROOT / "asyncrevoke" / "errors.py").read_text())
    exceptions = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    page = (DOCS / "reference" / "errors.md").read_text()
    assert [name for name in exceptions if name not in asyncrevoke.__all__] == []
    assert [name for name in exceptions if f"`{name}`" not in page] == []


@every_page
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    for path, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page.read_text()):
        assert (ROOT / path).is_file(), path
        if name:
            tree = ast.walk(ast.parse((ROOT / path).read_text()))
            functions = (ast.FunctionDef, ast.AsyncFunctionDef)
            assert any(isinstance(node, functions) and node.name == name for node in tree), name


def test_every_invariant_has_an_oracle_or_a_test_that_the_page_names() -> None:
    page = (DOCS / "reference" / "guarantees.md").read_text()
    rows = dict(re.findall(r"^\| (I\d+) \|(.*)$", page, re.MULTILINE))
    assert set(rows) == {f"I{number}" for number in range(1, 22)}
    simulation = "".join(path.read_text() for path in ORACLES.rglob("*.py"))
    oracles = set(re.findall(r'"(I\d+)"', simulation))
    assert [name for name in rows if name not in oracles and "`tests/" not in rows[name]] == []


def test_every_module_that_tox_runs_exists() -> None:
    for module in re.findall(r"python -m (benchmarks\.[\w.]+)", (ROOT / "tox.ini").read_text()):
        assert (ROOT / f"{module.replace('.', '/')}.py").is_file(), module


@pytest.mark.parametrize(
    ("block", "why"),
    [
        (
            "```python\nimport asyncio\nawait asyncio.sleep(0)\nraise LookupError\n```",
            "LookupError",
        ),
        ("```python\nthis is no Python\n```", "SyntaxError"),
        ("<!-- invisible-code-block: python\nassert 1 == 2\n-->", "AssertionError"),
        ("```bash\ntox -e no-such-environment\n```", "no tox environment"),
        ("```bash\ntox -e chaos -- --no-such-option\n```", "no option"),
        ("```bash\npip install '.[no-such-extra]'\n```", "no extra"),
        ("```bash\nasyncrevoke no-such-command\n```", "No such command"),
        ("```bash\npython examples/handlers.py --no-such-option\n```", "no option"),
        ("```bash\nrm -rf build\n```", "no check for the command"),
        ("```mermaid\npie\n```", "not one of"),
        ("```toml\n[broken\n```", "Expected"),
        ("```yaml\nkind: Pod\n```", "apiVersion"),
    ],
)
def test_a_broken_block_fails(tmp_path: Path, block: str, why: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\n{block}\n")
    document = Sybil(parsers=[kind() for kind in BLOCKS]).parse(page)
    document.namespace[KafkaPage.FIXTURE] = KafkaPage(lambda: "no broker is needed")
    (example,) = document.examples()
    with pytest.raises((SybilFailure, AssertionError, ValueError), match=why):
        example.evaluate()
