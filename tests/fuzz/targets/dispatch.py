"""Values of records, from the choice of a handler to the decoded value.

An input is a byte that chooses the handlers of the topic, then the value. What is promised: a
handler is chosen for each value, or a DecodeError or UnmatchedRecordError is, and nothing else is
raised, however deep the value is nested; what a handler receives is decoded, or a DecodeError is
raised; and an error has no part of the value.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec
import pydantic
from wire.frames.response_frames import damage

from asyncrevoke import DecodeError, UnmatchedRecordError, by_header
from asyncrevoke.client.model import Record
from asyncrevoke.handlers.decoding.decoders import Decoder, decoder_for
from asyncrevoke.handlers.registry import Router

if TYPE_CHECKING:
    import random

    from asyncrevoke.handlers.matching import SharedTopic

_SECRET = "s3cr3t"
_DEEP = (1, 10, 200, 900, 1_100, 3_000, 100_000)


class Paid(msgspec.Struct, tag="paid", tag_field="type"):
    """A tagged object."""

    n: int
    of: dict[str, Any] | None = None


class Sent(msgspec.Struct, tag="sent", tag_field="type"):
    """Another one."""

    n: float


class First(msgspec.Struct, tag=1, array_like=True):
    """A tagged array."""

    n: int


class Second(msgspec.Struct, tag=2, array_like=True):
    """Another one."""

    n: str


class Opened(pydantic.BaseModel):
    """A model with a tag."""

    kind: Literal["opened"]
    n: int = 0


class Closed(pydantic.BaseModel):
    """Another one."""

    kind: Literal["closed", "deleted"]
    of: Any = None


_SETS: tuple[tuple[type, ...], ...] = (
    (Paid, Sent),
    (Paid, bytes),
    (First, Second),
    (Opened, Closed),
    (Opened, str),
    (Closed, dict),
)


def _matcher(kinds: tuple[type, ...], *, predicate: bool) -> SharedTopic:
    router = Router()
    if predicate:

        async def marked(value: bytes) -> None: ...

        router.handler("orders", where=by_header("type", "marked"))(marked)
    for kind in kinds:

        async def handle(value: Any) -> None: ...

        handle.__annotations__ = {"value": kind, "return": None}
        router.handler("orders")(handle)
    found = router.matcher_of("orders")
    assert found is not None
    return found


class Dispatch:
    """Chooses the handlers of values that anyone may write, and decodes these."""

    name: ClassVar[str] = "dispatch"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._matchers = [
            _matcher(kinds, predicate=predicate) for kinds in _SETS for predicate in (False, True)
        ]
        kinds = {kind for each in _SETS for kind in each}
        self._decoders: dict[object, Decoder] = {
            kind: decoder_for(kind, kind.__name__) for kind in kinds
        }

    def generate(self, random: random.Random) -> bytes:
        """A legal value of one of the types, with a nested or wrong part, or damaged."""
        tags: tuple[object, ...] = (_SECRET, None, 1, True, [], {}, 2**70)
        tag = random.choice(tags)
        values: tuple[object, ...] = (
            {"type": "paid", "n": 1, "of": {"a": [1, _SECRET]}},
            {"type": "sent", "n": 1.5},
            {"type": tag, "n": 1},
            [random.choice((1, 2, 3, "1", None)), random.choice((1, _SECRET))],
            [tag, 1],
            {"kind": random.choice(("opened", "closed", "deleted", _SECRET, 7)), "n": _SECRET},
            {},
            _SECRET,
            None,
        )
        value = random.choice(values)
        data = json.dumps(value).encode()
        if random.random() < 0.4:
            data = self._nested(data, random)
        if random.random() < 0.4:
            data = damage(data, random)
        return bytes((random.randrange(len(self._matchers)),)) + data

    def _nested(self, data: bytes, random: random.Random) -> bytes:
        depth = random.choice(_DEEP)
        opening, closing = random.choice(((b"[", b"]"), (b'{"a":', b"}")))
        inner = opening * depth + b"1" + closing * random.choice((depth, depth, 0))
        if data[:1] == b"{" and len(data) > 2:
            return (
                b'{"x":' + inner + b"," + data[1:]
                if random.random() < 0.5
                else data[:-1] + b',"of":' + inner + b"}"
            )
        return b"[" + random.choice((b"1,", b"")) + inner + b"]"

    def check(self, data: bytes) -> None:
        """Choose the handler, and decode the value."""
        matcher = self._matchers[data[0] % len(self._matchers)] if data else self._matchers[0]
        record = Record("orders", 0, 7, 1, 0, None, data[1:])
        handler, error = matcher.choose(record)
        if error is not None:
            assert isinstance(error, (DecodeError, UnmatchedRecordError)), repr(error)
            self._is_described(error)
            self.counts[type(error).__name__] += 1
            return
        self.counts["chosen"] += 1
        try:
            self._decoders[handler.value_type](record)
        except DecodeError as failed:
            self._is_described(failed)
            self.counts["undecodable"] += 1

    def _is_described(self, error: Exception) -> None:
        text = str(error)
        assert text.isprintable()
        assert len(text) < 1_000
        assert _SECRET not in text
