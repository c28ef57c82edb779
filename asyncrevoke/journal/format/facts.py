"""The facts of a row: an untrusted JSON object."""

from __future__ import annotations

import json
from typing import Any, cast

# Limit in characters. Decoded JSON takes up to forty times as much memory.
_LONGEST_FACTS = 2**20


def facts_of(text: str | None) -> dict[str, Any]:
    """The facts of a row. Empty if they are no JSON object, or too long."""
    if text is not None and len(text) > _LONGEST_FACTS:
        return {}
    try:
        found: object = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
