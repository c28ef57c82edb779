"""Jars of servers that run on Java, from Maven Central or the repositories in jgo's settings."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from jgo.config import GlobalSettings
from jgo.constants import MAVEN_CENTRAL_URL
from jgo.maven import Dependency, MavenContext, PythonResolver

if TYPE_CHECKING:
    from collections.abc import Sequence


def jars(folder: Path, group: str, artifact: str, version: str) -> Path:
    """The folder with an artifact and all that it needs, downloaded if it is not there yet."""
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".download-", dir=folder.parent) as name:
        scratch = Path(name)
        context = MavenContext(
            resolver=PythonResolver(),
            repo_cache=scratch / "repository",
            remote_repos={**GlobalSettings.load().repositories, "central": MAVEN_CENTRAL_URL},
            timeout=60,
        )
        wanted = context.project(group, artifact).at_version(version).artifact()
        _, needed = context.resolver.get_dependency_list([Dependency(wanted, scope="compile")])
        _copy([wanted, *(node.dep.artifact for node in needed)], scratch / "jars")
        (scratch / "jars").rename(folder)
    return folder


def _copy(artifacts: Sequence[object], folder: Path) -> None:
    folder.mkdir()
    for artifact in artifacts:
        shutil.copy(artifact.resolve(), folder)  # type: ignore[attr-defined]
