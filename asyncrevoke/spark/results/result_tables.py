"""Reads the rows of a replay as two tables: typed results, and all other rows."""

from __future__ import annotations

import typing
from types import GenericAlias
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from msgspec import inspect

from asyncrevoke.client.config.annotations import expanded
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.replays.errors import ReplayError
from asyncrevoke.spark.reading.offsets import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    # Only the tables need pyspark, not what says which types of Spark they have.
    from pyspark.sql import Column, DataFrame, SparkSession  # noqa: TC004

    from asyncrevoke.spark.replays.report import ReplayReport


_SCALARS: Final[dict[type[inspect.Type], str]] = {
    inspect.BoolType: "boolean",
    inspect.IntType: "bigint",
    inspect.FloatType: "double",
    inspect.StrType: "string",
    inspect.DateType: "date",
    inspect.DateTimeType: "timestamp",
    # JSON has these as text.
    inspect.BytesType: "string",
    inspect.ByteArrayType: "string",
    inspect.DecimalType: "string",
    inspect.TimeType: "string",
    inspect.UUIDType: "string",
}
_LISTS: Final = (
    inspect.ListType,
    inspect.SetType,
    inspect.FrozenSetType,
    inspect.VarTupleType,
    inspect.CollectionType,
)
_FALLBACK: Final = 'give the schema as Spark writes types, for example "struct<order:bigint>"'


def spark_type(returned: object) -> str:
    """The type of a handler's results in Spark's notation.

    Bytes are ``binary`` and text is ``string``; any other value has the type of its JSON.
    ``returned`` is the class of the results, or a function with a return annotation. For a
    generator the type is a list. Raises ConfigError for an annotation that determines no type; the
    message says what to pass instead.
    """
    annotation = _returned_by(returned)
    found = _type_of(annotation)
    kinds = [
        alternative
        for alternative in _alternatives(found)
        if not isinstance(alternative, inspect.NoneType)
    ]
    if kinds and all(isinstance(kind, inspect.BytesType) for kind in kinds):
        return "binary"
    return _written(found, (), annotation)


def _returned_by(given: object) -> object:
    if isinstance(given, type) or not hasattr(given, "__code__"):
        return given
    try:
        hints = typing.get_type_hints(cast("Callable[..., object]", given))
    except NameError as error:
        raise ConfigError(
            f"the return annotation cannot be resolved ({error}): {_FALLBACK}"
        ) from error
    if "return" not in hints:
        raise ConfigError(f"{shown_option(given)} has no return annotation: {_FALLBACK}")
    annotation: object = hints["return"]
    origin = typing.get_origin(annotation)
    if isinstance(origin, type) and hasattr(origin, "__anext__"):
        return GenericAlias(list, typing.get_args(annotation)[:1])
    return annotation


def _type_of(annotation: object) -> inspect.Type:
    try:
        return inspect.type_info(expanded(annotation))
    except (TypeError, NameError) as error:
        raise ConfigError(
            f"{shown_option(str(annotation))} has no type in Spark ({error}): {_FALLBACK}"
        ) from error


def _alternatives(kind: inspect.Type) -> Iterable[inspect.Type]:
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def _written(kind: inspect.Type, inside: tuple[object, ...], annotation: object) -> str:
    """The type in Spark's notation. ``inside`` are the classes that contain it: none of them may
    occur in it again."""
    kinds = [
        alternative
        for alternative in _alternatives(kind)
        if not isinstance(alternative, inspect.NoneType)
    ]
    if len(kinds) == 1:
        (kind,) = kinds
        if type(kind) in _SCALARS:
            return _SCALARS[type(kind)]
        if isinstance(kind, (inspect.LiteralType, inspect.EnumType)):
            values: Iterable[object] = (
                kind.values
                if isinstance(kind, inspect.LiteralType)
                else [cl.value for cl in kind.cls]
            )
            if all(isinstance(value, str) for value in values):
                return "string"
            if all(type(value) is int for value in values):
                return "bigint"
        if isinstance(kind, _LISTS):
            return f"array<{_written(kind.item_type, inside, annotation)}>"
        if isinstance(kind, inspect.DictType):
            return f"map<string,{_written(kind.value_type, inside, annotation)}>"
        fields = _fields(kind)
        if fields is not None and getattr(kind, "cls", None) not in inside:
            around = (*inside, getattr(kind, "cls", None))
            return f"struct<{','.join(_field(*field, around, annotation) for field in fields)}>"
    raise ConfigError(
        f"{shown_option(str(annotation))} has no single type in Spark (because of "
        f"{shown_option(str(kind))}): {_FALLBACK}"
    )


def _field(name: str, kind: inspect.Type, inside: tuple[object, ...], annotation: object) -> str:
    return f"`{name.replace('`', '``')}`:{_written(kind, inside, annotation)}"


