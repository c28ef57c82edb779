"""Keeps secrets and records out of aiokafka's log, which at DEBUG has requests and responses."""

from __future__ import annotations

import logging
from typing import Final

_REQUESTS: Final = "aiokafka.conn"
_RECORDS: Final = "aiokafka.producer.producer"
# PLAIN and OAUTHBEARER send the secret itself, SCRAM data to guess it from.
_AUTHENTICATION: Final = "SaslAuthenticate"
_CONTENT: Final = ("Produce", "Fetch", "TxnOffsetCommit")


class _WithoutCredentials(logging.Filter):
    """Drops lines with credentials, and removes the content of records from the others."""

    def filter(self, record: logging.LogRecord) -> bool:
        arguments = record.args
        if record.levelno > logging.DEBUG or not isinstance(arguments, tuple):
            return True
        kinds = [type(each).__name__ for each in arguments]
        if any(_AUTHENTICATION in kind for kind in kinds):
            return False
        if any(kind.startswith(_CONTENT) for kind in kinds):
            record.args = tuple(
                f"{kind}(...)" if kind.startswith(_CONTENT) else each
                for kind, each in zip(kinds, arguments, strict=True)
            )
        return True


class _WithoutRecords(logging.Filter):
    """Replaces a key and a value by their sizes."""

    def filter(self, record: logging.LogRecord) -> bool:
        arguments = record.args
        if isinstance(arguments, tuple) and "key=" in str(record.msg):
            record.args = tuple(
                f"{len(each)} bytes" if isinstance(each, (bytes, str)) else each
                for each in arguments
            )
        return True


_CREDENTIALS: Final = _WithoutCredentials()
_CONTENTS: Final = _WithoutRecords()


def keep_credentials_out_of_logs() -> None:
    """Call this before a connection is opened. Idempotent."""
    logging.getLogger(_REQUESTS).addFilter(_CREDENTIALS)
    logging.getLogger(_RECORDS).addFilter(_CONTENTS)
