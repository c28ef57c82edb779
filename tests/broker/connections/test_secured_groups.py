"""Membership over TLS and SASL: what the groups command shows, and the heartbeat thread."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
import time
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Any, cast

import pytest
from aiokafka import AIOKafkaProducer
from broker.groups.blocked_member import BlockedMember, sleep, threads
from broker.records.numbered_records import NumberedMember, Numbers, until

from asyncrevoke import AuthenticationError, Consumer
from asyncrevoke.broker import KafkaBroker, Security
from asyncrevoke.client.groups.token import given_token

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

SECRET = "not-to-be-seen"
SECURITIES = [
    Security(protocol="SASL_SSL", mechanism="SCRAM-SHA-512"),
    pytest.param(Security(protocol="SASL_PLAINTEXT", mechanism="PLAIN"), marks=pytest.mark.variant),
]


@pytest.fixture(scope="module", params=SECURITIES, ids=lambda s: f"{s.protocol}-{s.mechanism}")
def secure_broker(request: pytest.FixtureRequest) -> Iterator[KafkaBroker]:
    with KafkaBroker(security=request.param) as broker:
        broker.create_topic("numbers", partitions=4)
        yield broker


def unsecured_token() -> str:
    """What Kafka's own check for tests accepts: claims without a signature."""
    claims = {"sub": "billing", "iat": time.time() - 1, "exp": time.time() + 600, "id": SECRET}
    parts = ({"alg": "none"}, claims)
    return ".".join(
        [*(urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts), ""]
    )


@pytest.fixture(scope="module")
def bearer_broker() -> Iterator[KafkaBroker]:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    properties = {
        "listener.name.clients.sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "listener.name.clients.oauthbearer.sasl.jaas.config": (
            f'{module} required unsecuredLoginStringClaim_sub="broker";'
        ),
    }
    security = Security(protocol="SASL_PLAINTEXT", mechanism="PLAIN")
    with KafkaBroker(security=security, properties=properties) as broker:
        yield broker


@pytest.mark.parametrize("token", ["good", "rejected"])
async def test_the_groups_command_takes_a_bearer_token_and_never_shows_it(
    bearer_broker: KafkaBroker, token: str
) -> None:
    given = unsecured_token() if token == "good" else f"{SECRET}.{SECRET}."
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "asyncrevoke", "groups", "--json"),
        *("--bootstrap-servers", bearer_broker.bootstrap_servers),
        *("--security-protocol", "SASL_PLAINTEXT", "--sasl-mechanism", "OAUTHBEARER"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "ASYNCREVOKE_SASL_TOKEN": given},
    )
    out, err = (part.decode() for part in await process.communicate())
    if token == "good":
        assert (process.returncode, json.loads(out), err) == (0, [], "")
    else:
        assert process.returncode == 1
        assert "--sasl-" in err
    assert given not in out + err
    assert SECRET not in out + err


async def test_a_rejected_bearer_token_is_an_authentication_error(
    bearer_broker: KafkaBroker,
) -> None:
    tokens = given_token(f"{SECRET}.{SECRET}.")
    consumer = Consumer(
        "orders",
        group_id="bearers",
        bootstrap_servers=bearer_broker.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=tokens,
    )
    with pytest.raises(AuthenticationError, match="sasl_oauth_token_provider") as rejected:
        async with asyncio.timeout(20), consumer:
            await anext(consumer)
    assert SECRET not in str(rejected.value)


@pytest.fixture
def numbers(secure_broker: KafkaBroker, request: pytest.FixtureRequest) -> Numbers:
    address = secure_broker.bootstrap_servers
    numbers = Numbers(address, address, "numbers", 4)
    numbers.group = f"group-of-{request.node.name}"
    return numbers


async def groups(broker: KafkaBroker, directory: Path, *arguments: str, password: str) -> Any:
    """What the command says: its exit code, and both of its outputs."""
    options = cast("dict[str, Any]", broker.client_options())
    words = [
        *("--bootstrap-servers", broker.bootstrap_servers),
        *("--security-protocol", options["security_protocol"]),
        *("--sasl-mechanism", options["sasl_mechanism"]),
        *("--sasl-username", options["sasl_plain_username"]),
    ]
    context: ssl.SSLContext | None = options.get("ssl_context")
    if context is not None:
        authority = directory / "authority.pem"
        certificates = context.get_ca_certs(binary_form=True)
        authority.write_text("".join(map(ssl.DER_cert_to_PEM_cert, certificates)))
        words += ["--ca-file", str(authority)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "asyncrevoke", "groups", *arguments, *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "ASYNCREVOKE_SASL_PASSWORD": password},
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_the_groups_command_shows_a_group_of_a_secured_broker(
    secure_broker: KafkaBroker, numbers: Numbers, tmp_path: Path
) -> None:
    options = secure_broker.client_options()
    password = cast("dict[str, str]", options)["sasl_plain_password"]
    async with NumberedMember(numbers.consumer(**options)) as member:
        await until(lambda: len(member.consumer.assignment()) == 4, "all partitions")
        code, out, err = await groups(
            secure_broker, tmp_path, numbers.group, "--json", password=password
        )
        assert (code, err) == (0, "")
        (shown,) = json.loads(out)["members"]
        assert shown["member_id"] == member.consumer.group_metadata().member_id
    code, out, err = await groups(
        secure_broker, tmp_path, numbers.group, "--json", password="not-this-one"
    )
    assert code == 1
    assert "SASL_AUTHENTICATION_FAILED" in err
    assert "--sasl-" in err
    assert "not-this-one" not in out + err


async def test_the_heartbeat_thread_keeps_a_membership_on_a_secured_broker(
    secure_broker: KafkaBroker, numbers: Numbers
) -> None:
    options = secure_broker.client_options()
    member = BlockedMember(numbers, sleep, auto_offset_reset="earliest", **options)
    async with AIOKafkaProducer(**options) as producer, member:
        await producer.send_and_wait("numbers", b"before", partition=0)
        await until(lambda: member.handled.total() >= 1, "a record is handled")
        member.block()
        await producer.send_and_wait("numbers", b"blocks", partition=0)
        await until(member.runs_again.is_set, "its loop was blocked, and runs again")
        seen = member.handled.total()
        await producer.send_and_wait("numbers", b"after", partition=0)
        await until(lambda: member.handled.total() > seen, "a record is handled afterwards")
    assert not member.lost
    assert len(member.members) == 1
    assert set(member.handled.values()) == {1}
    assert not threads()
