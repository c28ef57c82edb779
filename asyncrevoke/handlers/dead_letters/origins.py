"""Which topics the failed records of a dead letter topic or a retry topic can come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.config.topics import is_legal_topic

if TYPE_CHECKING:
    from asyncrevoke.handlers.policy.registration import HandlerLookup


def may_be_origin(lookup: HandlerLookup, origin: str, written_to: str) -> bool:
    """Whether handlers of the topic ``origin`` send failed records to the topic ``written_to``.

    Whoever may write to a dead letter topic or a retry topic chooses the headers of its records.
    A header is believed only if this consumer could have written it: without this, it would choose
    the handler, and name records of any topic.
    """
    return is_legal_topic(origin) and any(
        written_to in handler.failure_topics for handler in lookup.handlers_of(origin)
    )
