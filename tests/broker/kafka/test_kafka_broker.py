from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from asyncrevoke.broker import (
    BrokerRequestError,
    BrokerStartError,
    KafkaBroker,
    KafkaCluster,
    Security,
)
from asyncrevoke.broker.admin import Admin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from asyncrevoke.broker import RunningBroker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(sys.platform == "win32", reason="signals"),
]


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.05)


async def produce(broker: RunningBroker, topic: str, *values: bytes) -> None:
    producer = AIOKafkaProducer(**broker.client_options(), acks="all")
    await producer.start()
    try:
        for value in values:
            await producer.send_and_wait(topic, value)
    finally:
        await producer.stop()


async def read(broker: RunningBroker, topic: str, count: int) -> list[bytes | None]:
    consumer = AIOKafkaConsumer(topic, **broker.client_options(), auto_offset_reset="earliest")
    await consumer.start()
    try:
        return [(await consumer.getone()).value for _ in range(count)]
    finally:
        await consumer.stop()


@pytest.fixture(scope="module")
def own_broker() -> Iterator[KafkaBroker]:
    """A broker that these tests may stop."""
    with KafkaBroker() as broker:
        yield broker


async def test_records_go_in_and_out(kafka_broker: RunningBroker, kafka_topic: str) -> None:
    await produce(kafka_broker, kafka_topic, b"one")
    assert await read(kafka_broker, kafka_topic, 1) == [b"one"]


def test_topic_has_four_partitions(kafka_broker: RunningBroker, kafka_topic: str) -> None:
    assert Admin(kafka_broker.admin_addresses[0]).partitions(kafka_topic) == 4


