"""A broker for tests with a listener of each kind of security."""

from __future__ import annotations

import datetime
import ssl
from typing import TYPE_CHECKING, Any

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from typing_extensions import override

from asyncrevoke.broker import KafkaBroker, Security
from asyncrevoke.broker.listeners.ports import HOST, free_ports
from asyncrevoke.broker.listeners.security import unsigned_token
from asyncrevoke.broker.process.properties import BrokerNode, new_cluster_id
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.io.effects import Channel, Failed, FailureKind, Node, Replied, Send
from asyncrevoke.client.protocol import messages
from asyncrevoke.client.runtime.net.channels import Channels

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


MODULES = "org.apache.kafka.common.security"
PASSWORD = "alice-secret"
# What a listener asks for: its protocol, and its mechanism if it has one.
LISTENERS: Mapping[str, tuple[str, str | None]] = {
    "TRUSTED": ("SSL", None),
    "EXPIRED": ("SSL", None),
    "OTHERHOST": ("SSL", None),
    "MUTUAL": ("SSL", None),
    "PLAINTLS": ("SASL_SSL", "PLAIN"),
    "SCRAM256": ("SASL_SSL", "SCRAM-SHA-256"),
    "SCRAM512": ("SASL_SSL", "SCRAM-SHA-512"),
    "BEARER": ("SASL_SSL", "OAUTHBEARER"),
    "SHORT": ("SASL_PLAINTEXT", "OAUTHBEARER"),
    "SHORTSCRAM": ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
}
JAAS = {
    "PLAIN": f'{MODULES}.plain.PlainLoginModule required user_alice="{PASSWORD}";',
    "SCRAM-SHA-256": f"{MODULES}.scram.ScramLoginModule required;",
    "SCRAM-SHA-512": f"{MODULES}.scram.ScramLoginModule required;",
    "OAUTHBEARER": (
        f"{MODULES}.oauthbearer.OAuthBearerLoginModule required"
        ' unsecuredLoginStringClaim_sub="broker";'
    ),
}
SESSION_MS = 1500


class IssuedTokens:
    """Gives a token for alice, and counts how often."""

    def __init__(self) -> None:
        self.given: list[str] = []

    async def token(self) -> str:
        self.given.append(unsigned_token("alice"))
        return self.given[-1]

    def extensions(self) -> dict[str, str]:
        return {}


class Authority:
    """Certificates, their keys and key stores."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._issuer = trustme.CA()
        self.path = folder / "authority.pem"
        self.path.write_bytes(self._issuer.cert_pem.bytes())

    def key_store(self, name: str, *hosts: str, **options: Any) -> str:
        issued = self._issuer.issue_cert(*hosts, **options)
        key = load_pem_private_key(issued.private_key_pem.bytes(), password=None)
        path = self._folder / f"{name}.pem"
        path.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            + b"".join(cert_chain_pem.bytes() for cert_chain_pem in issued.cert_chain_pems)
        )
        return str(path)

    def client(self, certificate: str | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.path))
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context


class WithBothScrams(Security):
    """Users that have credentials of both kinds."""

    @override
    def format_arguments(self) -> list[str]:
        arguments = super().format_arguments()
        return arguments + [argument.replace("SHA-256", "SHA-512") for argument in arguments]


class SecureBroker:
    """A broker with all of the listeners, and how to reach each of them."""

    def __init__(self, folder: Path) -> None:
        self.authority = authority = Authority(folder)
        past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
        stores = {
            "EXPIRED": authority.key_store("expired", HOST, not_after=past),
            "OTHERHOST": authority.key_store("other", "kafka.example"),
        }
        trusted = authority.key_store("broker", HOST, "localhost")
        self.certificate = authority.key_store("client", "alice@example.org")
        free = free_ports()
        self.ports = {name: next(free) for name in LISTENERS}
        properties: dict[str, str] = {"connections.max.reauth.ms": "0"}
        for name, (protocol, mechanism) in LISTENERS.items():
            prefix = f"listener.name.{name.lower()}"
            if protocol.endswith("SSL"):
                properties[f"{prefix}.ssl.keystore.type"] = "PEM"
                properties[f"{prefix}.ssl.keystore.location"] = stores.get(name, trusted)
            if mechanism is not None:
                properties[f"{prefix}.sasl.enabled.mechanisms"] = mechanism
                jaas = f"{prefix}.{mechanism.lower()}.sasl.jaas.config"
                properties[jaas] = JAAS[mechanism]
            if name.startswith("SHORT") and mechanism is not None:
                reauth = f"{prefix}.{mechanism.lower()}.connections.max.reauth.ms"
                properties[reauth] = str(SESSION_MS)
        properties["listener.name.mutual.ssl.client.auth"] = "required"
        properties["listener.name.mutual.ssl.principal.mapping.rules"] = "RULE:^.*$/alice/"
        properties["listener.name.mutual.ssl.truststore.type"] = "PEM"
        properties["listener.name.mutual.ssl.truststore.location"] = str(authority.path)
        own = BrokerNode.choose(free)
        addresses = {"CLIENTS": own.clients_port, "BROKERS": own.brokers_port, **self.ports}
        kinds = {name: protocol for name, (protocol, _) in LISTENERS.items()}
        kinds |= {"CLIENTS": "SASL_PLAINTEXT", "BROKERS": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
        listeners = [f"{name}://{HOST}:{port}" for name, port in addresses.items()]
        properties["advertised.listeners"] = ",".join(listeners)
        controller = f"CONTROLLER://{HOST}:{own.controller_port}"
        properties["listeners"] = ",".join([*listeners, controller])
        properties["listener.security.protocol.map"] = ",".join(
            f"{name}:{kind}" for name, kind in kinds.items()
        )
        security = WithBothScrams(
            protocol="SASL_PLAINTEXT",
            mechanism="SCRAM-SHA-256",
            users={"alice": PASSWORD, "bob": "bob-secret"},
            acls=True,
        )
        self.broker = KafkaBroker(security=security, properties=properties)
        self.broker.join_cluster(1, (own,), new_cluster_id())

    def options(self, listener: str, **changed: object) -> dict[str, Any]:
        protocol, mechanism = LISTENERS[listener]
        options: dict[str, Any] = {
            "bootstrap_servers": f"{HOST}:{self.ports[listener]}",
            "security_protocol": protocol,
        }
        if protocol.endswith("SSL"):
            options["ssl_context"] = self.authority.client()
        if mechanism == "OAUTHBEARER":
            options |= {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": IssuedTokens()}
        elif mechanism is not None:
            options |= {
                "sasl_mechanism": mechanism,
                "sasl_plain_username": "alice",
                "sasl_plain_password": PASSWORD,
            }
        return options | changed

    async def ask(self, listener: str, **changed: object) -> Replied | Failed:
        """The response to a request for metadata."""
        channels = Channels(ConsumerConfig.from_options(**self.options(listener, **changed)))
        node = Node(-1, HOST, self.ports[listener])
        try:
            return await channels.request(
                Send(1, messages.MetadataRequest(topics=()), node, Channel.METADATA, 20)
            )
        finally:
            await channels.close()

    async def rejection(self, listener: str, **changed: object) -> str:
        """Why a connection cannot be opened, and never will be."""
        outcome = await self.ask(listener, **changed)
        assert isinstance(outcome, Failed), outcome
        assert outcome.kind is FailureKind.AUTHENTICATION, outcome
        return outcome.detail
