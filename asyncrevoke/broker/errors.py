"""Errors of starting a broker, and of requests to it."""

from asyncrevoke.client.errors import AsyncRevokeError
from asyncrevoke.client.printable import printable_lines


class BrokerStartError(AsyncRevokeError):
    """No broker could be started; the message has the fix.

    ``log_tail`` has the last lines of the broker's log, empty if the broker never ran.
    """

    def __init__(self, message: str, log_tail: str = "") -> None:
        self.log_tail = log_tail
        super().__init__(message)

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\n{printable_lines(self.log_tail)}" if self.log_tail else message


class BrokerMissingError(BrokerStartError):
    """This machine lacks Java, the jars of Apache Kafka, or a Docker engine."""


class BrokerRequestError(AsyncRevokeError):
    """A broker rejected a request, such as creating a topic, with the error ``code``."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
