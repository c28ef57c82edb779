"""Why a request has no response, and what the errors mean that end the opening of a connection."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from aiokafka import errors as kafka_errors

from asyncrevoke.core.io.effects import FailureKind
from asyncrevoke.printable import printable
from asyncrevoke.runtime.net.authentication.scram import ScramError

if TYPE_CHECKING:
    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.io.effects import Node

__all__ = ["NoTokenError", "RequestFailed", "name_of", "refusal"]

_REFUSED: Final = (
    kafka_errors.SaslAuthenticationFailed,
    kafka_errors.IllegalSaslStateError,
    kafka_errors.AuthenticationFailedError,
    kafka_errors.AuthenticationMethodNotSupported,
)
_CREDENTIALS: Final = {
    "GSSAPI": "the Kerberos ticket and sasl_kerberos_service_name",
    "OAUTHBEARER": "sasl_oauth_token_provider",
}
_NAME_AND_PASSWORD: Final = "sasl_plain_username and sasl_plain_password"  # noqa: S105 - options
# TLS failures that trying again cannot mend.
_TLS_REFUSALS: Final = ("ALERT", "WRONG_VERSION_NUMBER", "UNSUPPORTED_PROTOCOL", "HTTP_REQUEST")
# By OpenSSL's codes (X509_V_ERR_...).
_UNTRUSTED: Final = (
    "its certificate was issued by an authority that ssl_context does not trust; load that"
    " authority's certificate by ssl_context.load_verify_locations(...)"
)
_CERTIFICATES: Final = {
    9: "its certificate is not valid yet; check the clocks, and ssl_context",
    10: "its certificate has expired; it has to be renewed at the broker (ssl_context checks it)",
    18: _UNTRUSTED,
    19: _UNTRUSTED,
    20: _UNTRUSTED,
    21: _UNTRUSTED,
    23: "its certificate was revoked, as ssl_context has it",
    62: "its certificate is not for {host}; name the broker as its certificate does (ssl_context"
    " checks the host)",
    64: "its certificate is not for {host}; name the broker as its certificate does (ssl_context"
    " checks the host)",
}
# Alerts that a broker sends about the certificate of its client.
_OWN_CERTIFICATE: Final = (
    "ALERT_CERTIFICATE",
    "ALERT_BAD_CERTIFICATE",
    "ALERT_UNKNOWN_CA",
    "ALERT_UNSUPPORTED_CERTIFICATE",
)


class RequestFailed(Exception):  # noqa: N818 - as the core calls it
    """A request without a response; the message is a sentence for a log line."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        self.kind = kind
        self.detail = printable(detail)  # may quote the broker
        super().__init__(self.detail)


class NoTokenError(Exception):
    """The application's token provider failed."""


def name_of(node: Node) -> str:
    """A broker for a log line."""
    address = printable(f"{node.host}:{node.port}")  # as other brokers call it
    return address if node.node_id < 0 else f"broker {node.node_id} at {address}"


def refusal(error: Exception, node: Node, config: ConsumerConfig, within: float) -> RequestFailed:
    """What an error that ended the opening of a connection means.

    Texts of the broker are in it; should it have sent the password back, that is left out.
    """
    failed = _refusal(error, node, config, within)
    password = config.sasl_plain_password
    if password and password in failed.detail:
        return RequestFailed(failed.kind, failed.detail.replace(password, "***"))
    return failed


def _refusal(error: Exception, node: Node, config: ConsumerConfig, within: float) -> RequestFailed:
    where = name_of(node)
    tls = _tls_error(error)
    if tls is not None and _is_final(tls):
        return RequestFailed(
            FailureKind.AUTHENTICATION, f"no TLS with {where}: {_tls_reason(tls, node)}"
        )
    if isinstance(error, ScramError):
        return RequestFailed(
            FailureKind.AUTHENTICATION,
            f"cannot authenticate at {where} with {config.sasl_mechanism}: {error.reason}",
        )
    if isinstance(error, kafka_errors.UnsupportedSaslMechanismError):
        return RequestFailed(
            FailureKind.AUTHENTICATION,
            f"{where} has not enabled sasl_mechanism {config.sasl_mechanism}",
        )
    if isinstance(error, _REFUSED):
        return RequestFailed(
            FailureKind.AUTHENTICATION,
            f"{where} refused to authenticate with {config.sasl_mechanism}: {error}; check"
            f" {_CREDENTIALS.get(config.sasl_mechanism, _NAME_AND_PASSWORD)}",
        )
    if isinstance(error, NoTokenError):
        return RequestFailed(FailureKind.UNREACHABLE, f"{where}: {error}")
    if isinstance(error, TimeoutError):
        return RequestFailed(
            FailureKind.UNREACHABLE, f"no connection to {where} within {round(within, 1):g} s"
        )
    if isinstance(error, kafka_errors.KafkaError):
        cause = error.__cause__
        why = "it closed the connection" if isinstance(cause, EOFError) else repr(cause or error)
        return RequestFailed(
            FailureKind.UNREACHABLE,
            f"{where} does not answer as a Kafka broker: {why}; if that goes on, check"
            " security_protocol and the port",
        )
    if isinstance(error, OSError):
        detail = f"no connection to {where}: {str(error) or repr(error)}"
        if isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError):
            detail += "; if that goes on, check security_protocol and the port"
        return RequestFailed(FailureKind.UNREACHABLE, detail)
    if config.security_protocol.startswith("SASL_"):
        return RequestFailed(
            FailureKind.AUTHENTICATION,
            f"cannot authenticate at {where} with {config.sasl_mechanism}:"
            f" {type(error).__name__}: {error}",
        )
    return RequestFailed(FailureKind.UNREACHABLE, f"no connection to {where}: {error!r}")


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__
    return error


def _tls_reason(error: ssl.SSLError, node: Node) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        why = _CERTIFICATES.get(error.verify_code)
        if why is not None:
            return why.format(host=node.host)
        return f"its certificate is refused: {error.verify_message}; check ssl_context"
    reason = error.reason or str(error)
    if any(sign in reason for sign in _OWN_CERTIFICATE):
        return (
            f"the broker refuses this client's certificate, or asks for one and got none ({reason})"
            "; load one that it trusts by ssl_context.load_cert_chain(...)"
        )
    return f"{reason}; check security_protocol and ssl_context"


def _is_final(error: ssl.SSLError) -> bool:
    reason = error.reason or ""
    return isinstance(error, ssl.SSLCertVerificationError) or any(
        final in reason for final in _TLS_REFUSALS
    )
