"""pre-commit checks what ``tox -e lint`` checks, without a download."""

import re
from pathlib import Path

from documentation.commands import configured

ROOT = Path(__file__).parents[3]
HOOKS = (ROOT / ".pre-commit-config.yaml").read_text()


def lint_commands() -> list[str]:
    return configured()["testenv:lint"]["commands"].strip().splitlines()


def test_pre_commit_runs_the_commands_of_tox_lint() -> None:
    assert re.findall(r"^ +entry: (.+)$", HOOKS, re.MULTILINE) == lint_commands()


def test_every_hook_is_local_and_runs_what_is_installed() -> None:
    assert re.findall(r"repo: (.+)", HOOKS) == ["local"]
    count = len(lint_commands())
    assert HOOKS.count("language: system") == HOOKS.count("pass_filenames: false") == count
    assert "additional_dependencies" not in HOOKS


def test_tox_lint_checks_every_issue_form() -> None:
    checked = " ".join(lint_commands())
    forms = [path.name for path in (ROOT / ".github" / "ISSUE_TEMPLATE").iterdir()]
    assert len(forms) > 1
    assert [name for name in forms if f".github/ISSUE_TEMPLATE/{name}" not in checked] == []