@pytest.mark.kafka_topic(partitions=7)
def test_marker_sets_the_number_of_partitions(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    assert Admin(kafka_broker.admin_addresses[0]).partitions(kafka_topic) == 7


@pytest.mark.parametrize("kafka_topic", [2], indirect=True)
def test_indirect_parameter_sets_the_number_of_partitions(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    assert Admin(kafka_broker.admin_addresses[0]).partitions(kafka_topic) == 2


async def test_blocking_calls_work_while_a_loop_runs(kafka_broker: RunningBroker) -> None:
    kafka_broker.create_topic("made-in-a-loop", 2)
    kafka_broker.add_partitions("made-in-a-loop", 5)
    assert Admin(kafka_broker.admin_addresses[0]).partitions("made-in-a-loop") == 5
    kafka_broker.delete_topic("made-in-a-loop")


def test_rejected_topic_is_an_error_with_kafkas_reason(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    with pytest.raises(BrokerRequestError, match="already exists") as caught:
        kafka_broker.create_topic(kafka_topic)
    assert caught.value.code == 36
    with pytest.raises(BrokerRequestError, match="unknown_topic"):
        kafka_broker.delete_topic("no-such-topic")


@pytest.mark.parametrize(
    "orderly", [True, pytest.param(False, marks=pytest.mark.variant)], ids=["orderly", "killed"]
)
async def test_restart_keeps_data_and_port(own_broker: KafkaBroker, orderly: bool) -> None:
    topic = f"kept-{orderly}"
    own_broker.create_topic(topic)
    await produce(own_broker, topic, b"one", b"two")
    before = (own_broker.bootstrap_servers, own_broker.pid)
    own_broker.restart(orderly=orderly)
    assert own_broker.bootstrap_servers == before[0]
    assert own_broker.pid != before[1]
    assert await read(own_broker, topic, 2) == [b"one", b"two"]


def test_paused_broker_is_silent_until_it_is_resumed(own_broker: KafkaBroker) -> None:
    own_broker.pause()
    try:
        with pytest.raises(TimeoutError):
            Admin(own_broker.admin_addresses[0], timeout=0.5).brokers()
    finally:
        own_broker.resume()
    wait_until(lambda: own_broker_responds(own_broker))


def own_broker_responds(broker: KafkaBroker) -> bool:
    return broker.node_id in Admin(broker.admin_addresses[0]).brokers()


def test_broken_property_is_an_error_with_the_logs_tail() -> None:
    broker = KafkaBroker(properties={"num.network.threads": "many"})
    with pytest.raises(BrokerStartError) as caught, broker:
        pass
    assert "num.network.threads" in str(caught.value)
    assert "many" in caught.value.log_tail
    assert not broker.running


def test_port_in_use_is_an_error_that_names_it(own_broker: KafkaBroker) -> None:
    port = own_broker.port
    with (
        pytest.raises(BrokerStartError, match=f"port {port} is in use: .* choose another"),
        KafkaBroker(port=port),
    ):
        pass


def test_close_ends_the_process_and_removes_the_data() -> None:
    broker = KafkaBroker()
    with broker:
        pid = broker.pid
        assert pid is not None
        folder = broker.log_path.parent
        assert folder.exists()
    assert not Path(f"/proc/{pid}").exists()
    assert not folder.exists()


async def test_given_folder_keeps_the_data_for_another_broker(tmp_path: Path) -> None:
    with KafkaBroker(folder=tmp_path / "kept") as broker:
        broker.create_topic("kept")
        await produce(broker, "kept", b"one")
    assert (tmp_path / "kept" / "broker.log").exists()
    with KafkaBroker(folder=tmp_path / "kept") as another:
        assert await read(another, "kept", 1) == [b"one"]


def test_a_broker_reads_its_classes_from_the_archive_that_one_before_has_written() -> None:
    broker = KafkaBroker()
    broker.write_class_archive()
    assert not broker.running
    with broker:
        started = Path(f"/proc/{broker.pid}/cmdline").read_bytes()
    (archive,) = [option for option in started.split(b"\0") if b"SharedArchiveFile" in option]
    assert b"/broker-classes-" in archive


def test_brokers_of_one_process_have_storage_of_their_own() -> None:
    with KafkaBroker() as first, KafkaBroker() as second:
        metas = [
            dict(
                line.split("=", 1)
                for line in (broker.log_path.parent / "data" / "meta.properties")
                .read_text()
                .splitlines()
                if "=" in line
            )
            for broker in (first, second)
        ]
        assert Admin(second.admin_addresses[0]).brokers() == {second.node_id}
    for name in ("cluster.id", "directory.id"):
        assert metas[0][name] != metas[1][name]


def test_broker_dies_with_its_killed_parent() -> None:
    script = (
        "import time\n"
        "from asyncrevoke.broker import KafkaBroker\n"
        "broker = KafkaBroker()\n"
        "broker.start()\n"
        "print(broker.pid, broker.log_path.parent, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert parent.stdout is not None
    with parent.stdout as output:
        pid, folder = output.readline().split()
    assert Path(f"/proc/{pid}").exists()
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    wait_until(lambda: not Path(folder).exists())


@pytest.mark.parametrize(
    "security",
    [
        Security(protocol="SASL_SSL", mechanism="SCRAM-SHA-256"),
        pytest.param(
            Security(protocol="SASL_PLAINTEXT", mechanism="PLAIN"), marks=pytest.mark.variant
        ),
        pytest.param(
            Security(protocol="SASL_PLAINTEXT", mechanism="SCRAM-SHA-512"),
            marks=pytest.mark.variant,
        ),
        pytest.param(Security(protocol="SSL"), marks=pytest.mark.variant),
    ],
    ids=lambda security: f"{security.protocol}-{security.mechanism}",
)
async def test_clients_pass_the_listeners_security(security: Security) -> None:
    with KafkaBroker(security=security) as broker:
        broker.create_topic("guarded")
        await produce(broker, "guarded", b"in")
        assert await read(broker, "guarded", 1) == [b"in"]
        stranger = AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=1000
        )
        with pytest.raises(KafkaError):
            await stranger.start()
        await stranger.stop()


async def test_access_control_rejects_what_is_not_allowed() -> None:
    security = Security(
        protocol="SASL_PLAINTEXT", users={"writer": "w-secret", "reader": "r-secret"}, acls=True
    )
    with KafkaBroker(security=security) as broker:
        broker.create_topic("guarded")
        broker.allow("writer", "topic", "guarded", ["write", "describe"])
        await produce(broker, "guarded", b"in")
        reader = AIOKafkaConsumer("guarded", **broker.client_options("reader"))
        with pytest.raises(TopicAuthorizationFailedError):
            await reader.start()
        await reader.stop()


def test_a_cluster_runs_without_one_of_its_brokers(kafka_cluster: KafkaCluster) -> None:
    kafka_cluster.create_topic("survives", 3)
    victim = kafka_cluster.brokers[0]
    survivor = kafka_cluster.brokers[1]
    victim.kill()
    try:

        def led_by_others() -> bool:
            admin = Admin(survivor.admin_addresses[0])
            return set(admin.brokers()) == {2, 3} and admin.partitions("survives") == 3

        wait_until(led_by_others)
    finally:
        kafka_cluster.start()
    assert kafka_cluster.bootstrap_servers.count(",") == 2
