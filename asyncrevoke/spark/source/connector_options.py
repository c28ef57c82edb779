"""Maps options of Spark's Kafka connector to those of this library."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, cast

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.spark.connection_options import CONNECTORS, boolean
from asyncrevoke.spark.source.option_values import whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Options with the same meaning here. Spark passes names in lower case.
_SAME = {
    "subscribe": "topic",
    "subscribepattern": "subscribe_pattern",
    "startingoffsets": "start",
    "endingoffsets": "end",
    "startingtimestamp": "start",
    "endingtimestamp": "end",
    "startingoffsetsbytimestamp": "start",
    "endingoffsetsbytimestamp": "end",
    "failondataloss": "missing",
    "includeheaders": "include_headers",
    "maxoffsetspertrigger": "max_offsets_per_trigger",
    "minoffsetspertrigger": "min_offsets_per_trigger",
    "maxtriggerdelay": "max_trigger_delay",
    "minpartitions": "min_partitions",
    "maxrecordsperpartition": "max_records_per_partition",
    "kafka.isolation.level": "isolation_level",
    **CONNECTORS,
}
_STORES = (
    "only PEM is read: convert the store, and pass its files as ssl_cafile, ssl_certfile and "
    "ssl_keyfile"
)
_RETRIES = (
    "requests are retried until a broker responds: leave it out; no_progress_timeout ends a read "
    "without progress"
)
_REJECTED = {
    "kafka.group.id": "Spark keeps its offsets in the checkpoint and never commits for a group; to "
    'begin at the offsets of a group use start="group:NAME"; `asyncrevoke handover` commits'
    " offsets for a group",
    "groupidprefix": "the source joins no group: leave it out",
    "kafkaconsumer.polltimeoutms": _RETRIES,
    "fetchoffset.numretries": _RETRIES,
    "fetchoffset.retryintervalms": _RETRIES,
    "kafka.client.rack": "records are read from the leaders of partitions: leave it out",
    "kafka.auto.offset.reset": "use start=, and missing= for deleted records",
    "kafka.ssl.truststore.password": _STORES,
    "kafka.ssl.keystore.password": _STORES,
    "kafka.ssl.truststore.certificates": "write them to a file, and pass it as ssl_cafile",
    "kafka.ssl.keystore.certificate.chain": "write it to a file, and pass it as ssl_certfile",
    "kafka.ssl.keystore.key": "write it to a file, and pass it as ssl_keyfile",
    "kafka.sasl.login.callback.handler.class": "it names a Java class: use "
    'sasl_oauth_token_provider="MODULE:ATTRIBUTE"',
    "kafka.sasl.oauthbearer.token.endpoint.url": "use "
    'sasl_oauth_token_provider="MODULE:ATTRIBUTE", whose token() requests a token there',
}
# Options for which only this value is allowed, and changes nothing.
_ONLY = {
    "kafka.ssl.truststore.type": ("PEM", _STORES),
    "kafka.ssl.keystore.type": ("PEM", _STORES),
    "kafka.ssl.endpoint.identification.algorithm": ("https", "host names are always verified"),
    "startingoffsetsbytimestampstrategy": (
        "latest",
        "a partition without a record at or after the time is always read from its end",
    ),
}
CONNECTOR_NAMES: Final = (*_SAME, *_REJECTED, *_ONLY, "kafka.sasl.jaas.config")
"""The options of the connector that this source knows, in lower case."""
_JAAS = re.compile(
    r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*?);?\s*", re.DOTALL
)
_JAAS_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")
_JAAS_MODULES = ("PlainLoginModule", "ScramLoginModule")


def without_connector_names(given: Mapping[str, str]) -> dict[str, str]:
    """The options by their names in this library. Raises ConfigError for options of the connector
    that this source does not have, and if two names mean one option."""
    ours: dict[str, str] = {}
    names: dict[str, str] = {}
    for name, value in given.items():
        for our_name, our_value in _translated(name, value, given).items():
            if our_name in ours:
                raise ConfigError(
                    f"{names[our_name]} and {name} are both {our_name}: leave one of them out"
                )
            ours[our_name], names[our_name] = our_value, name
    return ours


def _translated(name: str, value: str, given: Mapping[str, str]) -> dict[str, str]:
    if name in _REJECTED:
        raise ConfigError(f"the source asyncrevoke has no option {name}: {_REJECTED[name]}")
    if name in _ONLY:
        only, why = _ONLY[name]
        if value.lower() != only.lower():
            raise ConfigError(
                f"{name}={shown_option(value)}: use {shown_option(only)}, or leave it out: {why}"
            )
        return {}
    if name == "kafka.sasl.jaas.config":
        return _from_jaas(value)
    store = name.removesuffix("location") + "type"
    if name.startswith("kafka.ssl.") and store in _ONLY and store not in given:
        raise ConfigError(f"{name} needs {store}={_ONLY[store][0]}: {_STORES}")
    if name not in _SAME:
        return {name: value}
    convert = _CONVERTED.get(name)
    return {_SAME[name]: value if convert is None else convert(name, value)}


def _moment(name: str, milliseconds: object, shown: object = None) -> str:
    """Milliseconds since the epoch as a time in ISO 8601. ``shown`` is the value for messages."""
    try:
        number = whole_number(str(milliseconds))
        if number is None or not isinstance(milliseconds, (int, str)):
            raise ValueError("no whole number")
        return datetime.fromtimestamp(number / 1000, UTC).isoformat()
    except (ValueError, TypeError, OverflowError, OSError) as error:
        raise ConfigError(
            f"{name}={shown_option(milliseconds if shown is None else shown)}: use milliseconds "
            "since the epoch, at least 0"
        ) from error


def _moments(name: str, text: str) -> str:
    try:
        given = cast("dict[str, dict[str, object]]", json.loads(text))
        times = {
            topic: {
                number: _moment(name, at, {topic: {number: at}})
                for number, at in by_partition.items()
            }
            for topic, by_partition in given.items()
        }
    except ConfigError:
        raise
    except (ValueError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f'{name}={shown_option(text)}: as JSON, {{"orders": {{"0": 1700000000000}}}}, in '
            "milliseconds since the epoch"
        ) from error
    return json.dumps(times)


def _missing(name: str, text: str) -> str:
    return "error" if boolean(name, text) else "clip"


_CONVERTED: dict[str, Callable[[str, str], str]] = {
    "startingtimestamp": _moment,
    "endingtimestamp": _moment,
    "startingoffsetsbytimestamp": _moments,
    "endingoffsetsbytimestamp": _moments,
    "failondataloss": _missing,
}


def _from_jaas(text: str) -> dict[str, str]:
    """User and password. No message contains ``text``."""
    found = _JAAS.fullmatch(text)
    module = "" if found is None else found[1].rpartition(".")[2]
    if found is None or module not in _JAAS_MODULES:
        raise ConfigError(
            "kafka.sasl.jaas.config may name PlainLoginModule or ScramLoginModule only: use "
            "sasl_plain_username and sasl_plain_password, for OAUTHBEARER "
            "sasl_oauth_token_provider, and for Kerberos sasl_kerberos_service_name"
        )
    options = {
        option[1]: re.sub(r"\\(.)", r"\1", option[2] or option[3] or option[4] or "")
        for option in _JAAS_OPTION.finditer(found[2])
    }
    if not {"username", "password"} <= options.keys():
        raise ConfigError("kafka.sasl.jaas.config has no username= or no password=")
    return {
        "sasl_plain_username": options["username"],
        "sasl_plain_password": options["password"],
    }
