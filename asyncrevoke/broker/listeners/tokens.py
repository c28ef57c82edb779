"""Unsigned JSON Web Tokens, which a test broker accepts for OAUTHBEARER."""

from __future__ import annotations

import base64
import json
import time
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokafka.abc import AbstractTokenProvider

_LIFE = 3600  # seconds


def unsigned_token(name: str) -> str:
    """A token for this user, valid for an hour (RFC 7519, section 6)."""
    now = int(time.time())
    parts = {"alg": "none"}, {"sub": name, "iat": now, "exp": now + _LIFE}
    return "".join(f"{_encoded(json.dumps(part).encode())}." for part in parts)


def unsigned_tokens(name: str) -> AbstractTokenProvider:
    """A token provider for a client, with unsigned tokens."""
    from aiokafka.abc import AbstractTokenProvider

    from asyncrevoke.client.groups.token import token_provider

    provider = token_provider(partial(unsigned_token, name))
    AbstractTokenProvider.register(type(provider))  # aiokafka's clients ask for an instance
    return provider


def _encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()
