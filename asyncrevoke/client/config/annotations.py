"""Resolves the annotations that users write.

Everything that asks what an annotation stands for asks here, so that a name given to a type
(``NewType``, ``TypeAliasType``), ``Annotated`` and a bound ``TypeVar`` mean the same everywhere as
the type itself.
"""

from __future__ import annotations

import types
from typing import Annotated, Any, ForwardRef, NewType, TypeVar, Union, cast, get_args, get_origin


def expanded(annotation: object) -> object:
    """The annotation without names for types, outside and in a union; ``Annotated`` is kept.

    A ``TypeVar`` is what it is bound to, the union of its constraints, or ``Any``. Raises NameError
    for a ``type`` statement with a name that is unknown at run time, and TypeError for one that
    refers only to itself.
    """
    try:
        return _expanded(annotation)
    except RecursionError:
        raise TypeError(f"{annotation} refers only to itself") from None


def members(annotation: object) -> tuple[object, ...]:
    """The types of a union, or the one type, without names for types and ``Annotated``.

    ``Optional[T]`` has the members ``T`` and ``NoneType``. Raises as :func:`expanded` does.
    """
    found = expanded(annotation)
    if get_origin(found) is Annotated:
        return members(get_args(found)[0])
    if get_origin(found) in (Union, types.UnionType):
        of = [member for one in get_args(found) for member in members(one)]
        return tuple(member for at, member in enumerate(of) if member not in of[:at])
    return (types.NoneType if found is None else found,)


def the_type(annotation: object) -> object:
    """The one type of an annotation, be it optional or not; a union of several types as it is."""
    of = members(annotation)
    several = [member for member in of if member is not types.NoneType] or of
    return several[0] if len(several) == 1 else expanded(annotation)


def metadata(annotation: object) -> tuple[object, ...]:
    """What stands beside the type in ``Annotated``, also where ``Annotated`` has a name."""
    found = expanded(annotation)
    return get_args(found)[1:] if get_origin(found) is Annotated else ()


def _expanded(annotation: object) -> object:
    if isinstance(annotation, NewType):
        return _expanded(annotation.__supertype__)
    if isinstance(annotation, TypeVar):
        if annotation.__constraints__:
            return cast("Any", Union)[tuple(map(_expanded, annotation.__constraints__))]
        return Any if annotation.__bound__ is None else _expanded(annotation.__bound__)
    if _is_alias(annotation):
        return _expanded(_evaluated(cast("Any", annotation)))
    origin = get_origin(annotation)
    if _is_alias(origin):
        return _expanded(_with_arguments(cast("Any", origin), get_args(annotation)))
    if origin is Annotated:
        inside, *beside = get_args(annotation)
        return cast("Any", Annotated)[(_expanded(inside), *beside)]
    if origin in (Union, types.UnionType):
        written = get_args(annotation)
        of = tuple(map(_expanded, written))
        changed = any(new is not old for new, old in zip(of, written, strict=True))
        return cast("Any", Union)[of] if changed else annotation
    return annotation


def _is_alias(annotation: object) -> bool:
    # There are two: typing has it from Python 3.12 on, typing_extensions for all versions.
    return type(annotation).__name__ == "TypeAliasType"


def _evaluated(alias: Any) -> Any:  # noqa: ANN401 - of two modules
    value = alias.__value__
    if isinstance(value, (str, ForwardRef)):
        raise NameError(f"{value!r} is text")  # noqa: TRY004 - as for text in an annotation
    return value


def _with_arguments(alias: Any, arguments: tuple[object, ...]) -> object:  # noqa: ANN401 - of two modules
    """The type that a generic alias stands for with these arguments."""
    value = _evaluated(alias)
    if not all(isinstance(param, TypeVar) for param in alias.__type_params__):
        raise TypeError(f"{alias} has a TypeVarTuple or a ParamSpec")
    given = dict(zip(alias.__type_params__, arguments, strict=True))
    if isinstance(value, TypeVar):
        return given[value]
    names = getattr(value, "__parameters__", ())
    return value[tuple(given[name] for name in names)] if names else value
