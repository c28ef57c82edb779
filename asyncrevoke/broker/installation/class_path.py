"""The class path of Apache Kafka: an installation of the user, or the verified cache."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from asyncrevoke.broker.errors import BrokerStartError
from asyncrevoke.broker.installation.jars import cache_folder, locked_jars, missing

if TYPE_CHECKING:
    from asyncrevoke.broker.installation.jars import OnProgress


def class_path(*, tools: bool = False, on_progress: OnProgress | None = None) -> str:
    """The class path of Apache Kafka, downloaded into the user's cache if it is missing.

    An installation in ``KAFKA_HOME`` is used first, and trusted. Several processes may call this at
    once: one downloads, the others wait. Each call compares every file with its locked SHA-256, and
    downloads a file that differs again. ``tools`` adds the jars of the command line tools. Threads
    of the download call ``on_progress``, one at a time.

    Raises BrokerMissingError if the packages for downloading are not installed, and
    BrokerStartError if the download fails.
    """
    home = os.environ.get("KAFKA_HOME")
    if home:
        return installed_class_path(Path(home))
    wanted = [jar for jar in locked_jars() if tools or jar.part == "server"]
    folder = cache_folder()
    if missing(wanted, folder):
        from asyncrevoke.broker.installation.download import fill_cache

        fill_cache(wanted, folder, on_progress)
    return os.pathsep.join(str(folder / jar.filename) for jar in wanted)


def installed_class_path(home: Path) -> str:
    """The class path of an unpacked Apache Kafka distribution. Raises BrokerStartError if it has no
    jars in ``libs``."""
    libs = home / "libs"
    if not any(libs.glob("kafka_2.*.jar")):
        raise BrokerStartError(
            f"KAFKA_HOME={home} has no libs/kafka_2.*.jar: set it to the folder of an unpacked "
            "Apache Kafka, or unset it to have the jars downloaded"
        )
    return str(libs / "*")
