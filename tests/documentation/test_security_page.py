"""The threat model is its tests: each row of the page names some, and each of them exists."""

import ast
import re
from pathlib import Path

import pytest

from asyncrevoke.client.config.software import __version__

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "security.md"
POLICY = ROOT / "SECURITY.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
# Tests of what hostile outsiders can do: none of these files may be missing on the page.
HOSTILE = re.compile(
    r"hostile|outside_text|_port\b|health_server|opening|scram|reported_|unreadable"
)


def threats() -> dict[str, str]:
    """The cell of tests by threat or limit, of all tables of these."""
    found: dict[str, str] = {}
    inside = False
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith(("| threat |", "| limit |")):
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("|---"):
            assert len(cells) in (2, 3), line
            found[cells[0].strip("| ")] = cells[-1]
    return found


def names_of_tests(path: Path) -> set[str]:
    """The names of the tests in a file."""
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.name.startswith("test_")
    }


def test_every_threat_has_a_test_that_exists() -> None:
    rows = threats()
    assert len(rows) > 25
    for threat, cell in rows.items():
        named = NAMED.findall(cell)
        assert named, f"no test for: {threat}"
        for path, name in named:
            assert (ROOT / path).is_file(), f"{threat}: {path}"
            assert not name or name in names_of_tests(ROOT / path), f"{threat}: {path}::{name}"


def test_every_file_of_hostile_tests_is_named_on_the_page() -> None:
    text = PAGE.read_text()
    files = [
        path
        for folder in ("unit", "wire")
        for path in (ROOT / "tests" / folder).rglob("test_*.py")
        if HOSTILE.search(path.stem)
    ]
    assert len(files) > 5
    assert [path.name for path in files if f"/{path.name}" not in text] == []


def test_examples_listen_on_this_machine_alone() -> None:
    files = [path for path in (ROOT / "examples").rglob("*") if path.is_file()]
    files.append(ROOT / "README.md")
    assert len(files) > 10
    wide = re.compile(r"0\.0\.0\.0|host=[\"']{2}|host=None|--host +(?!localhost|127\.)\S+|\[::\]")
    found = {path.name: wide.findall(path.read_text(errors="replace")) for path in files}
    assert {name for name, hits in found.items() if hits} == set()


def test_limits_of_ports_are_those_of_the_code() -> None:
    from asyncrevoke.web import http_port
    from asyncrevoke.web.dashboard import server as dashboard

    limits = http_port.PortLimits()
    (row,) = [line for line in PAGE.read_text().splitlines() if "block probes" in line]
    told = row.split(" | ")[1]
    assert f"{limits.request_seconds:g} s to send a complete request" in told
    assert (
        f"at most {limits.request_bytes // 1024} KiB and {http_port._MAX_HEADERS} headers" in told
    )
    assert f"At most {limits.waiting} connections may have sent none" in told
    assert f"At most {limits.responding} responses are sent at a time" in told
    assert f"each for at most {limits.response_seconds:g} s" in told
    assert f"(dashboard: {dashboard._LIMITS.response_seconds:g} s)" in told


@pytest.mark.parametrize("page", [POLICY, ROOT / "README.md"], ids=lambda path: path.name)
def test_links_of_the_security_policy_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        assert "://" in target or (page.parent / target).exists(), target


def test_the_repository_has_no_invented_address() -> None:
    """One placeholder in one place: whoever publishes the repository knows where."""
    text = POLICY.read_text()
    assert text.count("`REPOSITORY/security/advisories/new`") == 1
    assert "://" not in text
    assert "@" not in text, "no invented mail address"
    assert "REPOSITORY/" not in PAGE.read_text()


def test_the_supported_version_is_the_one_of_the_project() -> None:
    major, minor, *_ = __version__.split(".")
    assert f"| {major}.{minor} | yes |" in POLICY.read_text()
