"""Handlers: registered, checked, and called with the decoded value."""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import TYPE_CHECKING, Any, TypedDict, cast

import msgspec
import pydantic
import pytest
from unit.handlers.scripted_source import record

from asyncrevoke.client.errors import ConfigError, DecodeError
from asyncrevoke.client.model import Record
from asyncrevoke.handlers.registry import Router

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from decimal import Decimal

    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.handlers.policy.handler_function import HandlerFunction


@dataclasses.dataclass
class Order:
    id: int
    note: str = ""


class OrderStruct(msgspec.Struct):
    id: int


class OrderModel(pydantic.BaseModel):
    id: int


class OrderDict(TypedDict):
    id: int


class Foreign:
    pass


@dataclasses.dataclass
class Holder:
    inner: list[Foreign]


@dataclasses.dataclass
class Tree:
    children: list[Tree]


async def received(annotation: object, value: bytes | None) -> object:
    """What a handler whose first parameter has this annotation receives."""
    got: list[object] = []

    async def handle(value: object) -> None:
        got.append(value)

    handle.__annotations__["value"] = annotation
    router = Router()
    router.handler("orders")(handle)
    await call(router, record(3, value=value))
    (only,) = got
    return only


def call(router: Router, of: Record) -> Awaitable[object]:
    call = router.find("orders").call
    assert call is not None
    return call(of)


def rejection(function: object, *topics: str, **options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        Router().handler(*(topics or ("orders",)), **options)(cast("HandlerFunction", function))
    return str(caught.value)


async def takes_bytes(value: bytes) -> None: ...


# -- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (bytes, b"\x00raw", b"\x00raw"),
        (bytes | None, None, None),
        (bytes | None, b"x", b"x"),
        (str, "ä".encode(), "ä"),
        (str | None, None, None),
        (dict[str, int], b'{"id": 7}', {"id": 7}),
        (dict, b'{"id": 7}', {"id": 7}),
        (list[int], b"[1, 2]", [1, 2]),
        (Order, b'{"id": 7}', Order(7)),
        (Order | None, b'{"id": 7, "note": "n"}', Order(7, "n")),
        (Order | None, None, None),
        (OrderStruct, b'{"id": 7}', OrderStruct(7)),
        (OrderModel, b'{"id": 7}', OrderModel(id=7)),
        (OrderModel | None, None, None),
        (OrderDict, b'{"id": 7}', {"id": 7}),
        (Order | int, b"7", 7),
        (Tree, b'{"children": [{"children": []}]}', Tree([Tree([])])),
    ],
    ids=str,
)
async def test_the_first_parameter_receives_what_its_annotation_says(
    annotation: object, value: bytes | None, expected: object
) -> None:
    assert await received(annotation, value) == expected


async def test_a_first_parameter_annotated_record_receives_the_record() -> None:
    assert isinstance(await received(Record, b"v"), Record)


@pytest.mark.parametrize("annotation", [bytes, str, Order, OrderModel, dict])
async def test_a_tombstone_does_not_decode_unless_none_is_expected(annotation: object) -> None:
    with pytest.raises(DecodeError, match=r"orders-0 at offset 3: .*tombstone.*\| None"):
        await received(annotation, None)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str, b"\xff"),
        (Order, b'{"id": "seven"}'),
        (Order, b""),
        (Order | None, b"not json"),
        (OrderModel, b'{"id": "seven"}'),
        (dict, b"[1]"),
        (int, b"\xff\xfe"),
    ],
)
async def test_a_value_that_does_not_decode_names_its_record(
    annotation: object, value: bytes
) -> None:
    with pytest.raises(DecodeError, match=r"orders-0 at offset 3: the value does not decode") as it:
        await received(annotation, value)
    assert it.value.offset == 3


# -- further parameters ---------------------------------------------------------------------------


async def test_a_parameter_annotated_record_receives_the_record() -> None:
    got: list[object] = []

    async def second(value: bytes, where: Record) -> None:
        got.append((value, where.offset))

    async def by_name(value: bytes, limit: int = 3, *, where: Record) -> None:
        got.append((value, limit, where.offset))

    async def after_default(value: bytes, limit: int = 3, where: Record | None = None) -> None:
        assert where is not None
        got.append((value, limit, where.offset))

    async def twice(value: Record, one: Record, two: Record) -> None:
        got.append((value.offset, one.offset, two.offset))

    for function in (second, by_name, after_default, twice):
        router = Router()
        router.handler("orders")(function)
        await call(router, record(3))
    assert got == [(b"v", 3), (b"v", 3, 3), (b"v", 3, 3), (3, 3, 3)]


async def test_partials_methods_and_callable_objects_are_handlers() -> None:
    got: list[object] = []

    class Service:
        async def handle(self, value: bytes, record: Record) -> None:
            got.append(value)

        async def __call__(self, value: bytes) -> None:
            got.append(value)

    async def with_more(prefix: str, value: bytes) -> None:
        got.append((prefix, value))

    for function in (Service().handle, Service(), functools.partial(with_more, "p")):
        router = Router()
        router.handler("orders")(function)
        await call(router, record(3))
    assert got == [b"v", b"v", ("p", b"v")]


