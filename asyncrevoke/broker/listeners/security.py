"""The security of a broker's listener for clients: TLS, SASL and access control."""

from __future__ import annotations

import base64
import json
import os
import ssl
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal, TypedDict

from asyncrevoke.broker.listeners.ports import HOST
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from aiokafka.abc import AbstractTokenProvider


_LIFE = 3600  # seconds


def unsigned_token(name: str) -> str:
    """A token for this user, valid for an hour (RFC 7519, section 6)."""
    now = int(time.time())
    parts = {"alg": "none"}, {"sub": name, "iat": now, "exp": now + _LIFE}
    return "".join(f"{_encoded(json.dumps(part).encode())}." for part in parts)


def unsigned_tokens(name: str) -> AbstractTokenProvider:
    """A token provider for a client, with unsigned tokens."""
    from aiokafka.abc import AbstractTokenProvider

    from asyncrevoke.client.groups.token import token_provider

    provider = token_provider(partial(unsigned_token, name))
    AbstractTokenProvider.register(type(provider))  # aiokafka's clients ask for an instance
    return provider


def _encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


def write_private(path: Path, content: bytes) -> None:
    """Write, or replace, a file that only this user may read."""
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(content)


Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]

_MODULES: Mapping[Mechanism, str] = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}


class ClientOptions(TypedDict, total=False):
    """The options that a client needs, under the names that aiokafka and this library share."""

    bootstrap_servers: str
    security_protocol: Protocol
    ssl_context: ssl.SSLContext
    sasl_mechanism: Mechanism
    sasl_plain_username: str
    sasl_plain_password: str
    sasl_oauth_token_provider: AbstractTokenProvider


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """The security of a broker's listener for clients.

    A second, plain listener on the loopback interface is for other brokers and for this library's
    requests, such as creating topics; it is not restricted.

    Args:
        protocol: Kafka's name of the listener's security protocol.
        mechanism: the SASL mechanism, where the protocol has SASL. With OAUTHBEARER the broker
            accepts unsigned tokens, which is for tests only.
        users: names and passwords, where the protocol has SASL; OAUTHBEARER has no passwords.
        acls: reject operations that :meth:`KafkaBroker.allow` has not allowed. Needs SASL:
            without it, every client is the same anonymous user.
    """

    protocol: Protocol = "PLAINTEXT"
    mechanism: Mechanism = "PLAIN"
    users: Mapping[str, str] = field(default_factory=lambda: {"alice": "alice-secret"}, repr=False)
    acls: bool = False

    def __post_init__(self) -> None:
        if self.acls and not self.sasl:
            raise ConfigError(
                f'acls=True with protocol="{self.protocol}": clients have names only with SASL, '
                'use protocol="SASL_PLAINTEXT" or "SASL_SSL"'
            )
        if self.sasl and not self.users:
            raise ConfigError(f'protocol="{self.protocol}" needs at least one user in users')
        for name, password in self.users.items():
            if set('"\\;,[]=\r\n') & set(name + password):
                raise ConfigError(
                    f"user {shown_option(name)}: quotes, backslashes, brackets and the signs ; , = "
                    "are not allowed in a name or a password"
                )

    @property
    def sasl(self) -> bool:
        """Whether clients authenticate."""
        return self.protocol.startswith("SASL")

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.protocol.endswith("SSL")

    def properties(self, listener: str, key_store: str) -> dict[str, str]:
        """The broker's properties for its clients' listener."""
        prefix = f"listener.name.{listener.lower()}"
        properties: dict[str, str] = {}
        if self.sasl:
            module, users = _MODULES[self.mechanism], ""
            if self.mechanism == "PLAIN":
                users = "".join(f' user_{name}="{word}"' for name, word in self.users.items())
            elif self.mechanism == "OAUTHBEARER":
                users = ' unsecuredLoginStringClaim_sub="broker"'
            properties |= {
                f"{prefix}.sasl.enabled.mechanisms": self.mechanism,
                f"{prefix}.{self.mechanism.lower()}.sasl.jaas.config": f"{module} required{users};",
            }
        if self.tls:
            properties |= {
                f"{prefix}.ssl.keystore.type": "PEM",
                f"{prefix}.ssl.keystore.location": key_store,
            }
        if self.acls:
            authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            properties |= {"authorizer.class.name": authorizer, "super.users": "User:ANONYMOUS"}
        return properties

    def format_arguments(self) -> list[str]:
        """Arguments for formatting the storage, which writes SCRAM passwords to the cluster's
        metadata."""
        if not self.sasl or not self.mechanism.startswith("SCRAM"):
            return []
        return [
            argument
            for name, password in self.users.items()
            for argument in ("--add-scram", f"{self.mechanism}=[name={name},password={password}]")
        ]

    def client_options(self, user: str | None, authority: Path) -> ClientOptions:
        """A client's options without the address; ``user`` is the first one by default."""
        options = ClientOptions(security_protocol=self.protocol)
        if self.tls:
            options["ssl_context"] = ssl.create_default_context(cafile=str(authority))
        if self.sasl:
            name = next(iter(self.users)) if user is None else user
            if name not in self.users:
                raise ConfigError(
                    f"no user {shown_option(name)}; there are: {', '.join(self.users)}"
                )
            options["sasl_mechanism"] = self.mechanism
            if self.mechanism == "OAUTHBEARER":
                options["sasl_oauth_token_provider"] = unsigned_tokens(name)
                return options
            options["sasl_plain_username"] = name
            options["sasl_plain_password"] = self.users[name]
        return options


def write_certificates(key_store: Path, authority: Path) -> None:
    """Write a certificate for the loopback names with its key, and the certificate of its issuer.
    Raises ConfigError if the packages that make certificates are not installed."""
    try:
        import trustme
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
            load_pem_private_key,
        )
    except ImportError as error:
        raise ConfigError(
            f"a TLS listener needs the package {error.name}: pip install 'asyncrevoke[testing]'"
        ) from error
    issuer = trustme.CA()
    issued = issuer.issue_cert(HOST, "localhost", "::1")
    key = load_pem_private_key(issued.private_key_pem.bytes(), password=None)
    # Java reads PEM keys as PKCS 8 only.
    parts = [key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())]
    parts += [certificate.bytes() for certificate in issued.cert_chain_pems]
    write_private(key_store, b"".join(parts))
    authority.write_bytes(issuer.cert_pem.bytes())
