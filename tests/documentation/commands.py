"""Commands as the pages show them: all that is named must exist."""

import configparser
import os
import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Commands that have commands of their own.
_GROUPS: tuple[list[str], ...] = (
    ["dead-letters"],
    ["journal"],
    ["topics"],
    ["groups"],
    ["sink"],
)
_OF_GROUPS = frozenset(("show", "configure", "lag", "reset-offsets", "delete-offsets", "delete"))
COMMAND_LINE = "import sys; from asyncrevoke.cli import main; sys.exit(main())"


def split_commands(block: str) -> list[list[str]]:
    """The words of each command of a shell block; comments are left out."""
    commands: list[list[str]] = []
    for line in block.replace("\\\n", " ").splitlines():
        words: list[str] = []
        for word in [*shlex.split(re.sub(r"(^|\s)#.*", "", line)), "&&"]:
            if word != "&&":
                words.append(word)
            elif words:
                commands.append(words)
                words = []
    return commands


def check_command(words: list[str], folder: Path) -> None:
    """Raises AssertionError if the command names something that is not there."""
    search = ""
    while re.fullmatch(r"[A-Z_]+=.*", words[0]):
        name, _, value = words[0].partition("=")
        search = value if name == "PYTHONPATH" else search
        words = words[1:]
    program, *arguments = words
    if program == "pip":
        _check_pip(arguments)
    elif program.endswith(".sh"):
        assert os.access(ROOT / program, os.X_OK), f"{program} cannot be executed"
    elif program == "source":  # the output of a command before it
        assert len(arguments) == 1, arguments
    elif program == "tox":
        _check_tox(arguments)
    elif program == "pre-commit":
        assert arguments == ["install"], arguments
        assert (ROOT / ".pre-commit-config.yaml").is_file()
    elif program == "pytest":
        _check_paths(arguments)
    elif program == "asyncrevoke":
        if arguments[:1] == ["groups"] and arguments[1:2] and arguments[1] not in _OF_GROUPS:
            arguments = ["groups", "show", *arguments[1:]]
        depth = 2 if arguments[:1] in _GROUPS else 1
        subcommand = arguments[:depth] if arguments and not arguments[0].startswith("-") else []
        _check_options(("-c", COMMAND_LINE, *subcommand), arguments)
    elif program == "kubectl":
        assert arguments == ["apply", "--filename", "kubernetes/"], arguments
    elif program == "spark-submit":
        script = next(
            argument for argument in arguments if re.search(r"examples/\w+\.py$", argument)
        )
        assert (ROOT / script.removeprefix("local:///opt/app/")).is_file(), script
    elif program == "python" and arguments[0].endswith(".py"):
        assert (ROOT / arguments[0]).is_file(), f"{arguments[0]} does not exist"
        _check_options((arguments[0],), arguments[1:])
    elif program == "python" and arguments[0] == "-m":
        subcommand = list(takewhile(str.isalpha, arguments[2:]))
        _check_options(("-m", arguments[1], *subcommand), arguments[2:], search)
    else:
        raise AssertionError(f"no check for the command {shlex.join(words)}, in {folder}")


def _check_pip(arguments: list[str]) -> None:
    assert arguments[0] == "install", arguments
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    # What pages ask to install beside us is what runs their blocks, or what pre-commit runs.
    others = [
        "tox",
        "pre-commit",
        *configured()["testenv:lint"]["deps"].split(),
        *(re.split("[>=~;]", each)[0] for each in project["optional-dependencies"]["dev"]),
    ]
    for requirement in _requirements(arguments[1:]):
        match = re.fullmatch(r"(?:\.|asyncrevoke)(?:\[(.*)\])?", requirement)
        assert match or requirement in others, f"what is {requirement}?"
        for extra in (match[1] or "").split(",") if match else []:
            assert not extra or extra in project["optional-dependencies"], f"no extra {extra}"


def _requirements(arguments: list[str]) -> list[str]:
    """What pip is to install; a file of constraints must exist."""
    if arguments[:1] == ["--constraint"]:
        assert (ROOT / arguments[1]).is_file(), f"{arguments[1]} does not exist"
        arguments = arguments[2:]
    return [argument for argument in arguments if argument != "--editable"]


def configured() -> configparser.ConfigParser:
    """``tox.ini``, read."""
    tox = configparser.ConfigParser()
    tox.read(ROOT / "tox.ini")
    return tox


def _check_tox(arguments: list[str]) -> None:
    own, _, passed_on = " ".join(arguments).partition("--")
    words = own.split()
    assert not words or (words[0] == "-e" and len(words) == 2), arguments
    commands = ""
    for environment in words[1].split(",") if words else []:
        commands = _commands_of(environment)
    program = re.search(
        r"^python -m (chaos|simulation|fuzz)( explore)? .*\{posargs", commands, re.MULTILINE
    )
    if program is not None:
        _check_options(("-m", *"".join(program.groups("")).split()), passed_on.split(), "tests")
    else:
        _check_paths(passed_on.split())


def _commands_of(environment: str) -> str:
    """The commands of a tox environment; AssertionError if there is none of this name."""
    for name, section in configured().items():
        # A section for several is written as testenv:{one,other}.
        if environment in name.partition(":")[2].strip("{}").split(","):
            return section["commands"]
    raise AssertionError(f"no tox environment {environment}")


def _check_paths(arguments: list[str]) -> None:
    for argument in arguments:
        path = argument.partition("::")[0]
        assert argument.startswith("-") or (ROOT / path).exists(), f"{path} does not exist"


def _check_options(command: tuple[str, ...], arguments: list[str], search: str = "") -> None:
    text = _help_of(command, search)
    for argument in arguments:
        if argument.startswith("--"):
            option = argument.partition("=")[0]
            assert re.search(rf"{option}\b", text), f"no option {option} of {command[-1]}"


@cache
def _help_of(command: tuple[str, ...], search: str) -> str:
    paths = [str(ROOT), *(str(ROOT / each) for each in search.split(":") if each)]
    result = subprocess.run(
        [sys.executable, *command, "--help"],
        cwd=ROOT,
        env={"COLUMNS": "200", "TERM": "dumb", "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout
