"""README and docs are tests: each code block of them runs (see ``tests/documentation``)."""

import gc
import signal
from collections.abc import Generator
from importlib.util import find_spec

import pytest
from broker.kafka.fixture_time import pytest_fixture_setup
from documentation.blocks import (
    DockerfileBlocks,
    MermaidBlocks,
    PythonBlocks,
    ShellBlocks,
    TomlBlocks,
    YamlBlocks,
)
from documentation.kafka_page import KafkaPage, documented_page
from sybil import Sybil
from sybil.parsers.markdown import SkipParser

__all__ = [
    "documented_page",
    "pytest_collect_file",
    "pytest_collection",
    "pytest_fixture_setup",
    "pytest_unconfigure",
]

# In the background of a script SIGINT is ignored, and would be by all that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_collect_file = Sybil(
    parsers=[
        DockerfileBlocks(),
        MermaidBlocks(),
        PythonBlocks(),
        ShellBlocks(),
        TomlBlocks(),
        YamlBlocks(),
        SkipParser(),
    ],
    patterns=["README.md", "CONTRIBUTING.md", "docs/*.md", "docs/*/*.md", "docs/*/*/*.md"],
    # Run where there is a Spark: `tox -e spark`.
    excludes=[] if find_spec("pyspark") else ["docs/how-to/spark/*.md"],
    fixtures=[KafkaPage.FIXTURE],
).pytest()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Ten thousand tests live until the end: Python looks for no garbage while they are collected,
    nor among them later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """Let the collected tests be removed with the rest."""
    gc.unfreeze()
