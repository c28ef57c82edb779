"""Describes a decoder's error by its kind, field and position, without the value's content.

Errors are logged, and messages of pydantic, of msgspec and of a user's code repeat parts of the
value. A description has only names of the type's fields, and numbers.
"""

from __future__ import annotations

import json
import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import msgspec

from asyncrevoke.client.errors import DecodeError
from asyncrevoke.client.printable import class_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncrevoke.client.model import Record

# A message of msgspec; the place of a value at its end has only field names and indexes.
_PLACE: Final = re.compile(r"^(?P<what>.*?)(?: - at `(?P<place>[^`]*)`)?$", re.DOTALL)
# Messages of msgspec without parts of the value.
_OF_THE_TYPE: Final = re.compile(
    r"Expected `[^`]+`(?: [<>=]+ -?[\d.e+]+)?(?:, got `\w+`)?$"
    r"|Expected `[^`]+` (?:of|with) (?:length|multiple) [^`']*$"
    r"|Object missing required field `\w+`$"
)
_UNKNOWN_FIELD: Final = "Object contains unknown field "
_MALFORMED: Final = re.compile(r"(?:JSON is malformed: [a-z ,]+|Input data was truncated)")
_MAX_ERRORS: Final = 3


class _PydanticError(Protocol):
    """pydantic's ValidationError."""

    def errors(
        self, *, include_url: bool, include_context: bool, include_input: bool
    ) -> Sequence[Mapping[str, Any]]: ...


def decode_error(
    record: Record,
    what: str,
    error: BaseException,
    annotation: object = None,
    *,
    temporary: bool = False,
) -> DecodeError:
    """A DecodeError with ``what``, and a description of ``error`` without the value's content.

    Raise it outside the ``except`` block, so that a traceback does not show ``error``.
    """
    return DecodeError(
        record.topic_partition,
        record.offset,
        f"{what}: {described(error, annotation)}",
        original=error,
        temporary=temporary,
    )


def described(error: BaseException, annotation: object = None) -> str:
    """The kind, field and position of a decoder's error."""
    try:
        return _described(error, annotation)
    except BaseException:  # noqa: BLE001 - a class of the user may raise when it is asked
        return class_name(error)


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
        return _of_pydantic(cast("_PydanticError", error), annotation)
    if isinstance(error, RecursionError):
        return f"nested too deeply{_where(error)}"
    return f"{kind.__name__}{_where(error)}"


def _of_msgspec(message: str) -> str:
    found = _PLACE.match(message)
    assert found is not None
    what = found["what"] if _OF_THE_TYPE.match(found["what"]) else "an invalid value"
    if found["what"].startswith(_UNKNOWN_FIELD):  # whose name is content
        what = "an unknown field"
    return f"{what} at {found['place']}" if found["place"] else what


def _of_pydantic(error: _PydanticError, annotation: object) -> str:
    names = _field_names(annotation)
    found = error.errors(include_url=False, include_context=False, include_input=False)
    described = [
        f"{_path(candidate['loc'], names)}: {candidate['type']}"
        for candidate in found[:_MAX_ERRORS]
    ]
    if len(found) > _MAX_ERRORS:
        described.append(f"{len(found) - _MAX_ERRORS} more")
    return "; ".join(described)


def _path(places: Sequence[int | str], names: frozenset[str]) -> str:
    """The path of a value. It has names of fields, and no keys of maps, which are content."""
    path = "$"
    for place in places:
        if isinstance(place, int):
            path += f"[{place}]"
        else:
            path += f".{place}" if place in names else "[...]"
    return path


def _field_names(annotation: object) -> frozenset[str]:
    """The names of all fields of a pydantic model or adapter, and of the models in it."""
    schema = getattr(annotation, "__pydantic_core_schema__", None)
    schema = schema or getattr(annotation, "core_schema", None)
    names: set[str] = set()
    pending: list[object] = [schema]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            parts = cast("dict[str, object]", part)
            fields = parts.get("fields")
            if isinstance(fields, dict):
                names |= cast("dict[str, object]", fields).keys()
            if parts.get("type") == "dataclass-field":
                names.add(cast("str", parts["name"]))
            names |= {alias for alias in (parts.get("validation_alias"),) if isinstance(alias, str)}
            pending += parts.values()
        elif isinstance(part, (list, tuple)):
            pending += cast("list[object]", part)
    return frozenset(names)


def _where(error: BaseException) -> str:
    """The line of code that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    return f" at {PurePath(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
