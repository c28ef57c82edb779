"""``asyncrevoke topics`` on a real broker."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from asyncrevoke import Producer
from asyncrevoke.broker.admin import wait_for_topic
from asyncrevoke.cli.app import app

if TYPE_CHECKING:
    from typer.testing import Result

    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


class Topics:
    """Runs the commands of ``asyncrevoke topics``."""

    def __init__(self, servers: str) -> None:
        self.servers = servers

    def run(self, *arguments: str) -> Result:
        command = ["topics", *arguments, "--bootstrap-servers", self.servers]
        return CliRunner().invoke(app, command)

    def json(self, *arguments: str) -> Any:
        result = self.run(*arguments, "--json")
        assert (result.exit_code, result.stderr) == (0, "")
        return json.loads(result.stdout)


async def publish(servers: str, topic: str, records: int) -> None:
    async with Producer(bootstrap_servers=servers) as producer:
        for number in range(records):
            await producer.publish(topic, b"v", key=b"%d" % number, partition=1)


@pytest.fixture
def topics(kafka_broker: RunningBroker) -> Topics:
    return Topics(kafka_broker.bootstrap_servers)


def test_a_topic_is_created_with_options_described_and_deleted(topics: Topics) -> None:
    name = f"orders-{uuid.uuid4().hex}"
    compacted = ("--config", "cleanup.policy=compact", "--config", "segment.bytes=1048576")
    made = topics.json("create", f"{name}:2", *compacted)
    assert made == [{"topic": name, "created": True, "partitions": 2}]
    wait_for_topic([topics.servers], name, 2, timeout=30)
    asyncio.run(publish(topics.servers, name, 3))

    (found,) = topics.json("describe", name)
    assert (found["topic"], found["internal"]) == (name, False)
    assert uuid.UUID(found["topic_id"]).int != 0
    assert found["config"] == {"cleanup.policy": "compact", "segment.bytes": "1048576"}
    assert [
        (each["partition"], each["start"], each["end"], each["in_sync"] == each["replicas"])
        for each in found["partitions"]
    ] == [(0, 0, 0, True), (1, 0, 3, True)]
    shown = topics.run("describe", name).stdout
    assert shown.splitlines()[0].startswith(f"{name}: 2 partitions, id ")
    assert "cleanup.policy=compact" in shown

    only_shown = topics.run("delete", name)
    assert only_shown.stdout == (
        f"would delete {name}: 2 partitions, at most 3 records\nnothing was deleted: add --apply\n"
    )
    assert name in {each["topic"] for each in topics.json("list")}
    refused = topics.run("delete", name, f"{name}.other", "--apply")
    assert refused.exit_code == 1
    assert f"there is no topic '{name}.other'" in refused.stderr
    deleted = topics.run("delete", name, "--apply")
    assert (deleted.exit_code, deleted.stdout) == (
        0,
        f"deleted {name}: 2 partitions, at most 3 records\n",
    )
    assert topics.run("describe", name).exit_code == 1


def test_a_topic_that_exists_is_left_as_it_is_if_asked_for(topics: Topics) -> None:
    name = f"orders-{uuid.uuid4().hex}"
    assert topics.run("create", f"{name}:2").exit_code == 0
    again = topics.run("create", f"{name}:3", f"{name}.dlq:1", "--if-not-exists")
    assert (again.exit_code, again.stdout, again.stderr) == (
        0,
        f"{name} exists\ncreated {name}.dlq with 1 partition\n",
        "",
    )
    wait_for_topic([topics.servers], name, 2, timeout=30)
    assert len(topics.json("describe", name)[0]["partitions"]) == 2


def test_an_option_that_the_broker_does_not_know_is_its_error(topics: Topics) -> None:
    name = f"orders-{uuid.uuid4().hex}"
    refused = topics.run("create", name, "--config", "cleanup.polici=compact")
    assert refused.exit_code == 1
    assert "invalid_config" in refused.stderr
    assert "cleanup.polici" in refused.stderr
    assert name not in {each["topic"] for each in topics.json("list")}


def test_topics_of_kafka_itself_are_listed_if_asked_for(
    topics: Topics, kafka_topic: str, kafka_broker: RunningBroker
) -> None:
    assert kafka_broker.bootstrap_servers == topics.servers
    own = {each["topic"]: each for each in topics.json("list")}
    assert (own[kafka_topic]["offline"], own[kafka_topic]["behind"]) == (0, 0)
    assert not any(each["internal"] for each in own.values())
    assert set(own) <= {each["topic"] for each in topics.json("list", "--internal")}
    table = topics.run("list").stdout
    assert table.split()[:5] == ["topic", "partitions", "replicas", "offline", "behind"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "orders", "--config", "cleanup.policy"),
        ("create", "orders", "--config", "=compact"),
        ("create", "orders", "--config", "a=1", "--config", "a=2"),
        ("describe", "a b"),
        ("delete", "a b"),
    ],
)
def test_a_mistake_in_what_was_typed_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    assert Topics("127.0.0.1:1").run(*arguments).exit_code == 2
