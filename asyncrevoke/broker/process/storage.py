"""The formatted storage of a broker, which others of the same settings get as a copy: formatting
starts a Java, which takes a quarter of the processor time of a broker's start."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from asyncrevoke.broker.process.properties import new_cluster_id

if TYPE_CHECKING:
    from collections.abc import Hashable
    from pathlib import Path

_META = "meta.properties"
_MOST = 16
"""The settings whose storage is remembered."""
_LARGEST = 1 << 20
"""Bytes of one file: a larger one is not part of a new storage."""


class FormattedStorages:
    """The files of formatted storages, of which at most 16 are remembered."""

    def __init__(self) -> None:
        self._files: dict[Hashable, dict[str, bytes]] = {}

    def remember(self, settings: Hashable, data: Path) -> None:
        """Keep the files of the folder ``data``, which has just been formatted."""
        paths = [path for path in sorted(data.rglob("*")) if path.is_file()]
        sizes = [path.stat().st_size for path in paths]
        # The user's properties may put storage elsewhere.
        if not (data / _META).is_file() or max(sizes) > _LARGEST or len(paths) > _MOST:
            return
        self._files[settings] = {
            path.relative_to(data).as_posix(): path.read_bytes() for path in paths
        }
        if len(self._files) > _MOST:
            del self._files[next(iter(self._files))]

    def write(self, settings: Hashable, data: Path, *, node_id: int, cluster_id: str) -> bool:
        """Format the folder ``data`` as one with the same settings was; False if none was."""
        files = self._files.get(settings)
        if files is None:
            return False
        own = {"node.id": str(node_id), "cluster.id": cluster_id, "directory.id": new_cluster_id()}
        # A broker is formatted once meta.properties is there.
        for name, content in sorted(files.items(), key=lambda file: file[0] == _META):
            path = data / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                file.write(_with(own, content) if name == _META else content)
        return True


def _with(own: dict[str, str], properties: bytes) -> bytes:
    text = properties.decode("latin-1")
    for name, value in own.items():
        text = re.sub(rf"(?m)^{re.escape(name)}=.*$", f"{name}={value}", text)
    return text.encode("latin-1")
