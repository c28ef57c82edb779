"""``asyncrevoke asyncapi``: writes the AsyncAPI document of a consumer, or its page."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from asyncrevoke.cli.options.option_groups import TargetArgument
from asyncrevoke.cli.terminal import FAILED, USAGE, exit_on_errors, failed_with
from asyncrevoke.web.pages.report_file import write_report_file

if TYPE_CHECKING:
    from asyncrevoke.handlers.asyncapi.objects import AsyncApi

_YAML = (".yaml", ".yml")


def asyncapi(
    target: TargetArgument,
    *,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the document to this file: YAML if it ends with .yaml or .yml."),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(help="Write a page of the document to this file. It loads nothing else."),
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="The title of the document. Default: the group id.")
    ] = None,
    app_version: Annotated[
        str, typer.Option(help="The version of the application, in the document.")
    ] = "1.0.0",
) -> None:
    """Describe the handlers of a consumer: an AsyncAPI 3.0 document, or a page of it.

    Without --out and --html, the document is printed as JSON. Connects to no broker. Modules are
    imported from the current folder first. The exit code is 1 if a file cannot be written, 2 if the
    consumer cannot be loaded or has no handlers.

    Example: `asyncrevoke asyncapi app:consumer --out asyncapi.yaml --html asyncapi.html`
    """
    from asyncrevoke.replays.target import TargetError, find_consumer

    _check_packages(out, html)
    with exit_on_errors(TargetError):
        consumer = find_consumer(target)
        document = (
            consumer.asyncapi(version=app_version)
            if title is None
            else consumer.asyncapi(version=app_version, title=title)
        )
    if out is None and html is None:
        print(_as_text(document, yaml=False))
    try:
        if out is not None:
            write_report_file(out, _as_text(document, yaml=out.suffix in _YAML))
        if html is not None:
            from asyncrevoke.web.asyncapi.page import page

            write_report_file(html, page(document))
    except OSError as error:
        raise failed_with(error, FAILED) from error


def _check_packages(out: Path | None, html: Path | None) -> None:
    if html is not None and find_spec("jinja2") is None:
        raise failed_with("--html needs jinja2: pip install 'asyncrevoke[dashboard]'", USAGE)
    if out is not None and out.suffix in _YAML and find_spec("yaml") is None:
        raise failed_with(
            "YAML needs PyYAML: pip install pyyaml, or let --out end with .json", USAGE
        )


def _as_text(document: AsyncApi, *, yaml: bool) -> str:
    if yaml:
        return msgspec.yaml.encode(document).decode()
    return msgspec.json.format(msgspec.json.encode(document)).decode() + "\n"