def test_the_decorator_returns_the_function_itself() -> None:
    assert Router().handler("orders")(takes_bytes) is takes_bytes


# -- what is rejected ------------------------------------------------------------------------------


def test_a_sync_function_is_rejected_with_the_fix() -> None:
    def handle(value: bytes) -> None: ...

    assert "handle is a sync function" in rejection(handle)
    for function in (handle, functools.partial(handle)):
        for choice in ("thread", "process", "interpreter"):
            assert choice in rejection(function)


def test_a_value_that_is_no_async_function_is_a_config_error() -> None:
    async def yields(value: bytes) -> Any:
        yield value

    assert "yields" in rejection(yields)
    assert "is a class" in rejection(Order)
    assert "not 7" in rejection(7)


def test_a_parameter_without_annotation_is_rejected() -> None:
    async def handle(value: bytes) -> None: ...

    del handle.__annotations__["value"]
    message = rejection(handle)
    assert message.startswith("parameter value of ")
    assert "has no annotation" in message


def test_an_annotation_only_known_to_type_checkers_is_rejected() -> None:
    async def handle(value: Decimal) -> None: ...

    async def second(value: bytes, where: TopicPartition) -> None: ...

    assert "TYPE_CHECKING" in rejection(handle)
    assert "'Decimal'" in rejection(handle)
    assert "TYPE_CHECKING" in rejection(second)


def test_an_unresolvable_return_annotation_is_ignored() -> None:
    async def handle(value: bytes) -> Decimal:
        raise NotImplementedError

    Router().handler("orders")(handle)


@pytest.mark.parametrize(
    "annotation", [Foreign, list[Foreign], Holder, Foreign | None, int | bytes | str]
)
def test_an_annotation_that_cannot_be_decoded_is_rejected(annotation: object) -> None:
    async def handle(value: object) -> None: ...

    handle.__annotations__["value"] = annotation
    message = rejection(handle)
    assert message.startswith("parameter value of ")
    assert "cannot be decoded" in message


def test_parameters_that_receive_nothing_are_a_config_error() -> None:
    async def none() -> None: ...

    async def star(*values: bytes) -> None: ...

    async def named(*, value: bytes) -> None: ...

    async def more(value: bytes, database: int) -> None: ...

    assert "takes no parameter" in rejection(none)
    assert "plain parameter" in rejection(star)
    assert "plain parameter" in rejection(named)
    assert "parameter database" in rejection(more)


def test_a_topic_is_handled_once() -> None:
    async def other(value: bytes) -> None: ...

    router = Router()
    router.handler("orders", "clicks")(takes_bytes)
    with pytest.raises(ConfigError, match=r'topic "clicks" is handled by .*takes_bytes already'):
        router.handler("payments", "clicks")(other)
    assert router.topics == {"orders", "clicks"}


def test_a_limit_of_time_is_in_seconds_and_more_than_0() -> None:
    assert "more than 0" in rejection(takes_bytes, max_handler_time=0)
    assert "in seconds" in rejection(takes_bytes, max_handler_time="1")


def test_the_error_of_a_wrong_option_names_the_right_one() -> None:
    assert "did you mean on_error" in rejection(takes_bytes, on_eror="skip")
    assert 'use "stop", "skip" or "pause"' in rejection(takes_bytes, on_error="retry")
    assert "retry=Retry(attempts=3)" in rejection(takes_bytes, retry=3)


def test_the_error_of_an_option_of_the_consumer_or_another_framework_names_its_place() -> None:
    assert "Consumer(group_id=...)" in rejection(takes_bytes, group_id="billing")
    assert "use concurrency=" in rejection(takes_bytes, max_workers=4)
    for name in ("topic", "topics"):
        assert 'without a name: handler("orders")' in rejection(takes_bytes, **{name: "orders"})
    for name in ("dlq", "dead_letter_topic"):
        assert 'use dead_letter="orders.dlq"' in rejection(takes_bytes, **{name: "orders.dlq"})
    for name in ("retries", "max_retries"):
        assert "use retry=Retry(attempts=3)" in rejection(takes_bytes, **{name: 3})
    assert "leave it out" in rejection(takes_bytes, acks="all")
    several = rejection(takes_bytes, publish_to=["a", "b"])
    assert "publish_to takes the name of one topic, not ['a', 'b']" in several
    assert "return or yield Message(value, topic=...)" in several
    assert 'dead_letter="orders.dlq"' in rejection(takes_bytes, dead_letter=["orders.dlq"])
    assert "at most 249" in rejection(takes_bytes, publish_to="a.*")
    assert "use where=" in rejection(takes_bytes, filter=len)
    assert "leave it out" in rejection(takes_bytes, ack_policy=None)


