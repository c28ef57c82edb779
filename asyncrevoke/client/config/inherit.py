"""The value of an option that takes the consumer's value."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Inherit(Enum):
    """The type of :data:`INHERIT`."""

    INHERIT = "INHERIT"


INHERIT: Final = Inherit.INHERIT
"""The value of an option of a handler, a task group or a replay that takes the consumer's value."""
