"""Options of ``asyncrevoke send`` that are wrong, and a broker that is not there."""

from __future__ import annotations

import os
import socket

import pytest
from typer.testing import CliRunner

from asyncrevoke.cli.app import app

pytestmark = pytest.mark.timeout(30)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--value", "v", "--file", "f"], "use only one of --value and --file"),
        (["--tombstone", "--key", "k", "--value", "v"], "use only one of --value and --tombstone"),
        (["--tombstone"], "--tombstone needs --key"),
        (["--whole-file"], "--whole-file needs --file"),
        (
            ["--key-separator", ":", "--key", "k"],
            "with its key in the line: use it without --key\n",
        ),
        (["--key-separator", ":", "--value", "v"], "use it without --value\n"),
        (
            ["--key-separator", ":", "--file", "f", "--whole-file"],
            "use it without --whole-file\n",
        ),
        (
            ["--key-separator", ":", "--key", "k", "--tombstone"],
            "use it without --key and --tombstone\n",
        ),
        (["--key-separator", ""], "must not be empty"),
        (["--value", "v", "--header", "h"], "--header 'h' is not NAME=VALUE"),
        (["--file", "missing"], "missing"),
        ([], "standard input has no lines: nothing was sent"),
        (["--file", os.devnull], f"{os.devnull} has no lines: nothing was sent"),
        (["--value", "v", "--timeout", "0"], "request_timeout"),
        (["--value", "v", "--sasl-mechanism", "OAUTHBEARER"], "needs a token"),
    ],
)
def test_wrong_options_are_refused_with_a_sentence(options: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["send", "orders", *options], input="")
    assert result.exit_code == 2, result.output
    assert words in result.stderr


def test_a_broker_that_does_not_respond_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    words = ["send", "orders", "--value", "v", "--timeout", "1", "--bootstrap-servers", address]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: not published to orders: its partitions are unknown")
    assert result.stdout == ""
