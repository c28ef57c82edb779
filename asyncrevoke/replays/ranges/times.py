"""Times that are given as text, to commands."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import printable

TIME_FORMS: Final = (
    "now, 2026-11-01, 2026-11-01T08:00+01:00, or how long ago, like 30s, 15m, 2h or 1d"
)
"""What :func:`to_time` accepts, for errors."""

# Characters of a text that is shown in an error.
_LONGEST: Final = 100
_AGO: Final = re.compile(r"([0-9]{1,9})(s|m|h|d)")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def to_time(name: str, text: str, now: datetime) -> datetime:
    """The time that an option ``name`` has: ``now``, a time in ISO 8601, or a duration before now.

    A time without an offset from UTC is in this machine's time zone. Pass the same ``now``, which
    has a time zone, for all options of a command. Raises ConfigError.
    """
    if text == "now":
        return now
    try:
        if ago := _AGO.fullmatch(text):
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo is not None else moment.astimezone()
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"{name} {printable(text, _LONGEST)}: write {TIME_FORMS}") from error


def to_optional_time(name: str, text: str | None, now: datetime) -> datetime | None:
    """As :func:`to_time`; None for an option that was not given."""
    return None if text is None else to_time(name, text, now)
