"""Messages of commands name their flags, where the library names its options."""

from __future__ import annotations

from typer.testing import CliRunner

from asyncrevoke.cli.app import app
from asyncrevoke.cli.options.flags import as_flags


def test_a_wrong_option_is_named_as_it_was_typed() -> None:
    result = CliRunner().invoke(app, ["dead-letters", "replay", "orders.dlq", "--limit", "0"])
    assert result.exit_code == 2
    assert "--limit 0: at least 1" in result.output
    assert "limit=" not in result.output


def test_options_of_the_library_are_shownas_flags() -> None:
    assert as_flags("it failed again (max_attempts=3)") == "it failed again (--max-attempts 3)"
    assert as_flags("(resend_in_doubt=True sends it again)") == "(--resend-in-doubt sends it again)"
    assert as_flags("name another file: journal=PATH") == "name another file: --journal PATH"


def test_an_unreachable_cluster_names_flags_of_the_command() -> None:
    result = CliRunner().invoke(app, ["groups", "--bootstrap-servers", "localhost:1"])
    assert result.exit_code == 1
    assert "check --bootstrap-servers ..., --security-protocol ..." in result.output
