"""The bootstrap servers of a consumer, and how it authenticates; without secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asyncrevoke.handlers.asyncapi.json_schemas import identifier

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.handlers.asyncapi.objects import Server

_SCHEME: Final = "sasl"
_TYPES: Final = {
    "PLAIN": {"type": "plain"},
    "SCRAM-SHA-256": {"type": "scramSha256"},
    "SCRAM-SHA-512": {"type": "scramSha512"},
    "GSSAPI": {"type": "gssapi"},
    # AsyncAPI has no type for a token in SASL.
    "OAUTHBEARER": {"type": "http", "scheme": "bearer"},
}


def security_schemes(config: ConsumerConfig) -> dict[str, dict[str, str]]:
    """The SASL mechanism, if there is one."""
    if not config.security_protocol.startswith("SASL"):
        return {}
    mechanism = config.sasl_mechanism
    return {_SCHEME: {**_TYPES[mechanism], "description": f"SASL {mechanism}"}}


def servers_of(config: ConsumerConfig) -> dict[str, Server]:
    """The servers by their names."""
    servers: dict[str, Server] = {}
    for host, port in config.addresses:
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        server: Server = {
            "host": address,
            "protocol": "kafka-secure" if config.security_protocol.endswith("SSL") else "kafka",
        }
        if security_schemes(config):
            server["security"] = [{"$ref": f"#/components/securitySchemes/{_SCHEME}"}]
        servers[identifier(address)] = server
    return servers
