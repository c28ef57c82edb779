"""Checks a handler's signature, and makes a function of it that takes a record."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

from asyncrevoke.client.config.annotations import members, the_type
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.model import Record
from asyncrevoke.client.printable import shown_option
from asyncrevoke.client.record_parts import SizedRecords
from asyncrevoke.client.runtime.arrow.arrow_options import check_packages
from asyncrevoke.handlers.decoding.arrow_values import HandlerColumns, columns_kind
from asyncrevoke.handlers.decoding.column_decoder import ColumnDecoder
from asyncrevoke.handlers.decoding.decoders import (
    AsyncDecoder,
    BytesDecoder,
    Decoder,
    HandlerDecoder,
    annotation_name,
    custom_decoder,
    decoder_for,
    whole_record,
)
from asyncrevoke.handlers.policy.context import HandlerContext
from asyncrevoke.handlers.policy.dependencies import HandlerWithDependencies, is_dependency
from asyncrevoke.handlers.policy.handler_function import (
    UNRESOLVED,
    innermost,
    is_async,
    resolved_annotation,
    yields,
)

if typing.TYPE_CHECKING:
    from asyncrevoke.handlers.policy.handler_function import HandlerFunction

ParameterSource: TypeAlias = Literal["record", "records", "context"]


def handler_name(function: object) -> str:
    """The name of a handler in logs and errors: its module and qualified name."""
    inner = innermost(function)
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    return f"{getattr(inner, '__module__', '?')}.{name}".replace(".<locals>", "")


def yields_without_topic(name: str) -> ConfigError:
    """The error of a handler that yields without ``publish_to``."""
    return ConfigError(
        f"{name} yields: give the handler publish_to=... for what it yields, or leave out yield"
    )


def _check_is_async(function: object, name: str) -> None:
    if not callable(function):
        raise ConfigError(f"a handler is an async function, not {shown_option(function)}")
    if is_async(function):
        return
    if yields(function):
        raise yields_without_topic(name)
    if isinstance(innermost(function), type):
        raise ConfigError(f"{name} is a class: register an async function, or an instance of it")
    raise ConfigError(
        f"{name} is a sync function and would block every other handler: write `async def`, or say "
        'where it runs: run_in="thread" if it waits, run_in="process" (or "interpreter", on Python '
        "3.14) if it uses the CPU"
    )


class HandlerCall(Protocol):
    """Decodes a record's value and calls the handler with it.

    ``context`` is required if the handler has a parameter for it, and ignored otherwise.
    Implemented by the functions that :func:`compile_call` returns.
    """

    def __call__(
        self, record: Record, context: HandlerContext | None = None, /
    ) -> Awaitable[object]:
        """This or the awaitable raises the error of the call."""
        ...


# Calls a batch handler with values and their records, in offset order. The call or the awaitable
# raises the error. compile_batch_call() returns one.
BatchHandlerCall: TypeAlias = Callable[
    [object, Sequence[Record], HandlerContext], Awaitable[object]
]


class ExtraParameters(NamedTuple):
    """The arguments for a handler's parameters after the first, by position and by name."""

    positional: tuple[ParameterSource, ...]
    named: tuple[tuple[str, ParameterSource], ...]

    @property
    def context(self) -> bool:
        """Whether one of them is the context."""
        return "context" in self.positional or any(source == "context" for _, source in self.named)


def compile_call(
    function: HandlerFunction, name: str, decoder: HandlerDecoder | None = None
) -> tuple[HandlerCall, bool]:
    """Check a function, and return its call and whether that needs a context.

    With a ``decoder``, the first parameter may have any annotation, or none; ``Record`` always
    receives the record.

    Raises ConfigError, with ``name`` and the fix, for a function that cannot be a handler.
    """
    plain = None if isinstance(decoder, ColumnDecoder) else decoder
    first, annotation, others = _checked_parameters(function, name, plain)
    if columns_kind(the_type(annotation)) is not None:
        raise ConfigError(
            f"{name} has a parameter annotated {annotation_name(annotation)}, which has many "
            "records: give the handler batch=True"
        )
    decoder = _of_values(decoder, name)
    if decoder is None or the_type(annotation) is Record:
        decode = decoder_for(annotation, f"parameter {first.name} of {name}")
    else:
        decode = custom_decoder(decoder)
    function, extra = _with_extra_parameters(function, first, others, name, batch=False)
    return _bind(function, decode, extra), extra.context


def value_type(function: HandlerFunction, name: str, *, batch: bool) -> object:
    """The annotation of the value that a checked handler receives, or of one value of a batch.

    None if it is missing, or unknown at run time.
    """
    _, annotation, _ = _checked_parameters(function, name, whole_record)
    inside = typing.get_args(the_type(annotation))
    return (inside[0] if len(inside) == 1 else None) if batch else annotation


