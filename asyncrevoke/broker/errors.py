"""Errors of starting a broker, and of requests to it."""

from asyncrevoke.errors import AsyncRevokeError
from asyncrevoke.printable import printable_lines


class BrokerStartError(AsyncRevokeError):
    """No broker could be started; the message says how to fix that.

    ``log_tail`` holds the last lines that the broker wrote, empty if it never ran.
    """

    def __init__(self, message: str, log_tail: str = "") -> None:
        self.log_tail = log_tail
        super().__init__(message)

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\n{printable_lines(self.log_tail)}" if self.log_tail else message


class BrokerMissingError(BrokerStartError):
    """This machine lacks what a broker needs: a Java, the jars, or a Docker engine."""


class BrokerRequestError(AsyncRevokeError):
    """A broker answered a request, such as creating a topic, with the error ``code``."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
