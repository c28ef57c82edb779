"""The option that says how a replay treats failed records."""

from __future__ import annotations

from enum import StrEnum


class ErrorsName(StrEnum):
    """How a replay treats a failed record."""

    RECORD = "record"
    POLICY = "policy"
    FAIL = "fail"
