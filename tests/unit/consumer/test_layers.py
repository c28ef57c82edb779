"""Imports go downward only, and the core stays pure: the contracts stand in pyproject.toml."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "asyncrevoke"
LINT = """
import sys
sys.path.insert(0, ".")
from importlinter.cli import lint_imports
sys.exit(lint_imports(config_filename="pyproject.toml", no_cache=True))
"""
CLIENTS = {"AIOKafkaProducer", "AIOKafkaConsumer", "AIOKafkaAdminClient", "AIOKafkaClient"}
# The demonstration compares with an application of aiokafka.
DEMONSTRATION = {
    "cli/demo/member/aiokafka_member.py",
    "cli/demo/producer.py",
    "cli/demo/run.py",
    "cli/demo/visible_results.py",
}
TOP = {"cli", "integrations", "spark", "testing", "web"}


def check(project: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the copy of the package in ``project``."""
    return subprocess.run(
        [
            sys.executable,
            "-c",
            LINT,
        ],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def copied_package(tmp_path: Path) -> Path:
    shutil.copytree(PACKAGE, tmp_path / "asyncrevoke", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_all_imports_go_downward_and_the_core_is_pure() -> None:
    result = check(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("module", "statement", "broken_contract"),
    [
        ("client/core/clock.py", "import time", "The core decides"),
        ("client/core/clock.py", "def now():\n    import asyncio", "The core decides"),
        ("client/protocol/wire.py", "from socket import socket", "The core decides"),
        (
            "client/core/upward.py",
            "from asyncrevoke.client.runtime import new_thing",
            "The client's folders",
        ),
        ("handlers/up.py", "def f():\n    import asyncrevoke.cli", "Imports go downward"),
        ("handlers/up.py", "import asyncrevoke.journal", "Nothing in the kernel imports"),
        ("client/up.py", "import asyncrevoke.errors", "Nothing in the kernel imports"),
        (
            "client/model.py",
            "from asyncrevoke.client.errors import ConfigError",
            "The client's folders",
        ),
        ("broker/use.py", "import asyncrevoke.client.core.io.effects", "The broker knows nothing"),
    ],
)
def test_a_forbidden_import_is_found_also_inside_a_function(
    copied_package: Path, module: str, statement: str, broken_contract: str
) -> None:
    with (copied_package / "asyncrevoke" / module).open("a") as file:
        file.write(f"\n{statement}\n")
    (copied_package / "asyncrevoke/client/runtime/new_thing.py").touch()
    result = check(copied_package)
    assert result.returncode != 0, result.stdout
    assert any(
        line.startswith(broken_contract) and " BROKEN" in line
        for line in result.stdout.splitlines()
    ), result.stdout


def in_circles(graph: grimp.ImportGraph) -> set[str]:
    """Modules that import each other, and those that import such modules."""
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    left = set(imports)
    while freed := {module for module in left if not imports[module] & left}:
        left -= freed
    return left


def test_no_imports_made_at_run_time_form_a_circle() -> None:
    graph = grimp.build_graph("asyncrevoke", exclude_type_checking_imports=True, cache_dir=None)
    assert in_circles(graph) == set()


def test_a_circle_of_run_time_imports_is_found() -> None:
    graph = grimp.ImportGraph()
    for importer, imported in [("a", "b"), ("b", "c"), ("c", "b"), ("d", "a")]:
        graph.add_import(importer=importer, imported=imported)
    assert in_circles(graph) == {"a", "b", "c", "d"}


def names_of_the_package_itself(module: Path) -> list[str]:
    """Names taken from ``asyncrevoke``, whose lazy loading no import graph can see."""
    return [
        f"{module.relative_to(ROOT)}:{node.lineno}"
        for node in ast.walk(ast.parse(module.read_text()))
        if (isinstance(node, ast.ImportFrom) and node.module == "asyncrevoke")
        and not all((PACKAGE / f"{name.name}.py").exists() for name in node.names)
        and not all((PACKAGE / name.name).is_dir() for name in node.names)
    ]


def test_lower_layers_import_nothing_from_the_top_level_package() -> None:
    lower = [
        module
        for module in PACKAGE.rglob("*.py")
        if module.relative_to(PACKAGE).parts[0] not in TOP
    ]
    assert len(lower) > 10
    assert [name for module in lower for name in names_of_the_package_itself(module)] == []


def test_no_module_but_the_demonstration_makes_a_client_of_aiokafka() -> None:
    naming = {
        str(module.relative_to(PACKAGE))
        for module in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(module.read_text()))
        if (isinstance(node, ast.ImportFrom) and CLIENTS & {name.name for name in node.names})
        or (isinstance(node, ast.Attribute) and node.attr in CLIENTS)
    }
    assert naming == DEMONSTRATION
