"""Options and calls that have no meaning in a share group are refused, each with its sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from asyncrevoke import Consumer, Pause, RateLimit, RebalanceListener, RetryTopic, Router
from asyncrevoke.client.config.share_groups import ARGUMENTS, CALLS, HANDLER_OPTIONS, OPTIONS
from asyncrevoke.config import ConsumerConfig
from asyncrevoke.errors import ConfigError
from asyncrevoke.handlers.policy.group_types import check_group_type

if TYPE_CHECKING:
    from asyncrevoke.client.config import GroupType
    from asyncrevoke.handlers.policy.registration import Handler

VALUES: dict[str, object] = {
    "processing": "exactly_once",
    "order_by": "key",
    "listener": RebalanceListener(),
    "pattern": "orders-.*",
}
HANDLERS: dict[str, object] = {
    "order_by": "partition",
    "retry_topic": RetryTopic("orders.retry", delay=1),
}


def share(**options: Any) -> Consumer:
    return Consumer(group_id="billing", group_type="share", **options)


def handler(*topics: str, **options: Any) -> Handler:
    router = Router()

    @router.handler(*topics, **options)
    async def handle(value: bytes) -> None: ...

    return router.handlers[0]


@pytest.mark.parametrize("name", [*OPTIONS, *ARGUMENTS])
def test_options_without_meaning_are_refused(name: str) -> None:
    default = getattr(ConsumerConfig(), name, None)
    with pytest.raises(ConfigError, match=rf"{name}=... has no meaning with group_type=\"share\""):
        share(**{name: VALUES.get(name, default)})


@pytest.mark.parametrize("name", CALLS)
def test_calls_without_meaning_are_refused(name: str) -> None:
    assert callable(getattr(Consumer, name))
    with pytest.raises(ConfigError, match=rf"{name}\(\) has no meaning with group_type=\"share\""):
        getattr(share(), name)()


async def test_iteration_is_refused() -> None:
    consumer = share()

    @consumer.handler("orders")
    async def handle(value: bytes) -> None: ...

    with pytest.raises(ConfigError, match="this consumer has handlers, which take its records"):
        async for _ in consumer:
            pass


@pytest.mark.parametrize("on_error", ["pause", "skip", Pause()])
def test_pausing_and_skipping_are_refused(on_error: object) -> None:
    with pytest.raises(ConfigError, match='use "release", "reject" or "stop"'):
        check_group_type(handler("orders", on_error=on_error), "share")


@pytest.mark.parametrize("name", HANDLER_OPTIONS)
def test_options_of_handlers_without_meaning_are_refused(name: str) -> None:
    topics = () if name == "pattern" else ("orders",)
    options = {"pattern": "orders-.*", "on_error": "skip"} | HANDLERS
    with pytest.raises(ConfigError, match=rf"{name}=... of .*handle has no meaning"):
        check_group_type(handler(*topics, **{name: options[name]}), "share")


@pytest.mark.parametrize(
    ("group_type", "options"),
    [
        ("share", {}),
        ("share", {"order_by": None, "on_error": "stop"}),
        ("share", {"on_error": "release", "release_delay": 1.0}),
        ("share", {"on_error": "reject"}),
        ("consumer", {"on_error": "skip"}),
    ],
)
def test_options_with_a_meaning_are_accepted(
    group_type: GroupType, options: dict[str, object]
) -> None:
    check_group_type(handler("orders", **options), group_type)


@pytest.mark.parametrize(
    "options", [{"on_error": "release"}, {"on_error": "reject"}, {"release_delay": 1.0}]
)
def test_options_of_share_groups_are_refused_in_consumer_groups(
    options: dict[str, object],
) -> None:
    with pytest.raises(ConfigError, match='is for group_type="share"'):
        check_group_type(handler("orders", **options), "consumer")


def test_a_share_group_has_no_order_and_twice_as_many_records_as_calls() -> None:
    assert share().config.order_by is None
    assert share(order_by=None).config.order_by is None
    assert share().config.max_in_flight == 128
    assert share(concurrency=10).config.max_in_flight == 20
    assert share(concurrency=10, max_in_flight=15).config.max_in_flight == 15


def test_a_config_that_is_made_directly_has_no_order_either() -> None:
    with pytest.raises(ConfigError, match=r"use order_by=None, or ConsumerConfig.from_options"):
        ConsumerConfig(group_id="billing", group_type="share")
    assert ConsumerConfig(group_id="billing", group_type="share", order_by=None).order_by is None


def test_batches_have_room_in_the_default() -> None:
    consumer = share()

    @consumer.handler("orders", batch=True)
    async def handle(values: list[bytes]) -> None: ...

    consumer.handler("refunds", batch=True, max_records=100)(handle)
    consumer.handler_host.check(["orders", "refunds"])
    assert consumer.handler_host.max_in_flight == 1200
    assert consumer.handler_host.acquire_limits().slots == 1200
    of_a_consumer_group = Consumer(group_id="billing")
    of_a_consumer_group.handler("orders", batch=True)(handle)
    assert of_a_consumer_group.handler_host.max_in_flight == 2000


def test_batches_that_never_fill_are_refused_with_the_value_to_use() -> None:
    consumer = share(max_in_flight=128)

    @consumer.handler("orders", batch=True)
    async def handle(values: list[bytes]) -> None: ...

    with pytest.raises(ConfigError, match=r"max_in_flight=128 .* use max_in_flight=500 or more"):
        consumer.handler_host.check(["orders"])
    wide = share(max_in_flight=500)
    wide.handler("orders", batch=True)(handle)
    wide.handler_host.check(["orders"])
    assert wide.handler_host.acquire_limits().slots == 500


@pytest.mark.parametrize(
    ("limits", "slots"), [([None], 64), ([4], 4), ([4, 5], 9), ([None, 4], 64), ([40, 40], 64)]
)
def test_no_more_is_acquired_than_handlers_may_call_at_once(
    limits: list[int | None], slots: int
) -> None:
    consumer = share()
    for number, limit in enumerate(limits):

        @consumer.handler(f"orders-{number}", concurrency=limit)
        async def handle(value: bytes) -> None: ...

    assert consumer.handler_host.acquire_limits().slots == slots


@pytest.mark.parametrize(
    ("rates", "most"),
    [
        ([RateLimit(10)], 10),
        ([RateLimit(10, per=0.1), RateLimit(60, per=60)], 15),
        ([RateLimit(1, per=3600)], 1),
        ([RateLimit(10), None], None),
    ],
)
def test_few_records_wait_for_a_rate(rates: list[RateLimit | None], most: int | None) -> None:
    consumer = share()
    for number, rate in enumerate(rates):

        @consumer.handler(f"orders-{number}", rate_limit=rate)
        async def handle(value: bytes) -> None: ...

    assert consumer.handler_host.acquire_limits().most_unstarted == most


async def test_a_share_group_needs_a_group_and_handlers() -> None:
    with pytest.raises(ConfigError, match="give a group_id"):
        Consumer(group_type="share")
    with pytest.raises(ConfigError, match="needs handlers"):
        await share().start()


def test_a_delay_is_for_releasing() -> None:
    with pytest.raises(ConfigError, match='release_delay is for on_error="release"'):
        handler("orders", on_error="reject", release_delay=1.0)


def test_what_is_acquired_is_a_choice_of_share_groups() -> None:
    assert share().config.acquire == "exact"
    assert share(acquire="batches").config.acquire == "batches"
    with pytest.raises(ConfigError, match='acquire is for group_type="share"'):
        Consumer(group_id="billing", acquire="batches")
