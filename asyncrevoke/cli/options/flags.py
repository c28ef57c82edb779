"""Shows Python options in messages of the library as command line flags."""

from __future__ import annotations

import re
from typing import Final

_OPTION: Final = re.compile(
    r"\b(bootstrap_servers|group|journal|limit|max_attempts|max_sessions|memory_limit|missing"
    r"|py_files|rate|resend_in_doubt|sasl_mechanism|security_protocol|to|topic)=(True\b)?"
)


def as_flags(message: object) -> str:
    """``limit=0`` as ``--limit 0``, and ``resend_in_doubt=True`` as ``--resend-in-doubt``."""
    return _OPTION.sub(
        lambda option: f"--{option[1].replace('_', '-')}{'' if option[2] else ' '}", str(message)
    )
