"""What a broker rejects or does not have: an error that names the fix, or a wait that says so."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from aiokafka import AIOKafkaProducer
from broker.records.numbered_records import DEADLINE, NumberedMember, Numbers, until
from httpx import ASGITransport, AsyncClient
from starlette.applications import Starlette

from asyncrevoke import (
    AuthenticationError,
    Consumer,
    GroupAuthorizationError,
    TopicAuthorizationError,
)
from asyncrevoke.broker import KafkaBroker, Security
from asyncrevoke.integrations.starlette import health_routes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Unpack

    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.broker.admin import Operation
    from asyncrevoke.client.config import ConsumerOptions

ROOT = Path(__file__).parents[3]

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


class GuardedTopic(Numbers):
    """A topic on a broker with access control, of which its user alice has none."""

    def __init__(self, broker: KafkaBroker) -> None:
        topic = f"guarded-{uuid.uuid4().hex[:8]}"
        broker.create_topic(topic, 3)
        super().__init__(broker.bootstrap_servers, broker.admin_addresses[0], topic)
        self.broker = broker

    def consumer(self, **options: Unpack[ConsumerOptions]) -> Consumer:
        secure: ConsumerOptions = {**self.broker.client_options(), **options}
        return super().consumer(**secure)

    def allow_topic(self, operation: Operation) -> None:
        self.broker.allow("alice", "topic", self.topic, [operation])

    def allow_group(self, operation: Operation) -> None:
        self.broker.allow("alice", "group", self.group, [operation])


@pytest.fixture(scope="module")
def guarded_broker() -> Iterator[KafkaBroker]:
    security = Security(protocol="SASL_PLAINTEXT", mechanism="PLAIN", acls=True)
    with KafkaBroker(security=security) as broker:
        yield broker


@pytest.fixture
def guarded(guarded_broker: KafkaBroker) -> GuardedTopic:
    return GuardedTopic(guarded_broker)


# -- access


@pytest.mark.parametrize(
    "allowed", ["nothing", pytest.param("describe", marks=pytest.mark.variant)]
)
async def test_an_unauthorized_topic_raises_an_error_and_is_read_once_access_is_granted(
    guarded: GuardedTopic, allowed: Literal["nothing", "describe"]
) -> None:
    guarded.allow_group("read")
    if allowed != "nothing":
        guarded.allow_topic(allowed)
    await guarded.send(30)
    async with NumberedMember(guarded.consumer()) as member:
        await until(lambda: bool(member.errors), "an error")
        guarded.allow_topic("read")
        await member.has_all(guarded)
    for error in member.errors:
        assert isinstance(error, TopicAuthorizationError)
        assert guarded.topic in str(error)
        assert "READ" in str(error)
    assert len(member.errors) == len(set(map(str, member.errors))), "each of them once"
    assert await guarded.committed() == 30


async def test_readyz_names_an_unauthorized_topic_until_access_is_granted(
    guarded: GuardedTopic,
) -> None:
    guarded.allow_group("read")
    async with NumberedMember(guarded.consumer()) as member:
        transport = ASGITransport(Starlette(routes=health_routes(member.consumer)))
        async with AsyncClient(transport=transport, base_url="http://app") as client:
            await until(lambda: bool(member.errors), "an error")
            response = await client.get("/readyz")
            assert response.status_code == 503
            (facts,) = response.json()["consumers"]
            reason = f"the brokers reject requests for topics: {guarded.topic}"
            assert reason in facts["reasons"]
            assert (await client.get("/livez")).status_code == 200
            guarded.allow_topic("read")
            await until(lambda: member.consumer.probe().ready, "readiness")
            assert (await client.get("/readyz")).status_code == 200


async def test_a_run_whose_topic_is_unauthorized_ends_and_names_the_missing_acl(
    guarded: GuardedTopic, tmp_path: Path
) -> None:
    guarded.allow_group("read")
    options = {**guarded.broker.client_options(), "group_id": guarded.group}
    (tmp_path / "app.py").write_text(
        f"from asyncrevoke import Consumer\nconsumer = Consumer(**{options!r})\n"
        f"@consumer.handler({guarded.topic!r})\nasync def handle(value: bytes) -> None: ...\n"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "asyncrevoke", "run", "app:consumer"),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(DEADLINE):
            _, log = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 1
    assert log.count(b"[error") == 1
    error = f"not authorized to read topic '{guarded.topic}': grant DESCRIBE and READ on it"
    assert f"TopicAuthorizationError: {error}" in log.decode()


@pytest.mark.parametrize("allowed", ["nothing", "describe"])
async def test_an_unauthorized_group_is_a_fatal_error_that_names_the_missing_acl(
    guarded: GuardedTopic, allowed: Literal["nothing", "describe"]
) -> None:
    guarded.allow_topic("read")
    if allowed != "nothing":
        guarded.allow_group(allowed)
    async with asyncio.timeout(DEADLINE), guarded.consumer() as consumer:
        with pytest.raises(GroupAuthorizationError, match="grant READ on") as caught:
            await anext(consumer)
        assert guarded.group in str(caught.value)
        with pytest.raises(GroupAuthorizationError):
            await anext(consumer)


@pytest.mark.parametrize("group", ["with a group", "without"])
async def test_a_wrong_password_is_a_fatal_error_that_names_the_option(
    guarded: GuardedTopic, group: str
) -> None:
    consumer = guarded.consumer(
        sasl_plain_password="not-this-one", group_id=guarded.group if "with " in group else None
    )
    async with asyncio.timeout(DEADLINE), consumer:
        with pytest.raises(AuthenticationError, match="sasl_plain_password") as caught:
            await anext(consumer)
    assert guarded.bootstrap in str(caught.value)
    assert "not-this-one" not in str(caught.value)


async def test_a_security_protocol_that_the_listener_does_not_speak_is_named_in_a_warning(
    guarded: GuardedTopic, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = Consumer(guarded.topic, bootstrap_servers=guarded.bootstrap, group_id="plain")
    async with NumberedMember(consumer):
        await until(lambda: "check security_protocol" in caplog.text, "a warning")
    assert len([r for r in caplog.records if r.name.startswith("asyncrevoke")]) <= 3


# -- topics


async def test_a_missing_topic_is_read_once_it_is_created(
    kafka_broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    here, later = (
        Numbers(kafka_broker.bootstrap_servers, kafka_broker.bootstrap_servers, name)
        for name in (f"here-{uuid.uuid4().hex[:8]}", f"later-{uuid.uuid4().hex[:8]}")
    )
    kafka_broker.create_topic(here.topic, 3)
    await here.send(30)
    consumer = Consumer(
        here.topic, later.topic, bootstrap_servers=here.bootstrap, group_id=here.group
    )
    async with NumberedMember(consumer) as member:
        # What is missing does not hold up what is there.
        await member.has(30)
        await until(lambda: later.topic in caplog.text, "a warning")
        assert "asyncrevoke topics create" in caplog.text
        await asyncio.to_thread(kafka_broker.create_topic, later.topic, 3)
        await later.send(30)
        await until(lambda: member.handled.total() == 60, "all records")
    assert set(member.handled.values()) == {2}  # two topics, and the same places in both
    warnings = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    # A machine that pauses blocks the event loop.
    assert len([line for line in warnings if "event loop" not in line]) == 1, caplog.text


@pytest.mark.kafka_topic(partitions=3, config={"max.message.bytes": str(8 * 1024 * 1024)})
async def test_a_record_larger_than_every_limit_is_delivered(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    address = kafka_broker.bootstrap_servers
    large = b"x" * (3 * 1024 * 1024)
    values: list[bytes | None] = []
    async with AIOKafkaProducer(
        bootstrap_servers=address, max_request_size=len(large) * 2
    ) as producer:
        for value in (b"before", large, b"after"):
            for partition in range(3):
                await producer.send_and_wait(kafka_topic, value, partition=partition)
    consumer = Consumer(
        kafka_topic,
        bootstrap_servers=address,
        group_id=None,
        fetch_max_bytes=1000,
        max_partition_fetch_bytes=100,
        buffer_memory=1000,
    )
    async with asyncio.timeout(DEADLINE), consumer:
        async for batch in consumer:
            values.extend(record.value for record in batch.records)
            if len(values) >= 9:
                break
    assert sorted(filter(None, values), key=len) == [b"after"] * 3 + [b"before"] * 3 + [large] * 3
