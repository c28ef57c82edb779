"""``asyncrevoke groups configure``: its arguments, and responses of brokers."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.describe_configs.v1 import response as described
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1 import response as altered
from kio.static.primitive import i8
from typer.testing import CliRunner
from unit.groups.fake_brokers import NOW

from asyncrevoke.cli.app import app
from asyncrevoke.client.groups.cluster import GroupsClient
from asyncrevoke.client.groups.configs import (
    GROUP,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    group_options,
    set_group_options,
)
from asyncrevoke.client.groups.errors import GroupsError


class OneBroker(GroupsClient):
    """Answers about ``group``."""

    def __init__(self, group: str = "billing", error: ErrorCode = ErrorCode.none) -> None:
        self.group = group
        self.error = error
        self.message: str | None = None
        self.sources: tuple[int, ...] = (5, 8)
        self.altered: list[tuple[str, int, str | None]] = []

    async def ask_any(self, request: Any) -> Any:
        (resource,) = request.resources
        assert (resource.resource_type, resource.resource_name) == (GROUP, "billing")
        about: dict[str, Any] = {"error_code": self.error, "error_message": self.message}
        about |= {"resource_type": GROUP, "resource_name": self.group}
        if isinstance(request, IncrementalAlterConfigsRequest):
            self.altered += [(o.name, int(o.config_operation), o.value) for o in resource.configs]
            result = altered.AlterConfigsResourceResponse(**about)
            return altered.IncrementalAlterConfigsResponse(throttle_time=NOW, responses=(result,))
        assert isinstance(request, DescribeConfigsRequest)
        options = tuple(
            described.DescribeConfigsResourceResult(
                name=f"option-{source}",
                value=None,
                read_only=False,
                config_source=i8(source),
                is_sensitive=False,
                synonyms=(),
            )
            for source in self.sources
        )
        found = described.DescribeConfigsResult(**about, configs=options)
        return described.DescribeConfigsResponse(throttle_time=NOW, results=(found,))


async def test_each_option_names_who_has_set_it() -> None:
    broker = OneBroker()
    broker.sources = (8, 5, 4, 3, 2, 99)
    found = {option.name: option.source for option in await group_options(broker, "billing")}
    assert found == {
        "option-2": "broker, dynamic",
        "option-3": "cluster, dynamic",
        "option-4": "broker",
        "option-5": "default",
        "option-8": "group",
        "option-99": "99",
    }
    assert list(found) == sorted(found)


async def test_values_are_set_and_deleted_in_one_request() -> None:
    broker = OneBroker()
    await set_group_options(broker, "billing", {"a": "1", "b": None, "c": ""})
    assert broker.altered == [("a", 0, "1"), ("b", 1, None), ("c", 0, "")]


@pytest.mark.parametrize(
    ("error", "message", "sentence"),
    [
        (ErrorCode.invalid_config, "Unknown group config name: a", "invalid_config: Unknown group"),
        (ErrorCode.invalid_config, None, "returned invalid_config$"),
        (
            ErrorCode.invalid_request,
            "\x1b[2J",
            r"2J; brokers of Apache Kafka 3 have no",
        ),
        (ErrorCode.group_authorization_failed, "no", "grant (ALTER|DESCRIBE)_CONFIGS to this user"),
    ],
)
async def test_the_sentence_of_the_broker_is_in_the_error(
    error: ErrorCode, message: str | None, sentence: str
) -> None:
    broker = OneBroker(error=error)
    broker.message = message
    for refused in (
        set_group_options(broker, "billing", {"a": "1"}),
        group_options(broker, "billing"),
    ):
        with pytest.raises(GroupsError, match=sentence) as raised:
            await refused
        assert "\x1b" not in str(raised.value)


async def test_a_response_about_another_group_is_an_error() -> None:
    broker = OneBroker("other")
    with pytest.raises(GroupsError, match="other options than those of 'billing'"):
        await group_options(broker, "billing")
    with pytest.raises(GroupsError, match="other options than those of 'billing'"):
        await set_group_options(broker, "billing", {"a": "1"})


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["share.isolation.level"], "write OPTION=VALUE"),
        (["=1"], "write OPTION=VALUE"),
        (["a=1", "a=2"], "a has two values"),
        (["a=1", "--unset", "a"], "a cannot be set and unset"),
    ],
)
def test_a_wrong_argument_is_a_usage_error(arguments: list[str], sentence: str) -> None:
    result = CliRunner().invoke(app, ["groups", "configure", "billing", *arguments])
    assert result.exit_code == 2
    assert sentence in result.stderr
