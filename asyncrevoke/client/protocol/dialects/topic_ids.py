"""Identifies topics by name, or by id (KIP-516) in versions without names."""

from __future__ import annotations

import uuid
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from asyncrevoke.client.protocol.messages import (
        FetchRequest,
        OffsetCommitRequest,
        OffsetFetchRequest,
    )


class _WithId(Protocol):
    @property
    def topic_id(self) -> uuid.UUID | None: ...


_Topic = TypeVar("_Topic", bound=_WithId)


def by_name(_topic_ids: Mapping[str, bytes] | None, topic: str) -> object:
    """The name."""
    return topic


def by_id(topic_ids: Mapping[str, bytes] | None, topic: str) -> object:
    """The id of a topic. Raises TypeError if the request does not have it."""
    topic_id = topic_ids.get(topic) if topic_ids is not None else None
    if topic_id is None:
        raise TypeError(f"the id of topic {topic!r} is unknown")
    return uuid_of(topic_id)


def names(topic_ids: Mapping[str, bytes] | None) -> Mapping[bytes, str]:
    """The topic names of a request, by id."""
    return {topic_id: name for name, topic_id in (topic_ids or {}).items()}


def with_names(
    topics: Iterable[_Topic],
    request: FetchRequest | OffsetCommitRequest | OffsetFetchRequest | None,
) -> Iterator[tuple[str, _Topic]]:
    """The topics of a response with their names, without those whose id the request lacks."""
    known = names(None if request is None else request.topic_ids)
    for topic in topics:
        topic_id = topic.topic_id
        if topic_id is not None and (name := known.get(topic_id.bytes)) is not None:
            yield name, topic


def bytes_of(topic_id: uuid.UUID | None) -> bytes:
    """The id as messages have it; zeros for none."""
    return bytes(16) if topic_id is None else topic_id.bytes


# Every fetch has the same ids, and creating a UUID is slower than encoding it.
@lru_cache(maxsize=1024)
def uuid_of(topic_id: bytes) -> uuid.UUID:
    """The id as kio has it."""
    return uuid.UUID(bytes=topic_id)