def test_the_error_of_a_parameter_that_nothing_provides_names_what_there_is() -> None:
    async def handle(value: bytes, rate: float) -> None: ...

    message = rejection(handle)
    for receives in "annotate it Record", "HandlerContext", "Depends(function)", "needs a default":
        assert receives in message


def test_a_dead_letter_topic_that_cannot_work_is_rejected() -> None:
    both = rejection(takes_bytes, dead_letter="orders.dlq", on_error="stop")
    assert "leave out one of them" in both
    assert "read again for ever" in rejection(takes_bytes, "a", "b", dead_letter="b")
    assert "not a valid topic name" in rejection(takes_bytes, dead_letter="orders dlq")
    assert "the name of one topic" in rejection(takes_bytes, dead_letter=True)
    with pytest.raises(ConfigError, match="read again for ever"):
        Router().handler(pattern="orders.*", dead_letter="orders.dlq")


def test_options_of_batches_are_rejected_without_them() -> None:
    assert "use batch=True" in rejection(takes_bytes, max_records=3)
    assert "use batch=True" in rejection(takes_bytes, max_wait=3)
    assert "True or False" in rejection(takes_bytes, batch=1)


def test_a_batch_handler_takes_a_list() -> None:
    async def with_record(values: list[bytes], where: Record) -> None: ...

    async def with_more(values: list[bytes], database: int) -> None: ...

    async def single_with_list(value: bytes, where: list[Record]) -> None: ...

    async def takes_list(values: list[bytes]) -> None: ...

    assert "annotate it `value: list[bytes]`" in rejection(takes_bytes, batch=True)
    assert "list[Record]" in rejection(with_record, batch=True)
    assert "list[Record]" in rejection(with_more, batch=True)
    assert "batch=True" in rejection(single_with_list)
    assert "max_records=0" in rejection(takes_list, batch=True, max_records=0)
    assert "max_wait=-1" in rejection(takes_list, batch=True, max_wait=-1)


def test_topics_or_a_pattern_are_needed_and_not_both() -> None:
    router = Router()
    with pytest.raises(ConfigError, match="needs topics or a pattern"):
        router.handler()
    with pytest.raises(ConfigError, match="not both"):
        router.handler("orders", pattern="orders-.*")
    with pytest.raises(ConfigError, match="not a regular expression"):
        router.handler(pattern="(")
    with pytest.raises(ConfigError, match="inline"):
        router.handler(pattern=re.compile("orders", re.IGNORECASE))
    with pytest.raises(ConfigError, match="inline"):
        router.handler(pattern="(?i)orders")
    with pytest.raises(ConfigError, match="backreferences"):
        router.handler(pattern=r"(a|b)-\1")
    with pytest.raises(ConfigError, match="named groups"):
        router.handler(pattern="(?P<region>eu|us)-orders")
    with pytest.raises(ConfigError, match="not bytes"):
        router.handler(pattern=cast("str", re.compile(b"orders")))
    with pytest.raises(ConfigError, match="separate arguments"):
        router.handler(cast("str", ["orders"]))
    with pytest.raises(ConfigError, match=r'write @handler\("orders"\) above .*takes_bytes'):
        router.handler(cast("str", takes_bytes))
    with pytest.raises(ConfigError, match="named twice"):
        router.handler("orders", "orders")
    with pytest.raises(ConfigError, match="a topic is a name"):
        router.handler("")


# -- finding --------------------------------------------------------------------------------------


def test_a_topic_goes_to_its_handler_by_name_before_pattern() -> None:
    async def named(value: bytes) -> None: ...

    async def first(value: bytes) -> None: ...

    async def second(value: bytes) -> None: ...

    router = Router()
    router.handler(pattern="orders.*")(first)
    router.handler(pattern=re.compile("orders-eu"))(second)
    router.handler("orders-us", "clicks")(named)
    assert router.find("orders-us").function is named
    assert router.find("clicks").function is named
    assert router.find("orders-eu").function is first
    with pytest.raises(ConfigError, match='no handler for topic "my-orders"'):
        router.find("my-orders")


def test_one_pattern_subscribes_to_all_that_is_handled() -> None:
    router = Router()
    router.handler("a.b")(takes_bytes)
    assert router.pattern is None
    router.handler(pattern="x|y-.*")(takes_bytes)
    assert router.pattern is not None
    matching = [
        topic
        for topic in ("a.b", "a-b", "a.bc", "x", "y-1", "xy-1")
        if re.fullmatch(router.pattern, topic)
    ]
    assert matching == ["a.b", "x", "y-1"]


def test_a_router_that_handles_a_known_topic_adds_no_handler() -> None:
    app, part = Router(), Router()
    app.handler("orders")(takes_bytes)
    part.handler("clicks")(takes_bytes)
    app.include_router(part)
    assert app.topics == {"orders", "clicks"}
    clash = Router()
    clash.handler("payments")(takes_bytes)
    clash.handler("orders")(takes_bytes)
    with pytest.raises(ConfigError, match='topic "orders"'):
        app.include_router(clash)
    assert app.topics == {"orders", "clicks"}
