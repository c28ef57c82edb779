"""Benchmarks without a broker run, and print a table."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest


@pytest.mark.parametrize(
    ("module", "options"),
    [
        ("decode", "--records 10"),
        ("journal", "--turns 1 --records 500"),
        ("observer", "--turns 1 --records 500"),
    ],
)
def test_a_benchmark_of_costs_prints_a_table(
    module: str,
    options: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    benchmark = import_module(f"benchmarks.costs.{module}")
    monkeypatch.setattr(sys, "argv", [module, *options.split()])
    assert benchmark.main() == 0
    assert capsys.readouterr().out.startswith("| ")
