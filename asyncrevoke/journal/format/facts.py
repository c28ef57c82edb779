"""The facts of a row: a JSON object, which is not trusted."""

from __future__ import annotations

import json
from typing import Any, cast

# Characters: objects of JSON take up to forty times as much.
_LONGEST_FACTS = 2**20


def facts_of(text: str | None) -> dict[str, Any]:
    """The facts of a row; an empty dictionary if they are not a JSON object, or longer than any."""
    if text is not None and len(text) > _LONGEST_FACTS:
        return {}
    try:
        found: object = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
