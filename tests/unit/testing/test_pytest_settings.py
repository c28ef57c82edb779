"""The settings of pytest for the tests of this repository."""

from __future__ import annotations

import warnings

import pytest


def test_an_old_temporary_folder_that_another_process_uses_fails_no_session() -> None:
    warnings.warn(pytest.PytestWarning("(rm_rf) error removing /tmp/pytest-1"), stacklevel=1)


def test_other_warnings_of_pytest_are_errors() -> None:
    with pytest.raises(pytest.PytestWarning):
        warnings.warn(pytest.PytestWarning("(rm_rf) unknown function"), stacklevel=1)
