"""The states of an offset, each a byte, and tables that change the states of many at C speed."""

from __future__ import annotations

import re
from typing import Final

PENDING: Final = 0  # delivered
HELD: Final = 1  # a task runs it
DONE: Final = 2
HOLE: Final = 3  # no record, or completed by a former owner
ABANDONED: Final = 4  # ended without being done, or never started
LEFT_OUT: Final = 5  # abandoned while others are read again, which leave it out

COMPLETED: Final = re.compile(rb"[\x02\x03]*")
IN_FLIGHT: Final = re.compile(rb"[\x00\x01]")
# For bytes.translate: 1 for states that ...
IS_COMPLETED: Final = b"\0\0\1\1" + bytes(252)
IS_NOT_ABANDONED: Final = b"\1\1\1\1" + bytes(252)
# ... or another state for some.
WITHOUT_ABANDONED: Final = bytes((PENDING, HELD, DONE, HOLE, HOLE)) + bytes(range(5, 256))
READ_ALL_AGAIN: Final = bytes((*range(5), ABANDONED)) + bytes(range(6, 256))
ABANDON_PENDING: Final = bytes((ABANDONED,)) + bytes(range(1, 256))
COMPLETE_PENDING: Final = bytes((DONE, HELD, DONE, HOLE)) + bytes(range(4, 256))
