"""Handlers that cannot share a topic, and predicates that cannot work: ConfigError at once."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest
from unit.handlers.matching.test_dispatch_by_tag import Created, Deleted, Paid  # noqa: TC002 - handlers are annotated

from asyncrevoke import ConfigError, RateLimit, Record, RetryTopic, Router, by_header


class DeletedByKind(msgspec.Struct, tag="deleted", tag_field="kind"):
    id: int


CREATED = by_header("type", "created")
DELETED = by_header("type", "deleted")


async def one(value: bytes) -> None: ...


async def two(value: bytes) -> None: ...


async def batch(values: list[bytes]) -> None: ...


def rejection(first: dict[str, Any], second: dict[str, Any], *functions: Any) -> str:
    router = Router()
    function, other = functions or (one, two)
    router.handler("orders", **first)(function)
    with pytest.raises(ConfigError) as caught:
        router.handler("orders", **second)(other)
    assert len(router.handlers) == 1
    return str(caught.value)


def test_two_handlers_without_a_predicate_cannot_share_a_topic() -> None:
    assert "give all but one of them where=" in rejection({}, {})


def test_options_that_cannot_hold_across_handlers_are_rejected() -> None:
    assert "different order_by" in rejection({"where": CREATED, "order_by": "partition"}, {})
    assert "limit the consumer" in rejection({"where": CREATED}, {"concurrency": 2})
    assert "limit the consumer" in rejection({"where": CREATED, "rate_limit": RateLimit(2)}, {})
    assert "limit the consumer" in rejection({"where": CREATED}, {"max_in_flight": 2})
    takes_batch = {"where": CREATED, "batch": True}
    assert "only one of them takes batches" in rejection(takes_batch, {}, batch, two)
    assert "one batch handler" in rejection(takes_batch, {"batch": True}, batch, batch)


def test_unmatched_is_said_once_and_only_where_records_can_be_unmatched() -> None:
    skip = {"where": CREATED, "unmatched": "skip"}
    assert "say differently" in rejection(skip, {"where": DELETED, "unmatched": "stop"})
    assert "leave out unmatched" in rejection(skip, {})
    first, second = (
        {"where": where, "unmatched": "dead_letter", "dead_letter": topic}
        for where, topic in ((CREATED, "a"), (DELETED, "b"))
    )
    assert "say differently" in rejection(first, second)
    for options, message in (
        ({"unmatched": "skip"}, "leave out unmatched"),
        ({"where": CREATED, "unmatched": "dead_letter"}, 'give it dead_letter="..."'),
        ({"where": CREATED, "unmatched": "pause"}, 'use "stop", "skip" or "dead_letter"'),
    ):
        with pytest.raises(ConfigError, match=message):
            Router().handler("orders", **cast("Any", options))(one)


def test_a_retry_topic_belongs_to_one_handler() -> None:
    later = RetryTopic("orders.retry", delay=60)
    both = rejection({"where": CREATED, "retry_topic": later}, {"retry_topic": later})
    assert "a retry topic belongs to one handler" in both
    router = Router()
    router.handler("orders", retry_topic=later)(one)
    with pytest.raises(ConfigError, match="a retry topic belongs to one handler"):
        router.handler("orders.retry", where=CREATED)(two)


def test_tags_that_do_not_tell_values_apart_are_rejected() -> None:
    async def created(event: Created) -> None: ...

    async def again(event: Created | Deleted) -> None: ...

    async def by_kind(event: DeletedByKind) -> None: ...

    assert "no tag tells their values apart" in rejection({}, {}, created, again)
    assert "no tag tells their values apart" in rejection({}, {}, created, by_kind)


def test_one_handler_with_several_fields_that_could_be_tags_is_rejected() -> None:
    async def paid(event: Paid) -> None: ...

    with pytest.raises(ConfigError, match=r"\(version, kind-of-event\): give the handler where="):
        Router().handler("payments", unmatched="skip")(paid)


def test_handlers_with_a_decoder_are_not_told_apart_by_tags() -> None:
    async def created(event: Created) -> None: ...

    async def deleted(event: Deleted) -> None: ...

    def decode(record: Record) -> object:
        return record.value

    options = {"decoder": decode}
    assert "give all but one of them where=" in rejection(options, options, created, deleted)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("created", "cannot be called"),
        (lambda: True, "called with the Record alone"),
    ],
)
def test_a_predicate_that_cannot_be_asked_is_rejected(where: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Router().handler("orders", where=where)


def test_an_async_predicate_is_rejected() -> None:
    async def where(record: Record) -> bool:
        raise NotImplementedError

    with pytest.raises(ConfigError, match="where is sync"):
        Router().handler("orders", where=where)


def test_a_header_match_takes_a_name_and_values_of_headers() -> None:
    assert repr(by_header("type", "created", b"x")) == "by_header('type', 'created', b'x')"
    with pytest.raises(ConfigError, match="the header's name"):
        by_header("")
    with pytest.raises(ConfigError, match="each as a separate argument"):
        by_header("type", cast("str", ["created", "deleted"]))


def test_a_replay_applies_its_own_policy_to_records_that_no_handler_takes() -> None:
    router = Router()
    options: Any = {"unmatched": "dead_letter", "dead_letter": "orders.dlq"}
    router.handler("orders", where=CREATED, **options)(one)
    replayed = router.map_handlers(
        lambda handler: handler._replace(dead_letter=None, on_error="skip")
    )
    live, of_replay = router.matcher_of("orders"), replayed.matcher_of("orders")
    assert live is not None
    assert of_replay is not None
    assert live.fallback.dead_letter == "orders.dlq"
    assert (of_replay.fallback.dead_letter, of_replay.fallback.on_error) == (None, "skip")


def test_an_included_router_shares_a_topic_or_adds_nothing() -> None:
    app, part, clash = Router(), Router(), Router()
    app.handler("orders", where=CREATED)(one)
    part.handler("orders", where=DELETED)(two)
    part.handler("orders")(two)
    clash.handler("clicks")(one)
    clash.handler("orders")(one)
    app.include_router(part)
    assert len(app.handlers_of("orders")) == 3
    with pytest.raises(ConfigError, match='topic "orders"'):
        app.include_router(clash)
    assert app.topics == {"orders"}
