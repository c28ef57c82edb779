"""Keeps passwords and tokens out of aiokafka's log, which at DEBUG has every request."""

from __future__ import annotations

import logging


class _WithoutCredentials(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        arguments = record.args
        if record.levelno > logging.DEBUG or not isinstance(arguments, tuple):
            return True
        # PLAIN and OAUTHBEARER send the secret itself, SCRAM what it can be guessed from.
        return not any("SaslAuthenticate" in type(each).__name__ for each in arguments)


_FILTER = _WithoutCredentials()


def keep_credentials_out_of_logs() -> None:
    """To be called before a connection is made. Again is harmless."""
    logging.getLogger("aiokafka.conn").addFilter(_FILTER)
