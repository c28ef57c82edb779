"""The connection options of ``format("asyncrevoke")``: makes a configuration of them, and
hides their values."""

from __future__ import annotations

import ssl
from importlib import import_module
from typing import TYPE_CHECKING, cast

from typing_extensions import override

from asyncrevoke.client.config import ConsumerConfig, ConsumerOptions
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option

if TYPE_CHECKING:
    from collections.abc import Mapping


class HiddenOptions:
    """Strings by name; picklable. Its representation has the names without the values, some of
    which are passwords, also inside dataclasses, results of ``dataclasses.asdict`` and
    tracebacks."""

    __slots__ = ("_options",)

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = tuple(sorted(options.items()))

    def reveal(self) -> dict[str, str]:
        """All options with their values, for connecting."""
        return dict(self._options)

    @override
    def __repr__(self) -> str:
        return f"HiddenOptions({', '.join(name for name, _ in self._options)})"

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, HiddenOptions) and self._options == other._options

    @override
    def __hash__(self) -> int:
        return hash(self._options)


_KAFKA = (
    "bootstrap_servers", "client_id", "isolation_level", "security_protocol", "sasl_mechanism",
    "sasl_plain_username", "sasl_plain_password", "sasl_kerberos_service_name",
    "sasl_kerberos_domain_name",
)  # fmt: skip
_TLS = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password")
_TOKENS = ("sasl_oauth_token", "sasl_oauth_token_provider")
CONNECTION = (*_KAFKA, *_TLS, *_TOKENS)
# The same options in Spark's Kafka connector. Spark passes names in lower case.
CONNECTORS = {
    "kafka.bootstrap.servers": "bootstrap_servers",
    "kafka.client.id": "client_id",
    "kafka.security.protocol": "security_protocol",
    "kafka.sasl.mechanism": "sasl_mechanism",
    "kafka.sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "kafka.ssl.truststore.location": "ssl_cafile",
    "kafka.ssl.keystore.location": "ssl_certfile",
    "kafka.ssl.key.password": "ssl_password",
}


def boolean(name: str, text: str) -> bool:
    """``true`` or ``false``. Raises ConfigError."""
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"{name}={shown_option(text)}: use true or false")
    return text.lower() == "true"


def connection_config(given: Mapping[str, str]) -> ConsumerConfig:
    """The configuration to connect with. Raises ConfigError."""
    options: dict[str, object] = {name: given[name] for name in _KAFKA if name in given}
    options.setdefault("isolation_level", "read_committed")
    if any(name in given for name in _TLS):
        if "security_protocol" not in given:
            raise ConfigError('ssl_... options need security_protocol="SSL" or "SASL_SSL"')
        options["ssl_context"] = _ssl_context(given)
    if all(name in given for name in _TOKENS):
        raise ConfigError("sasl_oauth_token and sasl_oauth_token_provider: leave one of them out")
    if "sasl_oauth_token" in given:
        from asyncrevoke.client.groups.token import given_token

        options["sasl_oauth_token_provider"] = given_token(given["sasl_oauth_token"])
    elif "sasl_oauth_token_provider" in given:
        options["sasl_oauth_token_provider"] = _imported(given["sasl_oauth_token_provider"])
    elif given.get("sasl_mechanism") == "OAUTHBEARER":
        raise ConfigError(
            'OAUTHBEARER needs sasl_oauth_token_provider="MODULE:ATTRIBUTE", which workers import, '
            "or sasl_oauth_token"
        )
    return ConsumerConfig(**cast("ConsumerOptions", options))


def _ssl_context(given: Mapping[str, str]) -> ssl.SSLContext:
    authorities, chain = given.get("ssl_cafile"), given.get("ssl_certfile")
    if chain is None and not given.keys().isdisjoint({"ssl_keyfile", "ssl_password"}):
        raise ConfigError("ssl_keyfile and ssl_password need ssl_certfile")
    try:
        context = ssl.create_default_context(cafile=authorities)
    except OSError as error:
        raise ConfigError(
            f"ssl_cafile={shown_option(authorities)} has no PEM certificates on this "
            f"machine: {_reason(error)}"
        ) from error
    if chain is not None:
        # Without a password, OpenSSL asks for it at the terminal.
        password = given.get("ssl_password", "")
        try:
            context.load_cert_chain(chain, given.get("ssl_keyfile"), lambda: password)
        except OSError as error:
            raise ConfigError(
                f"ssl_certfile={shown_option(chain)} and its key cannot be used on this machine: "
                f"{_reason(error)}; both must be PEM, and an encrypted key needs ssl_password"
            ) from None
    return context


def _reason(error: OSError) -> str:
    reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
    return str(reason or type(error).__name__)


def _imported(path: str) -> object:
    """Import a token provider. Call what was imported if it is a class, or a function without
    ``token``."""
    module, _, attribute = path.partition(":")
    if not module or not attribute.isidentifier():
        raise ConfigError(
            f"sasl_oauth_token_provider={shown_option(path)}: use its import path, for example "
            '"tokens:provider"'
        )
    try:
        provider: object = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"sasl_oauth_token_provider={shown_option(path)} cannot be imported here "
            f"({type(error).__name__}: {error}): send its file with py_files, or install its "
            "package where Spark's driver and workers run"
        ) from error
    if callable(provider) and (isinstance(provider, type) or not hasattr(provider, "token")):
        return provider()
    return provider
