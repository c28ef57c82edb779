"""README and docs are tests: each code block of them runs (see ``tests/documentation``)."""

from documentation.blocks import PythonBlocks, ShellBlocks, TomlBlocks
from documentation.kafka_page import KafkaPage, documented_page
from sybil import Sybil

__all__ = ["documented_page", "pytest_collect_file"]

pytest_collect_file = Sybil(
    parsers=[PythonBlocks(), ShellBlocks(), TomlBlocks()],
    patterns=["README.md", "docs/*.md"],
    fixtures=[KafkaPage.FIXTURE],
).pytest()
