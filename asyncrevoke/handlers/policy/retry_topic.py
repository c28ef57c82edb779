"""The option ``retry_topic``: a topic for failed records, which are read again after a delay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast

from asyncrevoke.client.config import checks
from asyncrevoke.client.config.topics import check_topic
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.handlers.policy.retry import Retry

# Without ``retry``, any exception sends a record to its retry topic.
_ANY: Final = Retry()


@dataclass(frozen=True, slots=True)
class RetryTopic:
    """Send a failed record to ``topic``, and call its handler again ``delay`` seconds later.

    A record is sent after the last attempt of ``Retry``. The member of the group that reads it
    calls the handler once. If this call fails, the record is sent again, in all ``attempts`` times
    (None: without limit). A record whose exception ``Retry(retry_on=...)`` does not name, or whose
    value does not decode for good, is not sent.

    Hazard: later records of its key are handled before it. Raises ConfigError.
    """

    topic: str
    delay: float = 60.0
    attempts: int | None = 3

    def __post_init__(self) -> None:
        check_topic(self.topic, "RetryTopic")
        checks.seconds()("RetryTopic(delay)", self.delay)
        attempts = cast("object", self.attempts)
        if attempts is None:
            return
        if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
            raise ConfigError(
                f"RetryTopic(attempts={shown_option(attempts)}) is how often a record is sent to "
                "the topic: at least 1, or None for no limit"
            )

    def takes(self, error: BaseException, retry: Retry | None, reads: int) -> bool:
        """Whether a failed record that was read ``reads`` times from the topic is sent there."""
        if not (_ANY if retry is None else retry).names(error):
            return False
        return self.attempts is None or reads < self.attempts
