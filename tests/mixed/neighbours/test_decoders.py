"""What members of this library send, read by the decoders of other clients, also strict ones.

sarama rejects bytes after what it knows; its ``Plan`` is given the subscription of each assignor.
The decoders of kafka-go and @platformatic/kafka are private: whole groups try them.
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest
from mixed.neighbours.programs import program

from asyncrevoke import TopicPartition
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.assignors import ASSIGNORS, Member
from asyncrevoke.client.core.membership.classic.led_generation import (
    LedGeneration,
    plan_assignment,
)
from asyncrevoke.client.core.membership.classic.user_data import (
    LastAssignment,
    subscription_user_data,
)
from asyncrevoke.client.protocol.subscription import Subscription, encode_subscription

if TYPE_CHECKING:
    from mixed.group import Client

GENERATION = 3
OWNED = (TopicPartition("orders", 0),)
CLIENTS: tuple[Client, ...] = ("sarama", "franz-go", "kafkajs")


def decoded(client: Client, kind: str, data: bytes) -> object:
    """What this client reads: topics of a subscription, partitions by topic of an assignment, or
    the text of its error; with the name of an assignor, what the only member is assigned."""
    run = subprocess.run(
        [*program(client), "decode"],
        input=f"{kind} {data.hex()}\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(run.stdout)["read"]


def subscription_of_ours(name: str) -> Subscription:
    owned = OWNED if name == "cooperative-sticky" else ()
    last = LastAssignment(GENERATION, OWNED)
    config = ConsumerConfig(bootstrap_servers="localhost:9092")
    return Subscription(
        topics=("orders",),
        owned=owned,
        generation=GENERATION,
        user_data=subscription_user_data(ASSIGNORS[name], GENERATION, owned, last, config),
    )


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", ASSIGNORS)
def test_a_client_reads_the_assignment_that_our_leader_makes_for_it(
    client: Client, name: str
) -> None:
    members = [
        Member("ours", None, subscription_of_ours(name)),
        Member("theirs", None, Subscription(topics=("orders",))),
        Member("idle", None, Subscription(topics=("payments",))),
    ]
    generation = LedGeneration(ASSIGNORS[name], members, skips_assignment=False)
    plan = dict(plan_assignment(generation, {"orders": (0, 1)}, {}).assignments)
    assert decoded(client, "assignment", plan["theirs"]) == {"orders": [1]}
    assert decoded(client, "assignment", plan["idle"]) == {}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", ASSIGNORS)
def test_a_client_reads_our_subscription(client: Client, name: str) -> None:
    data = encode_subscription(subscription_of_ours(name))
    assert decoded(client, "subscription", data) == ["orders"]


@pytest.mark.parametrize("name", ASSIGNORS)
def test_a_leader_of_sarama_assigns_partitions_to_our_member(name: str) -> None:
    data = encode_subscription(subscription_of_ours(name))
    assert decoded("sarama", name, data) == {"orders": [0, 1]}
