"""The subscription of another member as its leader reads it: errors affect only its member.

A subscription whose topics cannot be read, or that is too large, counts as one without topics. What
is missing or not valid after its user data counts as not reported. Illegal topic names are ignored,
with the partitions that a member claims of them. A generation that the group has not had yet counts
as the one before the present one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from asyncrevoke.client.config.topics import MAX_TOPICS, is_legal_topic
from asyncrevoke.client.core.assignors.ownership import encode_generation, generation_of
from asyncrevoke.client.core.assignors.sticky import StickyAssignor, with_last_assignment
from asyncrevoke.client.protocol.subscription import (
    MalformedMemberData,
    Subscription,
    decode_with_unread_size,
)

if TYPE_CHECKING:
    from asyncrevoke.client.core.assignors.assignor import Assignor

# A broker stores all subscriptions of a group in one record, of 1 MiB by default.
MAX_BYTES = 4 * 2**20
MAX_OWNED = 250_000
# Characters of another member's data in a log line.
_QUOTED = 60

_NOTHING = Subscription(topics=())


class ReportedSubscription(NamedTuple):
    """``unreadable``: why it is ignored wholly. ``ignored``: which parts are."""

    subscription: Subscription
    unreadable: str | None = None
    ignored: tuple[str, ...] = ()


def read_subscription(metadata: bytes, generation: int, assignor: Assignor) -> ReportedSubscription:
    """Read and check what a member has sent with JoinGroup; never raises.

    ``generation`` is the one that the group has just joined: members own partitions since an
    earlier one. With ``sticky`` what the last assignment gave a member counts as owned.
    """
    if len(metadata) > MAX_BYTES:
        return _unreadable(f"{len(metadata)} bytes are more than {MAX_BYTES}")
    try:
        subscription, unread = decode_with_unread_size(
            metadata, max_topics=MAX_TOPICS, max_owned=MAX_OWNED
        )
    except MalformedMemberData as error:
        return _unreadable(str(error))
    if isinstance(assignor, StickyAssignor):
        subscription = with_last_assignment(subscription, MAX_OWNED)
    ignored = [f"{unread} bytes after the user data that are not valid"] if unread else []
    topics = tuple(dict.fromkeys(filter(is_legal_topic, subscription.topics)))
    if illegal := [name for name in subscription.topics if not is_legal_topic(name)]:
        ignored.append(f"{len(illegal)} names that no topic can have, such as {_quote(illegal[0])}")
    owned = dict.fromkeys(subscription.owned)
    if foreign := {tp.topic for tp in owned if not is_legal_topic(tp.topic)}:
        ignored.append(f"owned partitions of {len(foreign)} topics that cannot exist")
    user_data = subscription.user_data
    # It matters only with owned partitions; the user data of other assignors begins differently.
    claimed = generation_of(subscription) if owned else subscription.generation
    if claimed >= generation:
        ignored.append(f"generation {claimed}, which the group has not had yet")
        claimed = max(-1, generation - 1)
        encoded = encode_generation(claimed)
        if user_data is not None and len(user_data) >= len(encoded):
            user_data = encoded + user_data[len(encoded) :]
    return ReportedSubscription(
        msgspec.structs.replace(
            subscription,
            topics=topics,
            owned=tuple(tp for tp in owned if tp.topic not in foreign),
            generation=min(subscription.generation, claimed),
            user_data=user_data,
        ),
        ignored=tuple(ignored),
    )


def _unreadable(problem: str) -> ReportedSubscription:
    return ReportedSubscription(_NOTHING, unreadable=problem)


def _quote(text: str) -> str:
    return repr(text[:_QUOTED])
