"""``asyncrevoke init``: writes a small working project, and the files that deploy it."""

from __future__ import annotations

import json
import os
import re
import shlex
import string
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asyncrevoke.cli.terminal import FAILED, USAGE, failed_with

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PROJECT = {
    "app.py": "project/app.py.txt",
    "tests/test_app.py": "project/test_app.py.txt",
    "pyproject.toml": "project/pyproject.toml.txt",
    "README.md": "project/README.md.txt",
}
_DOCKER = {
    "Dockerfile": "deployment/Dockerfile.txt",
    ".dockerignore": "deployment/dockerignore.txt",
}
_KUBERNETES = {
    "kubernetes/deployment.yaml": "deployment/deployment.yaml.txt",
    "kubernetes/disruption-budget.yaml": "deployment/disruption-budget.yaml.txt",
}
_KEDA = {"kubernetes/scaled-object.yaml": "deployment/scaled-object.yaml.txt"}
_KEDA_OF_QUEUES = {"kubernetes/scaled-object.yaml": "deployment/scaled-object-share.yaml.txt"}
_REPLICAS = "\n  replicas: 2"
# What the files of consumer groups and of share groups have in place of these names.
_OF_GROUPS = {
    "group_type": "",
    "accepted": 't.committed("orders", 0) == 1',
    "rejected": 't.committed("orders", 0) == 1',
}
_OF_QUEUES = {
    "group_type": '\n    group_type="share",',
    "accepted": 't.acknowledged("orders", 0) == {0: "accept"}',
    "rejected": 't.acknowledged("orders", 0) == {0: "reject"}',
}


def init(
    folder: Annotated[
        Path, typer.Argument(help="The folder, created if needed. Its name is the project's name.")
    ] = Path(),
    *,
    docker: Annotated[
        bool, typer.Option("--docker", help="Add a Dockerfile and .dockerignore.")
    ] = False,
    k8s: Annotated[
        bool, typer.Option("--k8s", help="Add Kubernetes manifests in kubernetes/.")
    ] = False,
    keda: Annotated[
        bool, typer.Option("--keda", help="Add a ScaledObject: KEDA sets the number of pods.")
    ] = False,
    share: Annotated[
        bool, typer.Option("--share", help="For a share group (a queue), not a consumer group.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write a small working project: handlers, their tests, pyproject.toml and README.md.

    --docker, --k8s and --keda add the files that deploy it. In a folder that has an app.py they
    write only these files. If any of the files exists, nothing is written and the exit code is 2.

    Example: `asyncrevoke init billing --docker --k8s`
    """
    scaled = _KEDA_OF_QUEUES if share else _KEDA
    deployment = (
        (_DOCKER if docker else {}) | (_KUBERNETES if k8s else {}) | (scaled if keda else {})
    )
    existing = bool(deployment) and os.path.lexists(folder / "app.py")
    chosen = deployment if existing else _PROJECT | deployment
    name = _project_name(folder)
    there = [path for path in chosen if os.path.lexists(folder / path)]
    if there:
        fix = "leave out the options that write these" if existing else "use another folder"
        raise failed_with(f"{folder} already has {' and '.join(there)}: {fix}", USAGE)
    _check_parents(folder, chosen)
    words = {"name": name, "replicas": "" if keda else _REPLICAS}
    _write(folder, chosen, words | (_OF_QUEUES if share else _OF_GROUPS))
    if as_json:
        print(json.dumps({"name": name, "folder": str(folder.resolve()), "files": list(chosen)}))
        return
    print(f"Wrote {', '.join(chosen)}. Next:\n")
    if folder != Path():
        print(f"    cd {shlex.quote(str(folder))}")
    if not existing:
        print("    pip install -e '.[dev]' && pytest")
        print("    asyncrevoke broker --topic orders:4 --topic orders.dlq")
        print("    asyncrevoke run app:consumer --reload")
    if docker:
        print(f"    docker build --tag registry.example.com/{name}:0.1.0 .")
    if keda and _sets_replicas(folder / "kubernetes/deployment.yaml"):
        print(
            "    # Remove `replicas` from kubernetes/deployment.yaml: KEDA sets the number of pods."
        )
    if k8s or keda:
        print("    kubectl apply --filename kubernetes/")


def _check_parents(folder: Path, chosen: Iterable[str]) -> None:
    """Raise Exit if a folder between ``folder`` and a file is a link: it may lead anywhere."""
    for parent in dict.fromkeys(parent for path in chosen for parent in Path(path).parents):
        if parent != Path() and os.path.islink(folder / parent):
            raise failed_with(
                f"{folder / parent} is a link to another folder, where files would be written: "
                "remove it, or use another folder",
                USAGE,
            )


def _write(folder: Path, chosen: Mapping[str, str], words: Mapping[str, str]) -> None:
    """Write these files from their templates. Raises Exit."""
    try:
        for path, source in chosen.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("x", encoding="utf-8") as file:  # does not follow links
                file.write(_filled(source, words))
    except OSError as error:
        raise failed_with(
            f"{error.filename} cannot be written: {error.strerror}", FAILED
        ) from error


def _sets_replicas(deployment: Path) -> bool:
    """Whether a manifest that was there sets the number of pods at each ``kubectl apply``."""
    return deployment.is_file() and "\n  replicas:" in deployment.read_text("utf-8", "replace")


def _filled(source: str, words: Mapping[str, str]) -> str:
    """A template with these words."""
    text = files("asyncrevoke.cli.init").joinpath(source).read_text("utf-8")
    return string.Template(text).substitute(words)


def _project_name(folder: Path) -> str:
    """The folder's name, as a project name (PEP 508) and a Kubernetes label (63 characters)."""
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower())[:63].strip("-")
    return name or "consumer"
