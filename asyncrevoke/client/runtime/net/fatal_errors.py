"""Failures of requests, and the meaning of errors while opening a connection."""

from __future__ import annotations

import ssl
from functools import partial
from typing import TYPE_CHECKING, Final

from asyncrevoke.client.core.io.effects import FailureKind, Node
from asyncrevoke.client.printable import printable
from asyncrevoke.client.protocol.codec import UnsupportedVersion
from asyncrevoke.client.runtime.net.authentication.errors import (
    AuthenticationRejectedError,
    ExchangeError,
    MechanismNotEnabledError,
    NoTokenError,
)

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.protocol.messages import Request

_CREDENTIALS: Final = {
    "GSSAPI": "the Kerberos ticket and sasl_kerberos_service_name",
    "OAUTHBEARER": "sasl_oauth_token_provider",
}
_NAME_AND_PASSWORD: Final = "sasl_plain_username and sasl_plain_password"  # noqa: S105 - options
# TLS failures that a retry cannot resolve.
_TLS_REJECTIONS: Final = ("ALERT", "WRONG_VERSION_NUMBER", "UNSUPPORTED_PROTOCOL", "HTTP_REQUEST")
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
# TLS alerts about the client's certificate.
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


class NoKafkaBrokerError(Exception):
    """A server closed the connection, or did not respond as a Kafka broker does, while the
    connection was opened. The message is the reason, of which ``__cause__`` may have the error."""


class OtherBrokerError(Exception):
    """A broker responds that it has another id than the one expected, or is in another cluster."""


def node_name(node: Node) -> str:
    """A broker's name in a message."""
    address = printable(node.address)  # from the metadata of a broker
    return address if node.node_id < 0 else f"broker {node.node_id} at {address}"


def request_name(message: Request) -> str:
    """A request's name in a message."""
    return type(message).__name__.removesuffix("Request")


def connection_lost(
    node: Node, message: Request, cause: Exception | None, *, has_responded: bool
) -> RequestFailed:
    """The failure of a request in flight on a connection that was closed.

    ``has_responded``: whether there was any response on it.
    """
    where, what = node_name(node), request_name(message)
    if isinstance(cause, EOFError):
        detail = f"{where} closed the connection before it responded to {what}"
    else:
        detail = f"the connection to {where} was lost before it responded to {what}"
        if cause is not None:
            detail += f": {cause!r}"
    if not has_responded:
        detail += "; if it always does, check security_protocol and the broker's log"
    return RequestFailed(FailureKind.DISCONNECTED, detail)


def opening_failure(
    error: Exception, node: Node, config: ConsumerConfig, within: float
) -> RequestFailed:
    """The failure that an error while opening a connection means.

    It may quote the broker; the password is removed if the broker has sent it back.
    """
    failed = _failure_of(error, node, config, within)
    password = config.sasl_plain_password
    if password and password in failed.detail:
        return RequestFailed(failed.kind, failed.detail.replace(password, "***"))
    return failed


def _failure_of(
    error: Exception, node: Node, config: ConsumerConfig, within: float
) -> RequestFailed:
    where = node_name(node)
    authentication = partial(RequestFailed, FailureKind.AUTHENTICATION)
    unreachable = partial(RequestFailed, FailureKind.UNREACHABLE)
    tls = _tls_error(error)
    if tls is not None and _is_final(tls):
        return authentication(f"no TLS with {where}: {_tls_reason(tls, node)}")
    if isinstance(error, ExchangeError | UnsupportedVersion):
        reason = error.reason if isinstance(error, ExchangeError) else error
        return authentication(
            f"cannot authenticate at {where} with {config.sasl_mechanism}: {reason}"
        )
    if isinstance(error, MechanismNotEnabledError):
        enabled = f" but {error}" if error.enabled else ""
        return authentication(
            f"{where} has not enabled sasl_mechanism {config.sasl_mechanism}{enabled}"
        )
    if isinstance(error, AuthenticationRejectedError):
        return authentication(
            f"{where} rejected the authentication with {config.sasl_mechanism}: {error}; check"
            f" {_CREDENTIALS.get(config.sasl_mechanism, _NAME_AND_PASSWORD)}"
        )
    if isinstance(error, OtherBrokerError):
        return unreachable(
            f"{where} is another broker now, or in another cluster (REBOOTSTRAP_REQUIRED)"
        )
    if isinstance(error, NoTokenError):
        return unreachable(f"{where}: {error}")
    if isinstance(error, TimeoutError):
        return unreachable(f"no connection to {where} within {round(within, 1):g} s")
    if isinstance(error, NoKafkaBrokerError):
        return unreachable(
            f"{where} does not respond as a Kafka broker: {error}; if this persists, check"
            " security_protocol and the port"
        )
    if isinstance(error, OSError):
        detail = f"no connection to {where}: {str(error) or repr(error)}"
        if isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError):
            detail += "; if this persists, check security_protocol and the port"
        return unreachable(detail)
    if config.security_protocol.startswith("SASL_"):
        return authentication(
            f"cannot authenticate at {where} with {config.sasl_mechanism}:"
            f" {type(error).__name__}: {error}"
        )
    return unreachable(f"no connection to {where}: {error!r}")


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__
    return error


def _tls_reason(error: ssl.SSLError, node: Node) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        why = _CERTIFICATES.get(error.verify_code)
        if why is not None:
            return why.format(host=node.host)
        return f"its certificate is rejected: {error.verify_message}; check ssl_context"
    reason = error.reason or str(error)
    if any(sign in reason for sign in _OWN_CERTIFICATE):
        return (
            f"the broker rejects this client's certificate, or asks for one and got none ({reason})"
            "; load one that it trusts by ssl_context.load_cert_chain(...)"
        )
    return f"{reason}; check security_protocol and ssl_context"


def _is_final(error: ssl.SSLError) -> bool:
    reason = error.reason or ""
    return isinstance(error, ssl.SSLCertVerificationError) or any(
        final in reason for final in _TLS_REJECTIONS
    )
