"""Code blocks in Markdown, and how each language is run."""

import ast
import asyncio
import inspect
import json
import tomllib
import traceback
from collections.abc import Awaitable
from pathlib import Path
from typing import cast

import yaml
from sybil import Example
from sybil.parsers.markdown import CodeBlockParser

from documentation.commands import check_command, split_commands
from documentation.kafka_page import KafkaPage
from documentation.site.mermaid import Picture

DEADLINE = 60.0


def is_invisible(example: Example) -> bool:
    return "directive" in example.region.lexemes


class PythonBlocks(CodeBlockParser):
    """Runs Python; see the package's docstring."""

    language = "python"

    def evaluate(self, example: Example) -> str | None:
        try:
            self._run(example)
        except Exception as error:  # noqa: BLE001
            # As text: the chain of causes has tracebacks of its own, which Sybil cannot shorten.
            return "".join(traceback.format_exception(error))
        return None

    def _run(self, example: Example) -> None:
        page = cast("KafkaPage", example.namespace[KafkaPage.FIXTURE])
        namespace = example.namespace
        namespace["page"] = page
        namespace["__name__"] = "__main__"
        first_line = example.line + example.parsed.line_offset
        tree = ast.increment_lineno(ast.parse(str(example.parsed)), first_line)
        if not is_invisible(example):
            tree = page.with_real_places(tree)
        code = compile(
            ast.fix_missing_locations(tree),
            example.path,
            "exec",
            flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
            dont_inherit=True,
        )
        with page.running_a_block():
            if code.co_flags & inspect.CO_COROUTINE:
                asyncio.run(_bounded(cast("Awaitable[None]", eval(code, namespace))))
            else:
                exec(code, namespace)


async def _bounded(block: Awaitable[None]) -> None:
    async with asyncio.timeout(DEADLINE):
        await block


class ShellBlocks(CodeBlockParser):
    """Checks that what is typed exists."""

    language = "bash"

    def evaluate(self, example: Example) -> None:
        for command in split_commands(str(example.parsed)):
            check_command(command, Path(example.path).parent)


class YamlBlocks(CodeBlockParser):
    """Parses manifests of Kubernetes, and checks the commands of their containers."""

    language = "yaml"

    def evaluate(self, example: Example) -> None:
        manifests = list(yaml.safe_load_all(str(example.parsed)))
        assert manifests
        for manifest in manifests:
            missing = {"apiVersion", "kind", "metadata"} - manifest.keys()
            assert not missing, f"a manifest without {sorted(missing)}"
            template = manifest.get("spec", {}).get("template", {})
            for container in template.get("spec", {}).get("containers", []):
                if "command" in container:  # if not, the image's
                    check_command(container["command"], Path(example.path).parent)


class DockerfileBlocks(CodeBlockParser):
    """Checks that the command of the image exists, and is a list: a shell would keep SIGTERM."""

    language = "dockerfile"

    def evaluate(self, example: Example) -> None:
        lines = str(example.parsed).splitlines()
        (command,) = (line.removeprefix("CMD ") for line in lines if line.startswith("CMD "))
        check_command(json.loads(command), Path(example.path).parent)


class TomlBlocks(CodeBlockParser):
    """Parses TOML."""

    language = "toml"

    def evaluate(self, example: Example) -> None:
        tomllib.loads(str(example.parsed))


class MermaidBlocks(CodeBlockParser):
    """Reads a picture; ``test_pictures.py`` compares it with the code."""

    language = "mermaid"

    def evaluate(self, example: Example) -> None:
        Picture(str(example.parsed))
