"""Topics by their names, or by their ids (KIP-516) in versions that have no names."""

from __future__ import annotations

import uuid
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    # What stands for a topic, out of the ids that a request tells.
    Naming: TypeAlias = "Callable[[Mapping[str, bytes] | None, str], object]"

__all__ = ["by_id", "by_name", "name_of", "names"]


def by_name(_topic_ids: Mapping[str, bytes] | None, topic: str) -> object:
    """The name itself."""
    return topic


def by_id(topic_ids: Mapping[str, bytes] | None, topic: str) -> object:
    """The id of a topic, which must be among those that a request tells."""
    topic_id = topic_ids.get(topic) if topic_ids is not None else None
    if topic_id is None:
        raise TypeError(f"the id of topic {topic!r} is not told")
    return _uuid(topic_id)


def names(topic_ids: Mapping[str, bytes] | None) -> Mapping[bytes, str]:
    """The names of the topics that a request was about, by their ids."""
    return {topic_id: name for name, topic_id in (topic_ids or {}).items()}


def name_of(known: Mapping[bytes, str], topic_id: uuid.UUID | None) -> str | None:
    """The name of a topic in a response; None if nobody has asked about it."""
    return None if topic_id is None else known.get(topic_id.bytes)


# The same ids stand in every fetch, and making one takes longer than what it is for.
@lru_cache(maxsize=1024)
def _uuid(topic_id: bytes) -> uuid.UUID:
    return uuid.UUID(bytes=topic_id)
