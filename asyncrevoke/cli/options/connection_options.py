"""The connection options of all commands that connect to brokers."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeAlias, Unpack, cast

import typer

from asyncrevoke.cli.options.option_groups import takes
from asyncrevoke.client.config import (
    ConsumerConfig,
    ConsumerOptions,
    SaslMechanism,
    SecurityProtocol,
)
from asyncrevoke.client.config.checks import SCRAM_MAX_ITERATIONS
from asyncrevoke.client.errors import ConfigError

Servers: TypeAlias = Annotated[
    str | None, typer.Option(envvar="ASYNCREVOKE_BOOTSTRAP_SERVERS", help="host:port,...")
]
_LOCAL = "localhost:9092"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """The connection options of a command. No ``repr`` shows secrets."""

    bootstrap_servers: Servers = _LOCAL
    security_protocol: Annotated[
        str, typer.Option(help="PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.")
    ] = "PLAINTEXT"
    ca_file: Annotated[
        Path | None, typer.Option(help="Certificates to trust instead of the system's.")
    ] = None
    client_certificate: Annotated[
        Path | None, typer.Option(help="For mutual TLS: PEM, with its chain.")
    ] = None
    client_key: Annotated[
        Path | None, typer.Option(help="The key of the certificate, if it is in another file.")
    ] = None
    client_key_password: Annotated[
        str | None,
        typer.Option(
            envvar="ASYNCREVOKE_CLIENT_KEY_PASSWORD", help="Prefer the environment variable."
        ),
    ] = field(default=None, repr=False)
    sasl_mechanism: Annotated[
        str | None,
        typer.Option(
            help="PLAIN (the default), SCRAM-SHA-256, SCRAM-SHA-512, GSSAPI or OAUTHBEARER."
        ),
    ] = None
    sasl_username: Annotated[str | None, typer.Option(envvar="ASYNCREVOKE_SASL_USERNAME")] = None
    sasl_password: Annotated[
        str | None,
        typer.Option(envvar="ASYNCREVOKE_SASL_PASSWORD", help="Prefer the environment variable."),
    ] = field(default=None, repr=False)
    sasl_token: Annotated[
        str | None,
        typer.Option(
            envvar="ASYNCREVOKE_SASL_TOKEN",
            help="For OAUTHBEARER. Prefer the environment variable.",
        ),
    ] = field(default=None, repr=False)
    sasl_scram_max_iterations: Annotated[
        int, typer.Option(help="The limit for the iterations that a broker requests with SCRAM.")
    ] = SCRAM_MAX_ITERATIONS

    def config(self, **more: Unpack[ConsumerOptions]) -> ConsumerConfig:
        """These options, and ``more``, as a configuration. Raises ConfigError."""
        return ConsumerConfig(**self.consumer_options(**more))

    def consumer_options(self, **more: Unpack[ConsumerOptions]) -> ConsumerOptions:
        """These options, and ``more``, as options of a consumer. Raises ConfigError for invalid
        certificates and for a missing token."""
        given: ConsumerOptions = {
            "bootstrap_servers": self.bootstrap_servers or _LOCAL,
            "security_protocol": cast("SecurityProtocol", self.security_protocol),
            "ssl_context": self._tls(),
            "sasl_plain_username": self.sasl_username,
            "sasl_plain_password": self.sasl_password,
            "sasl_scram_max_iterations": self.sasl_scram_max_iterations,
        }
        if self.sasl_mechanism is not None:
            given["sasl_mechanism"] = cast("SaslMechanism", self.sasl_mechanism)
        if self.sasl_mechanism == "OAUTHBEARER":
            from asyncrevoke.client.groups.token import given_token

            if not self.sasl_token:
                raise ConfigError("OAUTHBEARER needs a token: set ASYNCREVOKE_SASL_TOKEN")
            given["sasl_oauth_token_provider"] = given_token(self.sasl_token)
        return given | more

    def _tls(self) -> ssl.SSLContext | None:
        """A context of the system's defaults and these files; None without files."""
        if self.client_certificate is None:
            if self.client_key is not None or self.client_key_password is not None:
                raise ConfigError("--client-key needs --client-certificate")
            if self.ca_file is None:
                return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise ConfigError(
                f"--ca-file {self.ca_file} has no PEM certificates: {_why(error)}"
            ) from error
        if self.client_certificate is not None:
            # Without a password, OpenSSL asks for it at the terminal.
            password = self.client_key_password or ""
            try:
                context.load_cert_chain(
                    self.client_certificate, self.client_key, password=lambda: password
                )
            except OSError as error:
                key = self.client_key or self.client_certificate
                raise ConfigError(
                    f"--client-certificate {self.client_certificate} and the key in {key} cannot be"
                    f" used: {_why(error)}; both must be PEM, and an encrypted key needs"
                    " ASYNCREVOKE_CLIENT_KEY_PASSWORD"
                ) from None
        return context


connects = takes("connection", ConnectionOptions)
"""Add the connection options to a command, which receives them as ``connection``."""


def _why(error: OSError) -> str:
    reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
    return str(reason or type(error).__name__)
