"""Times that are given to commands."""

from __future__ import annotations

from datetime import datetime

from asyncrevoke.client.errors import ConfigError


def to_time(option: str, text: str | None) -> datetime | None:
    """The time in ISO 8601 that an option has; without an offset from UTC it is in this machine's
    time zone. Raises ConfigError."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"{option} {text}: write 2026-11-01 or 2026-11-01T08:00+01:00") from error
