"""README and the page on mixed groups name the clients of ``tox -e neighbours`` with versions."""

from __future__ import annotations

import json
import re
from pathlib import Path

from asyncrevoke.broker.installation.jars import KAFKA_VERSION

ROOT = Path(__file__).parents[3]
NEIGHBOURS = ROOT / "tests" / "mixed" / "neighbours"
GO = {"IBM/sarama": "sarama", "segmentio/kafka-go": "kafka-go", "twmb/franz-go": "franz-go"}
# Those of confluent-kafka are librdkafka's.
PYTHON = {"confluent-kafka": "librdkafka", "kafka-python": "kafka-python"}


def versions_of_clients() -> dict[str, str]:
    required = (NEIGHBOURS / "go" / "go.mod").read_text("utf-8")
    pinned = (ROOT / "constraints.txt").read_text("utf-8")
    node = json.loads((NEIGHBOURS / "node" / "package.json").read_text("utf-8"))["dependencies"]
    found = {"Java": KAFKA_VERSION}
    found |= {"KafkaJS": node["kafkajs"], "@platformatic/kafka": node["@platformatic/kafka"]}
    for module, name in GO.items():
        found[name] = re.findall(rf"^\tgithub\.com/{module} v(\S+)$", required, re.MULTILINE)[0]
    for package, name in PYTHON.items():
        found[name] = re.findall(rf"^{package}==(\S+)$", pinned, re.MULTILINE)[0]
    return found


def test_the_page_on_mixed_groups_has_a_row_for_each_tested_client_and_version() -> None:
    page = (ROOT / "docs" / "explanation" / "mixed-groups.md").read_text("utf-8")
    rows = [line.split("|")[1:3] for line in page.splitlines() if line.startswith("| ")]
    named = {name.partition(" (")[0].strip(): version.strip() for name, version in rows}
    assert versions_of_clients().items() <= named.items()


def test_the_readme_names_each_tested_client_with_its_version() -> None:
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    missing = [
        f"{name} {version}"
        for name, version in versions_of_clients().items()
        if f"{name} {version}" not in readme
    ]
    assert not missing
