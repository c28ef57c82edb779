from __future__ import annotations

from asyncrevoke.broker.listeners.security import Security
from asyncrevoke.broker.process.properties import BrokerNode, broker_properties, properties_text

ONE = BrokerNode(node_id=1, clients_port=9001, brokers_port=9002, controller_port=9003)
TWO = BrokerNode(node_id=2, clients_port=9011, brokers_port=9012, controller_port=9013)
THREE = BrokerNode(node_id=3, clients_port=9021, brokers_port=9022, controller_port=9023)


def properties(
    *nodes: BrokerNode,
    security: Security | None = None,
    quick: bool = True,
    extra: dict[str, str] | None = None,
) -> dict[str, str]:
    return broker_properties(
        nodes[0],
        nodes,
        data="/data",
        key_store="/key.pem",
        security=security or Security(),
        quick=quick,
        extra=extra or {},
    )


def test_one_broker_is_its_own_controller() -> None:
    found = properties(ONE)
    assert found["process.roles"] == "broker,controller"
    assert found["controller.quorum.voters"] == "1@127.0.0.1:9003"
    assert found["advertised.listeners"] == "CLIENTS://127.0.0.1:9001,BROKERS://127.0.0.1:9002"
    assert found["offsets.topic.replication.factor"] == "1"
    assert found["offsets.topic.num.partitions"] == "1"


def test_three_brokers_keep_three_copies_and_all_vote() -> None:
    found = properties(TWO, ONE, THREE)
    assert found["node.id"] == "2"
    assert found["controller.quorum.voters"].count("@") == 3
    assert found["default.replication.factor"] == "3"
    assert found["transaction.state.log.replication.factor"] == "3"


def test_benchmarks_keep_kafkas_own_waiting_times() -> None:
    assert properties(ONE)["group.initial.rebalance.delay.ms"] == "0"
    slow = properties(ONE, quick=False)
    assert not [name for name in slow if name.startswith("group.")]


def test_extra_properties_come_last() -> None:
    assert properties(ONE, extra={"log.dirs": "/elsewhere"})["log.dirs"] == "/elsewhere"


def test_clients_security_leaves_the_brokers_listener_plain() -> None:
    found = properties(ONE, security=Security(protocol="SASL_SSL"))
    assert found["listener.security.protocol.map"] == (
        "CLIENTS:SASL_SSL,BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT"
    )
    assert found["listener.name.clients.ssl.keystore.location"] == "/key.pem"


def test_text_escapes_what_java_would_read_otherwise() -> None:
    text = properties_text({"b": "C:\\data", "a": " x"})
    assert text == "a=\\ x\nb=C:\\\\data\n"
