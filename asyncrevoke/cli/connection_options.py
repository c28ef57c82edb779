"""How a command connects: the options that several of them share."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Annotated, TypeAlias, cast

import typer

from asyncrevoke.config import ConsumerConfig, SaslMechanism, SecurityProtocol

Servers: TypeAlias = Annotated[
    str | None, typer.Option(envvar="ASYNCREVOKE_BOOTSTRAP_SERVERS", help="host:port,...")
]
Security: TypeAlias = Annotated[
    str, typer.Option(help="PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.")
]
CaFile: TypeAlias = Annotated[
    Path | None, typer.Option(help="Certificates to trust instead of the system's.")
]
Mechanism: TypeAlias = Annotated[
    str, typer.Option(help="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or GSSAPI.")
]
Username: TypeAlias = Annotated[str | None, typer.Option(envvar="ASYNCREVOKE_SASL_USERNAME")]
Password: TypeAlias = Annotated[
    str | None,
    typer.Option(envvar="ASYNCREVOKE_SASL_PASSWORD", help="Better in the environment."),
]


def connection(
    servers: str,
    protocol: str,
    ca_file: Path | None,
    mechanism: str,
    username: str | None,
    password: str | None,
) -> ConsumerConfig:
    """These options as a configuration. Raises ConfigError and OSError."""
    return ConsumerConfig(
        bootstrap_servers=servers,
        security_protocol=cast("SecurityProtocol", protocol),
        ssl_context=None if ca_file is None else ssl.create_default_context(cafile=ca_file),
        sasl_mechanism=cast("SaslMechanism", mechanism),
        sasl_plain_username=username,
        sasl_plain_password=password,
    )
