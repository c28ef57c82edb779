"""Options that have no meaning with ``group_protocol="consumer"`` (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.errors import ConfigError

if TYPE_CHECKING:
    from asyncrevoke.client.config.consumer_config import ConsumerConfig


def default(config: ConsumerConfig, name: str) -> object:
    """The default of an option."""
    return config.__dataclass_fields__[name].default


def reject_classic_options(config: ConsumerConfig) -> None:
    """Raise ConfigError for options of the classic protocol, with KIP-848."""
    if tuple(config.assignors) != default(config, "assignors"):
        raise ConfigError(
            'assignors=... is for the classic protocol: with group_protocol="consumer" the '
            "broker assigns, use server_assignor=..., or leave it out"
        )
    if config.session_timeout != default(config, "session_timeout"):
        raise ConfigError(
            f'session_timeout={config.session_timeout:g} s: with group_protocol="consumer" the '
            "broker decides it, by group.consumer.session.timeout.ms, or for this group by "
            "`kafka-configs --entity-type groups --alter --add-config "
            "consumer.session.timeout.ms=...`: set it there, and leave it out here"
        )
