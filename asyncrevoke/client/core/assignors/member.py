"""A member of a classic group, as its leader sees it."""

from __future__ import annotations

from typing import NamedTuple

from asyncrevoke.client.protocol.subscription import Subscription


class Member(NamedTuple):
    """A member of the group as its leader sees it in the JoinGroup response."""

    member_id: str
    group_instance_id: str | None
    subscription: Subscription
