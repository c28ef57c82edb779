"""Response frames as brokers send them, with values drawn at random, and ways to damage them.

Run as a program, it decodes damaged frames until something goes wrong, in a process of its own
since that may be the end of the process: ``python response_frames.py SEED COUNT``.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import random
import resource
import struct
import sys
import time
import uuid
from types import NoneType
from typing import TYPE_CHECKING, Any, cast, get_args, get_origin

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from asyncrevoke.client.protocol import codec

if TYPE_CHECKING:
    from kio.static.protocol import Entity

    from asyncrevoke.client.protocol.messages import Request

# Fits what a frame of this size can need, and nothing that its counts may promise.
MEMORY_LIMIT = 2 * 1024**3
SLOWEST_DECODE = 2.0
CORRELATION_ID = 77
NO_THROTTLE = datetime.timedelta(0)
KNOWN_TOPIC = uuid.UUID(int=77)
_ERROR_CODES = tuple(ErrorCode)


def frame(message_type: type[Request], version: int, rng: random.Random) -> bytes:
    """A valid frame of the response to this request."""
    dialect = codec._dialect(message_type, version)
    entity = sample(dialect.response_type, rng)
    # That of ApiVersions has no tagged fields in any version.
    return header(flexible=dialect.response_type.__header_schema__.__flexible__) + body(entity)


def header(*, flexible: bool) -> bytes:
    return struct.pack(">i", CORRELATION_ID) + (b"\0" if flexible else b"")


def body(entity: Any) -> bytes:
    buffer = io.BytesIO()
    write = entity_writer(cast("type[Entity]", type(entity)))
    write(buffer, entity)
    return buffer.getvalue()


def sample(entity_type: type[Any], rng: random.Random) -> Any:
    return entity_type(
        **{
            field.name: _value(field.type, field.metadata.get("kafka_type", ""), rng)
            for field in dataclasses.fields(entity_type)
            if "tag" not in field.metadata or rng.random() < 0.2
        }
    )


def _value(declared: Any, kafka_type: str, rng: random.Random) -> Any:
    if NoneType in get_args(declared) and get_origin(declared) is not tuple:
        if rng.random() < 0.2:
            return None
        (declared,) = (option for option in get_args(declared) if option is not NoneType)
    if get_origin(declared) is tuple:
        element = get_args(declared)[0]
        return tuple(_value(element, kafka_type, rng) for _ in range(rng.choice((0, 1, 1, 3))))
    if dataclasses.is_dataclass(declared):
        return sample(declared, rng)  # type: ignore[arg-type]
    match kafka_type:
        case "int8" | "int16" | "int32" | "int64":
            bits = int(kafka_type[3:]) - 1
            return rng.choice((0, 1, -1, rng.randrange(-(2**bits), 2**bits)))
        case "bool":
            return rng.random() < 0.5
        case "string":
            return rng.choice(("", "topic", "ä€", "x" * 200))
        case "bytes" | "records":
            return rng.randbytes(rng.choice((0, 3, 300)))
        case "error_code":
            return rng.choice(_ERROR_CODES)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=rng.randrange(1000))
        case "datetime_i64":
            return datetime.datetime.fromtimestamp(rng.randrange(2**31), datetime.UTC)
        case "uuid":
            return rng.choice((None, KNOWN_TOPIC, uuid.UUID(int=rng.getrandbits(128))))
        case _:
            raise TypeError(f"no sample of {kafka_type} {declared}")


def damage(data: bytes, rng: random.Random) -> bytes:
    """A few bytes changed, inserted, removed or cut off, with a liking for huge counts."""
    corrupt = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(corrupt) + 1)
        match rng.randrange(8):
            case 0:
                corrupt[at : at + 1] = rng.randbytes(1)
            case 1:
                corrupt[at : at + 5] = rng.choice((b"\xff\xff\xff\xff\x0f", b"\xff" * 5))
            case 2:
                corrupt[at : at + 4] = rng.choice((b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff" * 4))
            case 3:
                corrupt[at : at + 2] = struct.pack(">h", rng.choice((9999, -2, 32767)))
            case 4:
                corrupt[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 5:
                del corrupt[at : at + rng.randrange(1, 9)]
            case 6:
                # A number of one byte, written in two.
                corrupt[at : at + 1] = bytes(byte | 0x80 for byte in corrupt[at : at + 1]) + b"\0"
            case _:
                del corrupt[at:]
    return bytes(corrupt)


def main(seed: int, count: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    rng = random.Random(seed)
    kinds = [(kind, version) for kind in codec.REQUESTS for version in codec.versions(kind)]
    outcomes = {"decoded": 0, "rejected": 0}
    for number in range(count):
        kind, version = kinds[number % len(kinds)]
        data = damage(frame(kind, version, rng), rng)
        started = time.perf_counter()
        try:
            codec.decode_response(kind, version, data)
            outcomes["decoded"] += 1
        except codec.MalformedResponse as error:
            if isinstance(error.__cause__, MemoryError):
                raise
            outcomes["rejected"] += 1
        except BaseException:
            sys.stderr.write(f"{kind.__name__} v{version}: {data.hex()}\n")
            raise
        if time.perf_counter() - started > SLOWEST_DECODE:
            raise RuntimeError(f"{kind.__name__} v{version} took too long: {data.hex()}")
    sys.stdout.write(f"{outcomes['decoded']} {outcomes['rejected']}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