def compile_batch_call(
    function: HandlerFunction, name: str, decoder: HandlerDecoder | None = None
) -> tuple[Decoder | AsyncDecoder, BatchHandlerCall, HandlerColumns | None]:
    """Check a batch handler, and return the decoder of one value, the call, and the columns that
    the function receives, if it does.

    ``decoder`` and ConfigError as for :func:`compile_call`.
    """
    of_columns = decoder if isinstance(decoder, ColumnDecoder) else None
    plain = None if isinstance(decoder, ColumnDecoder) else decoder
    first, annotation, others = _checked_parameters(function, name, plain)
    several = the_type(annotation)
    kind = columns_kind(several)
    if kind is not None:
        check_packages(f"the batches of {name}")
        function, extra = _with_extra_parameters(function, first, others, name, batch=True)
        columns = HandlerColumns(kind, of_columns)
        return whole_record, _call_with_values(function, extra), columns
    decoder = _of_values(decoder, name)
    inside = typing.get_args(several)
    is_list = several is list or typing.get_origin(several) in (list, Sequence)
    unknown = decoder is not None and annotation in (None, typing.Any)
    if not unknown and (not is_list or (len(inside) != 1 and decoder is None)):
        raise ConfigError(
            f"{name} handles batches, and its first parameter is annotated "
            f"{annotation_name(annotation)}: it receives a list, so annotate it "
            f"`{first.name}: list[bytes]`, list[Order], ..., or pyarrow.RecordBatch"
        )
    if decoder is None or _parameter_source(several) == "records":
        decode = decoder_for(inside[0], f"parameter {first.name} of {name}")
    else:
        decode = custom_decoder(decoder)
    function, extra = _with_extra_parameters(function, first, others, name, batch=True)

    return decode, _call_with_values(function, extra), None


def _of_values(decoder: HandlerDecoder | None, name: str) -> Decoder | None:
    """Raise ConfigError for a decoder of columns, whose values the handler does not receive."""
    if isinstance(decoder, ColumnDecoder):
        raise ConfigError(
            f"decoder={type(decoder).__name__} makes columns of many values, and {name} does not "
            "receive columns: annotate its first parameter pyarrow.RecordBatch or "
            "polars.DataFrame, and give it batch=True"
        )
    return decoder


def _call_with_values(function: HandlerFunction, extra: ExtraParameters) -> BatchHandlerCall:
    def call(
        values: object, records: Sequence[Record], context: HandlerContext, /
    ) -> Awaitable[object]:
        if takes_objects and isinstance(records, SizedRecords):
            records = list(records)
        what = {"records": records, "context": context}
        more = [what[source] for source in extra.positional]
        return function(values, *more, **{by: what[source] for by, source in extra.named})

    takes_objects = "records" in (*extra.positional, *(source for _, source in extra.named))
    return call


def takes_records(function: HandlerFunction) -> bool:
    """Whether a handler's first parameter receives the record, a list of records, or columns."""
    first = next(iter(inspect.signature(function).parameters.values()))
    try:
        annotation = _annotation(function, first, "")
        if columns_kind(the_type(annotation)) is not None:
            return True
        return _parameter_source(annotation) in ("record", "records")
    except ConfigError:
        return False


def takes_context(function: HandlerFunction) -> bool:
    """Whether one of a checked handler's parameters receives the context."""
    return any(
        parameter.annotation is not parameter.empty
        and _parameter_source(_annotation(function, parameter, "")) == "context"
        for parameter in inspect.signature(function).parameters.values()
    )


def _checked_parameters(
    function: HandlerFunction, name: str, decoder: Decoder | None
) -> tuple[inspect.Parameter, object, list[inspect.Parameter]]:
    """The first parameter, its annotation, and the other parameters.

    With a decoder, an annotation that is missing or unknown at run time is None.
    """
    _check_is_async(function, name)
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        raise ConfigError(f"{name} takes no parameter: the first one receives the value")
    first, *others = parameters
    if first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        raise ConfigError(
            f"the first parameter of {name} receives the value: make it a plain parameter, "
            f"not *{first.name}"
        )
    try:
        annotation = _annotation(function, first, name)
    except ConfigError:
        if decoder is None:
            raise
        annotation = None
    if _parameter_source(annotation) == "context":
        raise ConfigError(
            f"the first parameter of {name} receives the value, and {first.name} is annotated "
            "HandlerContext: put one before it, for example `record: Record`"
        )
    return first, annotation, others


def _with_extra_parameters(
    function: HandlerFunction,
    first: inspect.Parameter,
    parameters: list[inspect.Parameter],
    name: str,
    *,
    batch: bool,
) -> tuple[HandlerFunction, ExtraParameters]:
    """The function to call, and the arguments for its parameters after the first."""
    positional: list[ParameterSource] = []
    named: list[tuple[str, ParameterSource]] = []
    has_dependencies = any(_is_dependency(function, parameter, name) for parameter in parameters)
    by_name = has_dependencies  # parameters after one that keeps its default are passed by name
    for parameter in parameters:
        source = _receives(function, parameter, name, batch=batch)
        if source is None:
            by_name = True
        elif parameter.kind is parameter.KEYWORD_ONLY or by_name:
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise ConfigError(f"parameter {parameter.name} of {name} cannot be given by name")
            named.append((parameter.name, source))
        else:
            positional.append(source)
    if has_dependencies:
        function = injected = HandlerWithDependencies(function, first.name, name)
        named += _for_dependencies(injected, name, batch=batch)
    return function, ExtraParameters(tuple(positional), tuple(named))