def _fields(kind: inspect.Type) -> list[tuple[str, inspect.Type]] | None:
    """The fields of a JSON object; None for a type that is not an object."""
    if isinstance(kind, inspect.StructType) and not kind.array_like:
        tag = (
            [] if kind.tag_field is None else [(kind.tag_field, inspect.type_info(type(kind.tag)))]
        )
        return [*tag, *((field.encode_name, field.type) for field in kind.fields)]
    if isinstance(kind, (inspect.DataclassType, inspect.TypedDictType)):
        return [(field.encode_name, field.type) for field in kind.fields]
    return None


_MOST = 10_000


def failed_ranges(
    spark: SparkSession, report: ReplayReport, *, most: int = _MOST
) -> list[OffsetRange]:
    """The offsets of the rows whose outcome is ``"error"``, to pass to ``replay`` with another run
    id.

    The ranges have no other records. If the topic was deleted and created again, that replay raises
    an error. Raises ReplayError if there are more than ``most`` ranges.
    """
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.window import Window

    failed = spark.read.parquet(report.results).where("outcome = 'error'")
    places = failed.select("topic", "partition", "offset").distinct()
    # Consecutive offsets have the same difference to their row number.
    ranks = F.row_number().over(Window.partitionBy("topic", "partition").orderBy("offset"))
    islands = places.withColumn("island", F.col("offset") - ranks)
    found = (
        islands.groupBy("topic", "partition", "island")
        .agg(F.min("offset").alias("lo"), (F.max("offset") + 1).alias("hi"))
        .select("topic", "partition", "lo", "hi")
        .orderBy("topic", "partition", "lo")
        .limit(most + 1)
    )
    rows = cast("list[tuple[str, int, int, int]]", found.collect())
    if len(rows) > most:
        raise ReplayError(
            f"the failed records of run {report.run_id} are in more than {most:,} ranges: replay "
            "all of its ranges again, or raise most="
        )
    topic_ids = {offset_range.topic: offset_range.topic_id for offset_range in report.ranges}
    return [
        OffsetRange(topic, partition, lo, hi, topic_id=topic_ids.get(topic))
        for topic, partition, lo, hi in rows
    ]


_PLACE: Final = ("run_id", "topic", "partition", "offset")
_MISFIT: Final = "ResultSchemaError"


class ResultTables(NamedTuple):
    """``results`` has ``run_id``, ``topic``, ``partition``, ``offset``, ``finished`` (a timestamp)
    and ``result``, which has the given type and is null if the handler returned None.
    ``quarantine`` has all other rows, with ``outcome``, ``error_type``, ``error`` and the undecoded
    ``result``."""

    results: DataFrame
    quarantine: DataFrame


def result_tables(spark: SparkSession, report: ReplayReport, schema: object) -> ResultTables:
    """Read what the handlers of a replay have returned, typed by ``schema``. Lazy.

    ``schema`` is a type in Spark's notation (``"struct<order:bigint,total:double>"``), a handler
    with a return annotation, or the class that it returns. Each row is in one of the two tables. A
    result that is not JSON of this type is in ``quarantine``, with the error type
    ``ResultSchemaError``. Raises ConfigError.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F  # noqa: N812

    kind = schema if isinstance(schema, str) else spark_type(schema)
    rows = spark.read.parquet(report.results).withColumn("run_id", F.lit(report.run_id))
    try:
        read = rows.withColumn("read", _decoded(kind))
        fits = "outcome = 'ok' AND (result IS NULL OR read IS NOT NULL AND read.invalid IS NULL)"
        results = read.where(fits).selectExpr(
            *_PLACE, "timestamp_micros(finished_us) AS finished", "read.result AS result"
        )
    except AnalysisException as error:
        raise ConfigError(
            f"schema={shown_option(kind)} is not a type of Spark: {error.getCondition()}"
        ) from error
    misfit = "outcome = 'ok'"
    quarantine = read.where(f"NOT ({fits})").selectExpr(
        *_PLACE,
        f"if({misfit}, 'error', outcome) AS outcome",
        f"if({misfit}, '{_MISFIT}', error_type) AS error_type",
        f"if({misfit}, 'the result does not fit the schema', error) AS error",
        "result",
    )
    return ResultTables(results, quarantine)


def _decoded(kind: str) -> Column:
    """A struct of the typed ``result`` and of ``invalid``, which is null for a valid result."""
    from pyspark.sql import functions as F  # noqa: N812

    if kind in ("binary", "string"):
        value = F.expr("result" if kind == "binary" else "CAST(result AS string)")
        return F.struct(value.alias("result"), F.expr("CAST(NULL AS string)").alias("invalid"))
    # from_json accepts objects only, and marks only the whole text as corrupt.
    text = F.expr("concat('{\"result\":', CAST(result AS string), '}')")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "invalid"}
    return F.from_json(text, f"result {kind}, invalid string", options)
