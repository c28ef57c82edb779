"""Commands that ask brokers have one set of options for that."""

from __future__ import annotations

import ssl
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest
import trustme
import typer.main
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from asyncrevoke import ConfigError
from asyncrevoke.cli.app import app
from asyncrevoke.cli.options.connection_options import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHARED = {field.name for field in fields(ConnectionOptions)}
# It reads as the application's Consumer does, whose options say how to connect.
AS_THE_APPLICATION = {"replay"}
PASSWORD = "planted-password"


def commands(group: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    for each, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{name}{each} ")
        else:
            yield name + each, command


def test_every_command_that_connects_has_all_options_of_a_connection() -> None:
    found = {
        name: {parameter.name for parameter in command.params}
        for name, command in commands(typer.main.get_command(app))
    }
    connecting = {name for name, options in found.items() if options & SHARED}
    assert connecting - AS_THE_APPLICATION == {
        "audit",
        "dashboard",
        "dead-letters list",
        "dead-letters replay",
        "dead-letters reprocess",
        "dead-letters show",
        "groups configure",
        "groups delete",
        "groups delete-offsets",
        "groups lag",
        "groups reset-offsets",
        "groups show",
        "handover",
        "journal collect",
        "send",
        "sink delta",
        "sink parquet",
        "topics create",
        "topics delete",
        "topics describe",
        "topics list",
        "topics read",
    }
    for name in connecting - AS_THE_APPLICATION:
        assert SHARED - found[name] == set(), name


def test_no_secret_of_a_connection_is_in_its_repr() -> None:
    options = ConnectionOptions(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_token=PASSWORD,
        sasl_password=PASSWORD,
        client_key_password=PASSWORD,
    )
    assert PASSWORD not in repr(options)
    config = ConnectionOptions(
        security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_token=PASSWORD
    ).config()
    assert PASSWORD not in repr(config)
    assert PASSWORD not in repr(config.sasl_oauth_token_provider)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate, and beside it its key, which is encrypted."""
    issued = trustme.CA().issue_cert("alice@example.org")
    path = tmp_path / "client.pem"
    path.write_bytes(b"".join(cert_chain_pem.bytes() for cert_chain_pem in issued.cert_chain_pems))
    key = load_pem_private_key(issued.private_key_pem.bytes(), password=None)
    encrypted = key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD.encode())
    )
    path.with_suffix(".key").write_bytes(encrypted)
    return path


def test_a_client_certificate_is_loaded_with_its_key(certificate: Path) -> None:
    options = ConnectionOptions(
        security_protocol="SSL",
        client_certificate=certificate,
        client_key=certificate.with_suffix(".key"),
        client_key_password=PASSWORD,
    )
    context = options.config().ssl_context
    assert isinstance(context, ssl.SSLContext)
    assert context.check_hostname


@pytest.mark.parametrize("password", [None, "wrong-password"])
def test_the_error_of_an_unreadable_key_neither_prompts_nor_shows_the_password(
    certificate: Path, password: str | None
) -> None:
    options = ConnectionOptions(
        security_protocol="SSL",
        client_certificate=certificate,
        client_key=certificate.with_suffix(".key"),
        client_key_password=password,
    )
    with pytest.raises(ConfigError, match="ASYNCREVOKE_CLIENT_KEY_PASSWORD") as rejected:
        options.config()
    assert "wrong-password" not in str(rejected.value)


def test_a_key_without_a_certificate_is_rejected(certificate: Path) -> None:
    options = ConnectionOptions(security_protocol="SSL", client_key=certificate)
    with pytest.raises(ConfigError, match="--client-certificate"):
        options.config()


def test_oauthbearer_without_a_token_names_the_variable() -> None:
    options = ConnectionOptions(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER")
    with pytest.raises(ConfigError, match="ASYNCREVOKE_SASL_TOKEN"):
        options.config()
