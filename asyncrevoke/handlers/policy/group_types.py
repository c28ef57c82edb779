"""Options of handlers that have a meaning in one type of group only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asyncrevoke.client.config.inherit import INHERIT
from asyncrevoke.client.config.share_groups import HANDLER_OPTIONS, refusal
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.handlers.policy.options import RELEASE_DELAY
from asyncrevoke.handlers.policy.retry import Pause

if TYPE_CHECKING:
    from asyncrevoke.client.config import GroupType
    from asyncrevoke.handlers.policy.registration import Handler

_OF_SHARE_GROUPS: Final = ("release", "reject")


def check_group_type(handler: Handler, group_type: GroupType) -> None:
    """Raise ConfigError for an option without meaning in a group of this type."""
    if group_type == "share":
        without_meaning = {
            "pattern": handler.pattern is not None,
            "order_by": handler.order_by not in (INHERIT, None),
            "retry_topic": handler.retry_topic is not None,
            "on_error": isinstance(handler.on_error, Pause)
            or handler.on_error in ("pause", "skip"),
        }
        for name, why in HANDLER_OPTIONS.items():
            if without_meaning[name]:
                raise ConfigError(refusal(f"{name}=... of {handler.name}", why))
    elif handler.on_error in _OF_SHARE_GROUPS:
        raise ConfigError(
            f'on_error="{handler.on_error}" of {handler.name} is for group_type="share": use '
            '"stop", "skip" or "pause"'
        )
    elif handler.release_delay != RELEASE_DELAY:
        raise ConfigError(
            f'release_delay of {handler.name} is for group_type="share": leave it out'
        )
