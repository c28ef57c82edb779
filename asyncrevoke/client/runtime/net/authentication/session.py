"""How long a broker accepts requests of an authenticated connection."""

from __future__ import annotations

import random
from typing import Final

# Fractions of a session's lifetime: random, so that clients do not renew at the same time.
_RENEWED: Final = (0.8, 0.9)
_USED: Final = 0.95
_RENEWAL_PAUSE: Final = 0.5


class AuthenticatedSession:
    """How long a broker accepts requests on a connection without another authentication (KIP-368).

    By the event loop's clock: open another connection at ``renew_at``, and send no request after
    ``ends_at``.
    """

    def __init__(self, now: float, lifetime: float) -> None:
        self.renew_at = now + lifetime * random.uniform(*_RENEWED)  # noqa: S311
        self.ends_at = now + lifetime * _USED

    def renewal_failed(self, now: float) -> None:
        """Try again after a quarter of the time that is left."""
        self.renew_at = now + max(_RENEWAL_PAUSE, (self.ends_at - now) / 4)
