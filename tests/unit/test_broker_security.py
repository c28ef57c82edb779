from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from asyncrevoke.broker.security import Security
from asyncrevoke.errors import ConfigError

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


def test_unknown_user_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="no user 'eve'; there are: alice"):
        Security(protocol="SASL_PLAINTEXT").client_options("eve", NOWHERE)


def test_access_control_without_names_is_refused() -> None:
    with pytest.raises(ConfigError, match="SASL_PLAINTEXT"):
        Security(acls=True)


def test_password_that_would_break_the_properties_is_refused() -> None:
    with pytest.raises(ConfigError, match="user 'ann'"):
        Security(protocol="SASL_PLAINTEXT", users={"ann": 'x" user_eve="y'})
