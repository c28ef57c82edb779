"""How failed records of a replay end: an option of commands."""

from __future__ import annotations

from enum import StrEnum


class ErrorsName(StrEnum):
    """How a failed record ends."""

    RECORD = "record"
    POLICY = "policy"
    FAIL = "fail"
