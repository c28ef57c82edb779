"""How a command connects: the options that several of them share."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias, cast

import typer

from asyncrevoke.config import ConsumerConfig, SaslMechanism, SecurityProtocol
from asyncrevoke.errors import ConfigError

if TYPE_CHECKING:
    from typing import Unpack

    from asyncrevoke.config import ConsumerOptions

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


def _trusted(ca_file: Path | None) -> ssl.SSLContext | None:
    """What trusts these certificates; None trusts the system's. Raises ConfigError."""
    try:
        return None if ca_file is None else ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        why = error.reason if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(
            f"--ca-file names a file of certificates (PEM), and {ca_file} is none: {why}"
        ) from error


def connection(
    servers: str,
    protocol: str,
    ca_file: Path | None,
    mechanism: str,
    username: str | None,
    password: str | None,
    **more: Unpack[ConsumerOptions],
) -> ConsumerConfig:
    """These options, and ``more``, as a configuration. Raises ConfigError."""
    given: ConsumerOptions = {
        "bootstrap_servers": servers,
        "security_protocol": cast("SecurityProtocol", protocol),
        "ssl_context": _trusted(ca_file),
        "sasl_mechanism": cast("SaslMechanism", mechanism),
        "sasl_plain_username": username,
        "sasl_plain_password": password,
    }
    return ConsumerConfig(**(given | more))
