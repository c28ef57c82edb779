"""Every public name is on a page of ``docs/reference/api``, and every name there exists."""

import re
from importlib import import_module

from documentation.site.api_pages import PAGES, ROOT, documented, exported

import asyncrevoke

PUBLIC = (
    "",
    ".broker",
    ".config",
    ".integrations.fastapi",
    ".integrations.opentelemetry_metrics",
    ".integrations.opentelemetry_tracing",
    ".integrations.prometheus",
    ".journal",
    ".spark",
    ".testing",
)


def shown() -> set[str]:
    """Names that README, the pages and the examples import."""
    found: set[str] = set()
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("examples/*.py")):
        visible = re.sub(r"<!--.*?-->", "", path.read_text(), flags=re.DOTALL)
        for module, names in re.findall(
            r"^ *from (asyncrevoke[\w.]*) import (\([^)]*\)|.+)$", visible, re.MULTILINE
        ):
            found |= {f"{module}.{name}" for name in re.findall(r"\w+", names.partition("#")[0])}
    return found


def test_every_exported_name_is_on_one_page() -> None:
    names = [f"asyncrevoke{module}.{name}" for module in PUBLIC for name in exported(module)]
    on_pages = documented()
    assert len(names) > 100
    top = {name for name in on_pages if name.count(".") == 1}
    # What the package itself exports is documented there, not once more by its module.
    missing = [
        name
        for name in names
        if name not in on_pages and f"asyncrevoke.{name.rpartition('.')[2]}" not in top
    ]
    assert missing == []
    assert [name for name, count in on_pages.items() if count > 1] == []


def test_every_name_that_a_page_or_an_example_imports_is_on_a_page() -> None:
    on_pages = documented()
    last = {name.rpartition(".")[2] for name in on_pages}
    assert len(shown()) > 30
    # Of another package, which `asyncrevoke.Depends` is too.
    others = {"asyncrevoke.Depends"}
    assert [name for name in sorted(shown() - others) if name.rpartition(".")[2] not in last] == []


def test_every_name_on_the_pages_exists() -> None:
    for name in documented():
        module, _, attribute = name.rpartition(".")
        if not module.startswith("asyncrevoke.spark"):
            assert hasattr(import_module(module), attribute), name
        else:
            assert attribute in exported(".spark"), name


def test_every_page_is_listed_on_the_first() -> None:
    index = (PAGES / "index.md").read_text()
    pages = {page.name for page in PAGES.glob("*.md")} - {"index.md"}
    assert set(re.findall(r"\((\S+\.md)\)", index)) == pages


def test_the_page_of_the_consumer_lists_all_of_its_methods() -> None:
    text = (PAGES / "consumer.md").read_text()
    listed = re.search(r"^::: asyncrevoke\.Consumer\n(?: .+\n)+", text, re.MULTILINE)
    assert listed is not None
    names = re.findall(r"^ +- (\w+)$", listed[0], re.MULTILINE)
    assert sorted(names) == [name for name in dir(asyncrevoke.Consumer) if name[0] != "_"]
