"""The facts of a row: an untrusted JSON object."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn, cast

# Limit in characters. Decoded JSON takes up to forty times as much memory.
_LONGEST_FACTS = 2**20


def facts_of(text: str | None) -> dict[str, Any]:
    """The facts of a row. Empty if they are not a JSON object, too long, or have a number that is
    not finite or has more than 64 bits."""
    if text is not None and len(text) > _LONGEST_FACTS:
        return {}
    try:
        found: object = json.loads(
            text or "{}", parse_int=_integer, parse_float=_finite, parse_constant=_no_constant
        )
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _integer(text: str) -> int:
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError("an integer of more than 64 bits")
    return number


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number beyond all floats")
    return number


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
