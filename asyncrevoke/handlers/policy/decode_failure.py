"""What a decoder's error says of a value without its content: the kind, the field, the position.

Messages of pydantic, of msgspec and of a user's code repeat parts of what they could not decode,
and errors are logged. What is told here are names that the type itself has, and numbers.
"""

from __future__ import annotations

import json
import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import msgspec

from asyncrevoke.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncrevoke.model import Record

__all__ = ["decode_error"]

# As msgspec ends a message: of a value's place it tells fields of the type and indexes alone.
_PLACE: Final = re.compile(r"^(?P<what>.*?)(?: - at `(?P<place>[^`]*)`)?$", re.DOTALL)
# What msgspec says of the type alone; others of its messages repeat a value.
_OF_THE_TYPE: Final = re.compile(
    r"Expected `[^`]+`(?: [<>=]+ -?[\d.e+]+)?(?:, got `\w+`)?$"
    r"|Expected `[^`]+` (?:of|with) (?:length|multiple) [^`']*$"
    r"|Object missing required field `\w+`$"
)
_MALFORMED: Final = re.compile(r"(?:JSON is malformed: [a-z ,]+|Input data was truncated)")
_SOME: Final = 3


class _Invalid(Protocol):
    """pydantic's ValidationError."""

    def errors(
        self, *, include_url: bool, include_context: bool, include_input: bool
    ) -> Sequence[Mapping[str, Any]]: ...


def decode_error(
    record: Record, what: str, error: BaseException, annotation: object = None
) -> DecodeError:
    """A DecodeError that says ``what`` of the value, and of ``error`` what has no content.

    It is to be raised outside of the ``except``, so that a traceback does not show ``error``.
    """
    return DecodeError(
        record.topic_partition,
        record.offset,
        f"{what}: {_described(error, annotation)}",
        original=error,
    )


def _described(error: BaseException, annotation: object) -> str:
    kind = type(error)
    if isinstance(error, UnicodeDecodeError):
        return f"no {error.encoding} at byte {error.start}"
    if isinstance(error, msgspec.ValidationError):
        return _of_msgspec(str(error))
    if isinstance(error, json.JSONDecodeError):
        return f"no JSON at byte {error.pos}"
    if isinstance(error, msgspec.DecodeError):
        position = re.search(r"\(byte (\d+)\)", str(error))
        found = _MALFORMED.match(str(error))
        words = found[0].strip() if found else kind.__name__
        return f"{words} at byte {position[1]}" if position else words
    if kind.__module__.partition(".")[0] == "pydantic_core" and hasattr(error, "errors"):
        return _of_pydantic(cast("_Invalid", error), annotation)
    return f"{kind.__name__}{_where(error)}"


def _of_msgspec(message: str) -> str:
    found = _PLACE.match(message)
    assert found is not None
    what = found["what"] if _OF_THE_TYPE.match(found["what"]) else "an invalid value"
    return f"{what} at {found['place']}" if found["place"] else what


def _of_pydantic(error: _Invalid, annotation: object) -> str:
    names = _field_names(annotation)
    found = error.errors(include_url=False, include_context=False, include_input=False)
    told = [f"{_path(each['loc'], names)}: {each['type']}" for each in found[:_SOME]]
    if len(found) > _SOME:
        told.append(f"{len(found) - _SOME} more")
    return "; ".join(told)


def _path(places: Sequence[int | str], names: frozenset[str]) -> str:
    """Keys of maps are content: only fields are named."""
    path = "$"
    for place in places:
        if isinstance(place, int):
            path += f"[{place}]"
        else:
            path += f".{place}" if place in names else "[...]"
    return path


def _field_names(annotation: object) -> frozenset[str]:
    """The names of all fields of a pydantic model, and of models in it."""
    schema = getattr(annotation, "__pydantic_core_schema__", None)
    names: set[str] = set()
    pending: list[object] = [schema]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            parts = cast("dict[str, object]", part)
            fields = parts.get("fields")
            if isinstance(fields, dict):
                names |= cast("dict[str, object]", fields).keys()
            names |= {alias for alias in (parts.get("validation_alias"),) if isinstance(alias, str)}
            pending += parts.values()
        elif isinstance(part, (list, tuple)):
            pending += cast("list[object]", part)
    return frozenset(names)


def _where(error: BaseException) -> str:
    """The line that has raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    return f" at {PurePath(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
