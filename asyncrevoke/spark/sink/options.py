"""The options of ``df.write.format("asyncrevoke")``. Spark passes all options as strings."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.spark.connection_options import (
    CONNECTION,
    CONNECTORS,
    HiddenOptions,
    boolean,
    connection_config,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.config.consumer_options import Compression

_NAMES: Final = (
    "topic",
    "compression",
    "idempotent",
    "request_timeout",
    *(name for name in CONNECTION if name != "isolation_level"),
)
# Options of every sink, in lower case. Spark passes them on.
_SPARKS: Final = ("path", "checkpointlocation")
# The same options in Spark's Kafka connector. Spark passes names in lower case.
_CONNECTORS: Final = {
    "kafka.compression.type": "compression",
    "kafka.enable.idempotence": "idempotent",
    **CONNECTORS,
}
_JAAS: Final = "use sasl_plain_username and sasl_plain_password"
_STORES: Final = "only PEM is read: pass its files as ssl_cafile, ssl_certfile and ssl_keyfile"
_BATCHES: Final = "record batches are made of whole Arrow batches, and sent when they are full"
_TIMES: Final = "use request_timeout, in seconds; a record fails after three times that"
_REJECTED: Final = {
    "includeheaders": "leave it out: headers are written if the DataFrame has the column headers",
    "kafka.acks": "leave it out: a record is written when all in-sync replicas have it",
    "kafka.transactional.id": "leave it out: a retried task writes its records again; "
    "consumers recognize them by a key or an id",
    "kafka.max.in.flight.requests.per.connection": "leave it out: each broker gets one request at "
    "a time",
    "kafka.retries": _TIMES,
    "kafka.request.timeout.ms": _TIMES,
    "kafka.delivery.timeout.ms": _TIMES,
    "kafka.max.block.ms": _TIMES,
    "kafka.linger.ms": _BATCHES,
    "kafka.batch.size": _BATCHES,
    "kafka.buffer.memory": "leave it out: at most 32 MiB of a task wait for acknowledgement",
    "kafka.partitioner.class": "use the column partition",
    "kafka.key.serializer": "keys are binary or string columns",
    "kafka.value.serializer": "values are binary or string columns",
    "kafka.sasl.jaas.config": _JAAS,
    "kafka.ssl.truststore.password": _STORES,
    "kafka.ssl.keystore.password": _STORES,
}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Checked options. ``topic`` is None if each row names its topic. Picklable: tasks get the
    given strings."""

    given: HiddenOptions
    topic: str | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SinkOptions:
        """Check all options. Raises ConfigError."""
        given: dict[str, str] = {}
        for name, value in options.items():
            known = _known(name.lower())
            if known is None:
                continue
            if known in given:
                raise ConfigError(f"{known} is given twice: leave {name} out")
            given[known] = value
        result = cls(HiddenOptions(given), given.get("topic"))
        result.config()
        return result

    def config(self) -> ConsumerConfig:
        """The configuration of a task's producer. Raises ConfigError."""
        given = self.given.reveal()
        config = connection_config(given)
        if "compression" in given:
            config = replace(config, compression=cast("Compression", given["compression"]))
        if "idempotent" in given:
            config = replace(config, idempotent=boolean("idempotent", given["idempotent"]))
        if "request_timeout" in given:
            seconds = _seconds(given["request_timeout"])
            # fetch_max_wait must be less than request_timeout, although the sink fetches nothing.
            config = replace(config, request_timeout=seconds, fetch_max_wait=seconds / 2)
        return config


def _known(name: str) -> str | None:
    """The name of this option in this library; None for Spark's options. Raises ConfigError."""
    if name in _NAMES:
        return name
    if name in _SPARKS:
        return None
    if name in _CONNECTORS:
        return _CONNECTORS[name]
    if name in _REJECTED:
        raise ConfigError(f"the sink asyncrevoke has no option {name}: {_REJECTED[name]}")
    close = difflib.get_close_matches(name.removeprefix("kafka.").replace(".", "_"), _NAMES, n=1)
    hint = f"did you mean {close[0]}?" if close else f"its options are {', '.join(_NAMES)}"
    raise ConfigError(f"the sink asyncrevoke has no option {shown_option(name)}: {hint}")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ConfigError(f"request_timeout={shown_option(text)}: use seconds, more than 0")
    return seconds