def _is_dependency(function: HandlerFunction, parameter: inspect.Parameter, name: str) -> bool:
    annotated = parameter.annotation is not parameter.empty
    annotation = _annotation(function, parameter, name) if annotated else None
    return is_dependency(parameter, annotation, name)


def _for_dependencies(
    injected: HandlerWithDependencies, name: str, *, batch: bool
) -> list[tuple[str, ParameterSource]]:
    named: list[tuple[str, ParameterSource]] = []
    for parameter, dependency in injected.dependency_parameters.items():
        source = _parameter_source(dependency.annotation)
        if source is not None and source != ("record" if batch else "records"):
            named.append((parameter, source))
        elif not dependency.optional:
            record = "list[Record]" if batch else "Record"
            raise ConfigError(
                f"a dependency of {name} has the parameter {parameter}: it may have a name that "
                f"{name} has too (then both receive the same), the annotation {record} or "
                "HandlerContext, Depends or a default"
            )
    return named


def _bind(
    function: HandlerFunction, decode: Decoder | AsyncDecoder, extra: ExtraParameters
) -> HandlerCall:
    if isinstance(decode, AsyncDecoder):
        return _call_with_awaited(function, decode, extra)
    if not extra.named and not extra.context:
        if not extra.positional:
            if decode is whole_record:
                return lambda record, _=None: function(record)
            if isinstance(decode, BytesDecoder):
                return _call_with_bytes(function, decode)
            return lambda record, _=None: function(decode(record))
        if len(extra.positional) == 1:
            return lambda record, _=None: function(decode(record), record)

    def call(record: Record, context: HandlerContext | None = None, /) -> Awaitable[object]:
        what = {"record": record, "context": context}
        more = [what[source] for source in extra.positional]
        return function(decode(record), *more, **{by: what[source] for by, source in extra.named})

    return call


def _call_with_awaited(
    function: HandlerFunction, decode: AsyncDecoder, extra: ExtraParameters
) -> HandlerCall:
    """A call that first awaits the value."""

    async def call(record: Record, context: HandlerContext | None = None, /) -> object:
        value = await decode(record)
        what = {"record": record, "context": context}
        more = [what[source] for source in extra.positional]
        return await function(value, *more, **{by: what[source] for by, source in extra.named})

    return call


def _receives(
    function: HandlerFunction, parameter: inspect.Parameter, name: str, *, batch: bool
) -> ParameterSource | None:
    """The source of a parameter after the first; None if it keeps its default."""
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return None
    has_default = parameter.default is not parameter.empty
    if parameter.annotation is parameter.empty and has_default:
        return None
    annotation = _annotation(function, parameter, name)
    if is_dependency(parameter, annotation, name):
        return None
    source = _parameter_source(annotation)
    if source == ("record" if batch else "records"):
        right = "list[Record], as it handles batches" if batch else "Record, or use batch=True"
        raise ConfigError(f"parameter {parameter.name} of {name}: annotate it {right}")
    if source is None and not has_default:
        record = "records (annotate it list[Record])" if batch else "record (annotate it Record)"
        raise ConfigError(
            f"parameter {parameter.name} of {name} is annotated {annotation_name(annotation)}: "
            f"beside the value, a handler receives the {record}, the context (annotate it "
            "HandlerContext) and what a function returns (annotate it Annotated[..., "
            "Depends(function)]); any other parameter needs a default"
        )
    return source


def _parameter_source(annotation: object) -> ParameterSource | None:
    plain = the_type(annotation)
    if plain is Record:
        return "record"
    if plain is HandlerContext or typing.get_origin(plain) is HandlerContext:
        return "context"
    if typing.get_origin(plain) in (list, Sequence):
        inside = typing.get_args(plain)
        return "records" if len(inside) == 1 and the_type(inside[0]) is Record else None
    return None


def _annotation(function: object, parameter: inspect.Parameter, name: str) -> object:
    written: object = parameter.annotation
    if written is parameter.empty:
        raise ConfigError(
            f"parameter {parameter.name} of {name} has no annotation, which says what it receives: "
            f"write `{parameter.name}: bytes`, a dataclass, ..., or `{parameter.name}: Record`"
        )
    try:
        annotation = resolved_annotation(function, written)
        members(annotation)  # evaluates what has a name
    except UNRESOLVED as error:
        raise ConfigError(
            f"parameter {parameter.name} of {name} is annotated {shown_option(written)}, which "
            f"cannot be resolved at run time ({error}): import the name outside "
            "`if TYPE_CHECKING:`, and define the class at module level"
        ) from error
    return annotation


def _call_with_bytes(function: HandlerFunction, decode: BytesDecoder) -> HandlerCall:
    """A call that avoids the call of the decoder, which would cost time for each record."""

    def call(record: Record, _: HandlerContext | None = None, /) -> Awaitable[object]:
        value = record.value
        return function(value if value.__class__ is bytes else decode(record))

    return call
