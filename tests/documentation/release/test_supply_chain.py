"""What is installed and run to build a release is pinned to what somebody has looked at."""

import re
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
HASHED = sorted((ROOT / ".github").glob("requirements-*.txt"))
PINNED = re.compile(r"([A-Za-z0-9][\w.\-]*)==([\w.!+]+)(?: ; .+)?")


def requirements(path: Path) -> dict[str, list[str]]:
    """The hashes of each pinned requirement of a file."""
    found: dict[str, list[str]] = {}
    for block in path.read_text().replace("\\\n", " ").splitlines():
        if block and not block.startswith("#"):
            requirement, *hashes = re.split(r"\s+--hash=", block.strip())
            assert PINNED.fullmatch(requirement.strip()), block
            found[requirement.split("==")[0].lower().replace("_", "-")] = hashes
    return found


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_by_commit_with_its_version_beside_it(workflow: Path) -> None:
    used = re.findall(r"uses: *(.+)", workflow.read_text())
    pinned = re.compile(r"[\w.\-]+/[\w.\-/]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    assert used
    assert [each for each in used if not pinned.fullmatch(each)] == []


def test_an_action_has_one_commit_in_all_workflows() -> None:
    used = {line for path in WORKFLOWS for line in re.findall(r"uses: *(.+)", path.read_text())}
    assert len(used) == len({line.split("@")[0] for line in used})


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_grants_nothing_that_a_job_does_not_ask_for(workflow: Path) -> None:
    text = workflow.read_text()
    assert re.search(r"^permissions: \{\}$", text, re.MULTILINE)
    assert "secrets." not in text
    assert text.count("persist-credentials: false") == text.count("actions/checkout@")


@pytest.mark.parametrize("path", HASHED, ids=lambda path: path.name)
def test_what_a_release_is_built_with_is_pinned_by_hashes(path: Path) -> None:
    pinned = requirements(path)
    assert len(pinned) > 5
    for name, hashes in pinned.items():
        assert hashes, name
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", hash_) for hash_ in hashes), name


def test_the_bill_of_materials_has_what_the_wheel_needs_in_the_versions_that_are_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    runtime = requirements(ROOT / ".github" / "requirements-runtime.txt")
    needed = {re.split(r"[\[>=~;]", each)[0].lower() for each in project["dependencies"]}
    assert needed <= set(runtime)
    tested = (ROOT / "constraints.txt").read_text().lower().replace("_", "-").splitlines()
    text = (ROOT / ".github" / "requirements-runtime.txt").read_text()
    for name, version in PINNED.findall(text):
        assert f"{name.lower().replace('_', '-')}=={version}" in tested


@pytest.mark.parametrize("path", [ROOT / "constraints.txt", *HASHED], ids=lambda path: path.name)
def test_no_requirement_names_an_address(path: Path) -> None:
    text = path.read_text()
    assert "://" not in text
    assert "index" not in text.lower()
    assert not re.search(r"^-", text, re.MULTILINE), "neither editable nor included"


def test_constraints_are_versions_and_nothing_else() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not (line.startswith("#") or PINNED.fullmatch(line))] == []


def test_constraints_can_be_installed_on_the_first_release_of_python_3_11() -> None:
    constrained = {
        name.lower().replace("_", "-"): version
        for name, version in PINNED.findall((ROOT / "constraints.txt").read_text())
    }
    refused = {
        installed.name: installed.version
        for installed in distributions()
        if constrained.get(installed.name.lower().replace("_", "-")) == installed.version
        and "Requires-Python" in installed.metadata
        and "3.11.0" not in SpecifierSet(installed.metadata["Requires-Python"])
    }
    assert refused == {}


def test_dependencies_and_actions_are_kept_up_to_date() -> None:
    updates = (ROOT / ".github" / "dependabot.yml").read_text()
    assert set(re.findall(r"package-ecosystem: ([\w-]+)", updates)) == {"github-actions", "pip"}
    assert "dependency-review-action" in (ROOT / ".github" / "workflows" / "ci.yml").read_text()


def test_a_release_is_published_only_after_provenance_and_sbom_are_attested() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    _, *parts = re.split(r"^  (\w+):$", text[text.index("\njobs:\n") :], flags=re.MULTILINE)
    jobs = dict(zip(parts[::2], parts[1::2], strict=True))
    attest, publish = jobs["attest"], jobs["publish"]
    provenance, bill = attest.split("uses: actions/attest@")[1:]
    assert "subject-path: dist/*" in provenance
    assert "sbom-path: sbom.cdx.json" in bill
    assert "subject-path: dist/*" in bill
    assert "attestations: write" in attest
    assert "needs: [attest]" in publish
    assert "attestations: true" in publish
    # Nothing else publishes.
    assert text.count("gh-action-pypi-publish") == publish.count("gh-action-pypi-publish") == 1
