"""What is published: sdist and wheel are complete, reproducible, and name where they come from."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from documentation.release.installed_extras import MODULES

from asyncrevoke import __version__

if TYPE_CHECKING:
    from email.message import Message

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ADDRESS = "https://example.org/project"
# Extras that are of no use without a checkout.
OF_THE_PROJECT = {"bench", "dev", "docs"}


def build(source: Path, folder: Path, address: str, *options: str) -> list[Path]:
    """Build with the tools of this environment, as the release does."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000", "REPOSITORY_URL": address}
    environment.pop("SITE_URL", None)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), *options]
    result = subprocess.run(
        [*command, str(source)], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist, by an address."""
    wheel, sdist = build(ROOT, tmp_path_factory.mktemp("dist"), ADDRESS)
    return wheel, sdist


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        return message_from_bytes(archive.read(name))


def description(wheel: Path) -> str:
    payload = metadata(wheel).get_payload()
    assert isinstance(payload, str)
    return payload


def digests(paths: list[Path]) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def test_the_wheel_has_the_package_and_nothing_else(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as archive:
        names = set(archive.namelist())
    assert {name.partition("/")[0] for name in names} == {
        "asyncrevoke",
        f"asyncrevoke-{__version__}.dist-info",
    }
    for path in (ROOT / "asyncrevoke").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            assert path.relative_to(ROOT).as_posix() in names


def test_the_sdist_has_all_files_of_the_repository(built: tuple[Path, Path]) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("needs a checkout: git says which files the repository has")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    tracked = {name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}
    with tarfile.open(built[1]) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert sorted(tracked - packed) == []
    assert "PKG-INFO" in packed


def test_two_builds_have_the_same_bytes(built: tuple[Path, Path], tmp_path: Path) -> None:
    assert digests(build(ROOT, tmp_path, ADDRESS)) == digests(list(built))


def test_a_wheel_from_the_sdist_alone_names_the_same_addresses(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    with tarfile.open(built[1]) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    (wheel,) = build(source, tmp_path / "dist", "", "--wheel")
    assert metadata(wheel).as_bytes() == metadata(built[0]).as_bytes()


def test_the_page_of_the_package_has_no_relative_link(built: tuple[Path, Path]) -> None:
    assert metadata(built[0])["Description-Content-Type"] == "text/markdown"
    text = description(built[0])
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(targets) > 20
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []
    files = f"{ADDRESS}/blob/v{__version__}/"
    own = [target.removeprefix(files) for target in targets if target.startswith(files)]
    assert [name for name in own if not (ROOT / name.partition("#")[0]).exists()] == []
    assert "<!--" not in text


def test_the_package_names_where_its_source_is(built: tuple[Path, Path]) -> None:
    named = dict(each.split(", ") for each in metadata(built[0]).get_all("Project-URL", []))
    assert set(named) == {"Changelog", "Documentation", "Issues", "Security", "Source"}
    assert all(address.startswith(ADDRESS) for address in named.values())


def test_a_build_without_an_address_invents_none(tmp_path: Path) -> None:
    (wheel,) = build(ROOT, tmp_path, "", "--wheel")
    assert metadata(wheel)["Project-URL"] is None
    assert "](docs/" not in description(wheel)
    assert "see the rolling upgrade" in " ".join(description(wheel).split())


def test_the_version_stands_in_one_file() -> None:
    found = [
        path.relative_to(ROOT).as_posix()
        for path in (*ROOT.glob("*.toml"), *(ROOT / "asyncrevoke").rglob("*.py"))
        if re.search(rf"version.*= *[\"']{re.escape(__version__)}[\"']", path.read_text())
    ]
    assert found == ["asyncrevoke/client/config/software.py"]


def test_each_extra_is_explained_and_installed_by_tox() -> None:
    page = (ROOT / "docs" / "how-to" / "install.md").read_text()
    assert set(re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE)) == set(MODULES) - {""}
    assert set(MODULES) == {"", *PROJECT["optional-dependencies"]} - OF_THE_PROJECT
