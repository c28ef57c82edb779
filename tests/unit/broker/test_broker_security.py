from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from asyncrevoke.broker import KafkaBroker
from asyncrevoke.broker.listeners.security import Security, write_private
from asyncrevoke.client.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

NOWHERE = Path("nowhere")


def test_plain_users_are_in_the_properties() -> None:
    security = Security(protocol="SASL_PLAINTEXT", users={"ann": "a1", "bob": "b2"})
    config = security.properties("CLIENTS", "")["listener.name.clients.plain.sasl.jaas.config"]
    assert config.endswith('PlainLoginModule required user_ann="a1" user_bob="b2";')
    assert security.format_arguments() == []


def test_scram_users_are_in_the_formatted_metadata() -> None:
    security = Security(protocol="SASL_PLAINTEXT", mechanism="SCRAM-SHA-512", users={"ann": "a1"})
    assert security.format_arguments() == ["--add-scram", "SCRAM-SHA-512=[name=ann,password=a1]"]
    assert "a1" not in str(security.properties("CLIENTS", ""))


def test_passwords_are_no_arguments_of_a_process_and_in_no_file_that_others_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[str] = []
    found: list[tuple[str, int]] = []

    def run(command: Sequence[str], _log: Path, _timeout: float) -> int:
        commands.extend(command)
        for argument in command:
            if argument.startswith("@"):
                file = Path(argument[1:])
                found.append((file.read_text(), file.stat().st_mode & 0o777))
        return 0

    monkeypatch.setattr("asyncrevoke.broker.broker.run_to_end", run)
    security = Security(protocol="SASL_PLAINTEXT", mechanism="SCRAM-SHA-512", users={"ann": "a1b2"})
    broker = KafkaBroker(security=security, folder=tmp_path)
    broker._java = ("java",)
    broker._format(tmp_path / "server.properties")
    assert not [argument for argument in commands if "a1b2" in argument]
    assert found == [("--add-scram\nSCRAM-SHA-512=[name=ann,password=a1b2]", 0o600)]
    assert not list(tmp_path.iterdir())


def test_a_private_file_replaces_one_that_others_could_read(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o600)


def test_passwords_are_not_in_the_representation() -> None:
    assert "a1b2" not in repr(Security(protocol="SASL_PLAINTEXT", users={"ann": "a1b2"}))


def test_client_options_carry_the_users_password() -> None:
    security = Security(protocol="SASL_PLAINTEXT", users={"ann": "a1", "bob": "b2"})
    assert security.client_options("bob", NOWHERE) == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "bob",
        "sasl_plain_password": "b2",
    }
    assert security.client_options(None, NOWHERE).get("sasl_plain_username") == "ann"


async def test_with_oauthbearer_clients_have_tokens_of_their_names() -> None:
    security = Security(protocol="SASL_PLAINTEXT", mechanism="OAUTHBEARER", users={"ann": ""})
    properties = security.properties("CLIENTS", "")
    assert properties["listener.name.clients.sasl.enabled.mechanisms"] == "OAUTHBEARER"
    assert security.format_arguments() == []
    options = security.client_options("ann", NOWHERE)
    assert "sasl_plain_password" not in options
    assert "sasl_oauth_token_provider" in options
    token: object = await options["sasl_oauth_token_provider"].token()
    head, claims, signature = str(token).split(".")
    assert json.loads(base64.urlsafe_b64decode(head + "==")) == {"alg": "none"}
    assert json.loads(base64.urlsafe_b64decode(claims + "=="))["sub"] == "ann"
    assert signature == ""


def test_the_error_of_an_unknown_user_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="no user 'eve'; there are: alice"):
        Security(protocol="SASL_PLAINTEXT").client_options("eve", NOWHERE)


def test_access_control_without_names_is_rejected() -> None:
    with pytest.raises(ConfigError, match="SASL_PLAINTEXT"):
        Security(acls=True)


def test_password_that_would_break_the_properties_is_rejected() -> None:
    with pytest.raises(ConfigError, match="user 'ann'"):
        Security(protocol="SASL_PLAINTEXT", users={"ann": 'x" user_eve="y'})
