"""Options that exclude each other with ``processing="exactly_once"``, or need it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asyncrevoke.client.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.client.config.consumer_config import ConsumerConfig

_NEED_IT: Final = ("transaction_interval", "transaction_timeout", "transactional_id_prefix")


def check_exactly_once(given: Mapping[str, object]) -> None:
    """Raise ConfigError for options, as they were given, that have no meaning together."""
    if given.get("processing") != "exactly_once":
        for name in _NEED_IT:
            if name in given:
                raise ConfigError(f'{name} is for processing="exactly_once": leave it out')
        return
    if given.get("isolation_level") == "read_uncommitted":
        raise ConfigError(
            'processing="exactly_once" reads committed records only: leave out '
            'isolation_level="read_uncommitted"'
        )
    if "commit_interval" in given:
        raise ConfigError(
            'processing="exactly_once" commits in transactions: use transaction_interval=... '
            "instead of commit_interval"
        )


def check_exactly_once_group(config: ConsumerConfig) -> None:
    """Raise ConfigError for options that exclude ``processing="exactly_once"``, which is given."""
    if config.group_id is None:
        raise ConfigError('processing="exactly_once" needs a consumer group: give a group_id')
    if config.commit_mode != "processed":
        raise ConfigError(
            f'processing="exactly_once" commits in transactions: commit_mode='
            f'"{config.commit_mode}" has no meaning with it, leave it out'
        )
    if not config.idempotent:
        raise ConfigError('processing="exactly_once" needs idempotent=True')
